//! The bindings are what the C compiler makes of the headers, and the libraries export what is bound.
//!
//! Proved for the build that this test belongs to: the bindings in its `OUT_DIR`, the headers and libraries that were
//! found. With the feature `emulator` the committed snapshot is compared with vendor/include instead. Without a C
//! compiler, or far from the headers, a test says that it was skipped; `GPUCOMM_TEST_STRICT=1` makes that a failure.

mod c_type;
mod exports;
mod items;
mod mutants;
mod proof;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use items::Item;
use proof::{Headers, Language};

const LANGUAGES: [Language; 2] = [Language::C, Language::Cxx];

#[cfg(any(gpucomm_emulator, gpucomm_snapshot))]
const BINDINGS: &str = include_str!("../../src/sys/snapshot.rs");
#[cfg(not(any(gpucomm_emulator, gpucomm_snapshot)))]
const BINDINGS: &str = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs"));

fn bindings() -> Vec<Item> {
    items::read(BINDINGS).expect("the bindings are understood")
}

fn skip(reason: &str) {
    assert!(std::env::var_os("GPUCOMM_TEST_STRICT").is_none(), "not to be skipped: {reason}");
    // Past the test harness, which keeps what a test that passes prints.
    writeln!(std::io::stderr(), "SKIPPED: the bindings were not proved: {reason}").expect("stderr can be written");
}

/// The headers that the bindings were made from; `None` where they are not on this machine.
fn headers() -> Option<Headers> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut includes = vec![root.join("vendor/shim")];
    if cfg!(any(gpucomm_emulator, gpucomm_snapshot)) {
        includes.push(root.join("vendor/include"));
    } else {
        // As build.rs has it: NCCL's own headers alone, then all that lie beside those of CUDA.
        includes.push(Path::new(env!("OUT_DIR")).join("include/nccl"));
        let cuda = PathBuf::from(option_env!("GPUCOMM_CUDA_INCLUDE_DIR").unwrap_or_default());
        includes.push(cuda.clone());
        includes.extend(cuda.parent().map(|runtime| runtime.with_file_name("cuda_nvcc").join("include")));
    }
    let wrapper = root.join("wrapper.h");
    if let Some(missing) = [&wrapper, &includes[1]].into_iter().find(|path| !path.exists()) {
        skip(&format!("{} is not on this machine", missing.display()));
        return None;
    }
    let mut defines: Vec<String> = defines().iter().map(|name| format!("{name}=1")).collect();
    if BINDINGS.contains("fn ncclGetVersion") {
        defines.push("GPUCOMM_NCCL=1".into());
    }
    Some(Headers { wrapper, includes, defines })
}

/// `DEFINES` of build/bind.rs, which cannot be included: it needs bindgen.
fn defines() -> Vec<String> {
    let file = syn::parse_file(include_str!("../../build/bind.rs")).expect("build/bind.rs parses");
    let value = file.items.into_iter().find_map(|item| match item {
        syn::Item::Const(constant) if constant.ident == "DEFINES" => Some(*constant.expr),
        _ => None,
    });
    let Some(syn::Expr::Reference(reference)) = value else { panic!("build/bind.rs has no DEFINES") };
    let syn::Expr::Array(array) = *reference.expr else { panic!("DEFINES of build/bind.rs is no array") };
    let text = |element| match element {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => text.value(),
        other => panic!("DEFINES of build/bind.rs holds {other:?}"),
    };
    array.elems.into_iter().map(text).collect()
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
    let Some(headers) = headers() else { return };
    let items = bindings();
    let mut proved = 0;
    for language in LANGUAGES.into_iter().filter_map(compiler) {
        match proof::compare(&items, &headers, language) {
            Ok(count) => proved = count,
            Err(differences) => panic!("as {language:?}:\n{differences}"),
        }
        assert!(proved > 200, "only {proved} facts: too few to mean anything");
    }
    // For scripts/matrix.
    println!("\nPROVED {proved} facts");
}

#[test]
fn shim_compiles_without_warnings() {
    // vendor/include has not all that the shim uses.
    if cfg!(any(gpucomm_emulator, gpucomm_snapshot)) {
        return;
    }
    let Some(headers) = headers() else { return };
    if compiler(Language::C).is_none() {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("vendor/shim/gpucomm_shim.c");
    proof::without_warnings(&source, &headers).expect("no warnings");
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
    let mut missing = Vec::new();
    for symbol in needed {
        let exported = owner(symbol).map(|file| exports::defined(&file).expect("the library can be read"));
        if !exported.is_some_and(|exported| exported.contains(symbol)) {
            missing.push(symbol.clone());
        }
    }
    missing
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
    let items = bindings();
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
    assert_eq!(missing(&["cudaNoSuchFunction".into()]), ["cudaNoSuchFunction"], "a missing symbol is seen");
}
