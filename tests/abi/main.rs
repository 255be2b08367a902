//! The bindings are what the C compiler makes of the headers, and the libraries export what is bound.
//!
//! Proved for the build that this test belongs to: the bindings in its `OUT_DIR`, the headers and libraries that were
//! found. With the feature `emulator` the committed snapshot is compared with vendor/include instead. Without a C
//! compiler, or far from the headers, a test says that it was skipped; `GPUCOMM_TEST_STRICT=1` makes that a failure.

mod c_type;
mod exports;
#[allow(dead_code)]
#[path = "../../build/headers.rs"]
mod headers;
mod items;
mod mutants;
mod parts;
mod proof;
mod properties;
#[path = "../support/skip.rs"]
mod skip;
mod vendor;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use items::Item;
use proof::Language;

const LANGUAGES: [Language; 2] = [Language::C, Language::Cxx];

fn skip(reason: &str) {
    skip::skip("the bindings were not proved", reason);
}

/// `None` after saying so where there is no compiler.
fn compiler(language: Language) -> Option<Language> {
    if proof::available(language) {
        return Some(language);
    }
    skip(&format!("no compiler for {language:?}"));
    None
}

#[test]
fn bindings_are_what_the_compiler_sees() {
    let mut proved = 0;
    for part in parts::ALL {
        let Some(headers) = part.headers() else { return };
        let items = part.items();
        let mut count = 0;
        for language in LANGUAGES.into_iter().filter_map(compiler) {
            match proof::compare(&items, &headers, language) {
                Ok(facts) => count = facts,
                Err(differences) => panic!("{}, as {language:?}:\n{differences}", headers.wrapper.display()),
            }
            assert!(count > part.facts, "only {count} facts: too few to mean anything");
        }
        proved += count;
    }
    // For scripts/matrix.
    println!("\nPROVED {proved} facts");
}

#[test]
fn shim_compiles_without_warnings() {
    // vendor/include has not all that the shim uses.
    if cfg!(any(gpucomm_emulator, gpucomm_snapshot)) || compiler(Language::C).is_none() {
        return;
    }
    for part in parts::ALL {
        let Some(headers) = part.headers() else { return };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(part.shim);
        proof::without_warnings(&source, &headers).expect("no warnings");
    }
}

/// The library that has to export a symbol.
fn owner(symbol: &str) -> Option<PathBuf> {
    let library = [
        ("cuda", option_env!("GPUCOMM_CUDA_LIBRARY")),
        ("nccl", option_env!("GPUCOMM_NCCL_LIBRARY")),
        ("nvshmem", option_env!("GPUCOMM_NVSHMEM_LIBRARY")),
    ];
    library.into_iter().find(|(start, _)| symbol.starts_with(start)).and_then(|(_, file)| file.map(PathBuf::from))
}

/// What the program takes from the libraries: all that is bound, behind the shim too, and what the shim calls.
fn needed(items: &[Item], shim: &BTreeSet<String>) -> Vec<String> {
    let bound = items.iter().filter_map(|item| match item {
        Item::Function { name, symbol, .. } | Item::Variable { name, symbol, .. } => Some((name, symbol)),
        _ => None,
    });
    let bound = bound.filter(|(name, _)| !name.starts_with("gpucomm")).map(|(name, symbol)| match symbol {
        symbol if symbol == &format!("gpucomm_{name}") => name.clone(),
        symbol => symbol.clone(),
    });
    let called = shim.iter().filter(|symbol| owner(symbol).is_some()).cloned();
    bound.chain(called).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Those of `needed` that no library exports.
fn missing(needed: &[String]) -> Vec<String> {
    let mut exported = BTreeMap::new();
    let mut has = |symbol: &String| {
        let Some(file) = owner(symbol) else { return false };
        let read = |file: &PathBuf| exports::defined(file).expect("the library can be read");
        exported.entry(file.clone()).or_insert_with(|| read(&file)).contains(symbol)
    };
    needed.iter().filter(|symbol| !has(symbol)).cloned().collect()
}

#[test]
fn libraries_export_what_is_bound() {
    if cfg!(any(gpucomm_emulator, gpucomm_snapshot)) {
        return;
    }
    let archive = Path::new(env!("OUT_DIR")).join("libgpucomm_shim.a");
    if !archive.exists() || owner("cudaMalloc").is_some_and(|library| !library.exists()) {
        return skip("the libraries are not on this machine");
    }
    let items: Vec<Item> = parts::ALL.iter().flat_map(|part| part.items()).collect();
    let of_shim = exports::defined(&archive).expect("the shim can be read");
    for item in &items {
        let Item::Function { symbol, .. } = item else { continue };
        let ours = symbol.starts_with("gpucomm");
        assert!(!ours || of_shim.contains(symbol), "the shim has no {symbol}");
    }
    let needed = needed(&items, &exports::undefined(&archive).expect("the shim can be read"));
    assert!(needed.len() > 35, "only {needed:?}: too few to mean anything");
    assert_eq!(missing(&needed), Vec::<String>::new(), "bound, but exported by no library");
    println!("\nPROVED {} symbols", needed.len());
    // The headers for kernels declare the last two, which no library for the host has.
    let absent =
        ["cudaNoSuchFunction", "ncclCftBarrierCreateRequirement", "nvshmem_signal_wait_until"].map(String::from);
    assert_eq!(missing(&absent), absent, "a missing symbol is seen");
}
