//! The committed bindings, held against the installed headers: what there is without bindgen.

use std::path::PathBuf;

use super::committed::{self, Part};
use super::headers::Version;
use super::wanted::Wanted;
use super::{library, tools};

/// Writes bindings into `out`. What to tell cargo of the headers that were read.
pub fn bind(wanted: &Wanted<'_>) -> Result<Vec<String>, String> {
    let compiler = tools::compiler(wanted.root, wanted.includes, wanted.all).try_get_compiler();
    let compiler = compiler.map_err(|error| tools::refused(&error, "the C compiler cannot be used"))?;
    let mut parts = Vec::new();
    for (library, starts) in [(library::NCCL, &["nccl", "NCCL", "gpucommNccl"][..]), (library::CUDA, &[""])] {
        let found = wanted.all.iter().find(|found| found.key == library.key);
        let committed = library.declared(wanted.root)?;
        parts.push(Part { name: library.name, starts, installed: found.map(|found| found.version), committed });
    }
    let output = wanted.out.join("bindings.rs");
    let (bindings, lines) = committed::adapt(&committed::Request {
        bindings: gpucomm_abi::text::CUDA_NCCL,
        wrapper: &wanted.root.join("wrapper.h"),
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
