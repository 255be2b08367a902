//! Bindings without bindgen: the committed ones, compared with the installed headers.

use std::path::PathBuf;

use super::committed::{self, Language, Part};
use super::headers::Version;
use super::library::{self, Library};
use super::tools;
use super::wanted::Wanted;

/// Committed bindings, and the headers that they declare.
struct Committed {
    text: &'static str,
    /// The header that includes all others, below the root of the package.
    wrapper: &'static str,
    language: Language,
    /// The libraries, each with the prefixes of its names. The last one has all other names.
    libraries: [(Library, &'static [&'static str]); 2],
    /// The file to write, below `OUT_DIR`.
    output: &'static str,
}

const CUDA_NCCL: Committed = Committed {
    text: gpucomm_abi::text::CUDA_NCCL,
    wrapper: "wrapper.h",
    language: Language::C,
    libraries: [(library::NCCL, &["nccl", "NCCL", "gpucommNccl"]), (library::CUDA, &[""])],
    output: "bindings.rs",
};

const NVSHMEM: Committed = Committed {
    text: gpucomm_abi::text::NVSHMEM,
    wrapper: "vendor/shim/gpucomm_nvshmem.h",
    language: Language::Cxx17,
    libraries: [(library::CUDA, &["CU"]), (library::NVSHMEM, &[""])],
    output: "bindings_nvshmem.rs",
};

/// Writes bindings into `out`. What to tell cargo of the headers that were read.
pub fn bind(wanted: &Wanted<'_>) -> Result<Vec<String>, String> {
    let mut lines = one(&CUDA_NCCL, wanted)?;
    if wanted.all.iter().any(|found| found.key == library::NVSHMEM.key) {
        lines.extend(one(&NVSHMEM, wanted)?);
    }
    Ok(lines)
}

fn one(committed: &Committed, wanted: &Wanted<'_>) -> Result<Vec<String>, String> {
    let mut compiler = tools::compiler(wanted.root, wanted.includes, wanted.all);
    if committed.language == Language::Cxx17 {
        compiler.cpp(true).std("c++17");
    }
    let compiler = compiler.try_get_compiler();
    let compiler = compiler.map_err(|error| format!("error: the compiler cannot be used: {error}"))?;
    let mut parts = Vec::new();
    for (library, starts) in &committed.libraries {
        let found = wanted.all.iter().find(|found| found.key == library.key);
        let committed = library.declared(wanted.root)?;
        parts.push(Part { name: library.name, starts, installed: found.map(|found| found.version), committed });
    }
    let output = wanted.out.join(committed.output);
    let (bindings, lines) = committed::adapt(&committed::Request {
        bindings: committed.text,
        wrapper: &wanted.root.join(committed.wrapper),
        language: committed.language,
        work: wanted.out,
        compiler: &|| compiler.to_command(),
        parts: &parts,
        instead: wanted.instead,
    })?;
    std::fs::write(&output, bindings).map_err(|error| format!("error: {}: {error}", output.display()))?;
    Ok(lines)
}

/// The version whose items are bound, where `installed` is there and the committed bindings are of `committed`.
pub fn upto(installed: Version, committed: Version) -> Version {
    installed.min(committed)
}

/// Only bindgen writes bindings.
pub fn write(_arguments: &[PathBuf], _instead: &'static str) -> Result<(), String> {
    Err("error: bindings are written by bindgen: give --features gpucomm/bindgen".into())
}
