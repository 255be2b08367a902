//! The C functions of the interface, and who calls them, as the source says.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names behind each `before` in a text.
fn names(text: &str, before: &str) -> Vec<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    text.split(before).skip(1).map(name).collect()
}

/// What is declared of CUDA and NCCL.
pub fn declared() -> Vec<String> {
    names(&read("crates/gpucomm-abi/src/cuda_nccl_functions.rs"), "pub fn ")
}

/// What is declared of NVSHMEM.
pub fn declared_of_nvshmem() -> Vec<String> {
    names(&read("crates/gpucomm-abi/src/nvshmem_functions.rs"), "pub fn ")
}

/// What the emulator has, by its own table.
pub fn emulated() -> Vec<String> {
    gpucomm_emulator::c::functions().map(|function| function.name.to_owned()).collect()
}

/// All source files below a folder, with their text.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                found.push((path.strip_prefix(root()).expect("below the root").to_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// The sources of all crates, and of tests.
pub fn sources() -> &'static [(PathBuf, String)] {
    static SOURCES: OnceLock<Vec<(PathBuf, String)>> = OnceLock::new();
    SOURCES.get_or_init(|| [files("src"), files("crates"), files("tests")].concat())
}

/// Whether a text has this as a word.
pub fn mentions(text: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word)
        .any(|(at, _)| !part(text[..at].chars().next_back()) && !part(text[at + word.len()..].chars().next()))
}

/// Where a function is used.
#[derive(Debug, Default)]
pub struct Uses {
    /// Whether unit tests of the emulator call it.
    pub unit: bool,
    /// Files of the safe layer that call it.
    pub layer: Vec<String>,
    /// Test programs that call it themselves.
    pub suites: Vec<String>,
}

impl Uses {
    pub fn of(function: &str) -> Self {
        let mut uses = Self::default();
        for (path, text) in sources().iter().filter(|(_, text)| mentions(text, function)) {
            let path = path.to_str().expect("a path in UTF-8");
            let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
            match parts[..] {
                ["tests", suite, ..] => uses.suites.push(suite.to_owned()),
                ["crates", "gpucomm-emulator", "src", _, "tests", ..] => uses.unit = true,
                ["crates", ..] | ["src", "sys", ..] => {}
                _ if mentions(text, &format!("sys::{function}")) => uses.layer.push(path.to_owned()),
                _ => {}
            }
        }
        uses.suites.dedup();
        // What only holds the names, as this does.
        uses.suites.retain(|suite| !["abi", "fidelity", "snapshot", "discovery", "build"].contains(&suite.as_str()));
        uses
    }

    /// The test programs that go through it: those that call it, and those that go through the part of the safe layer that does.
    pub fn programs(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.suites.iter().map(String::as_str).collect();
        if !self.layer.is_empty() {
            all.extend(["conformance", "random"]);
        }
        if self.layer.iter().any(|path| !path.starts_with("src/nccl")) {
            all.push("cuda");
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[test]
fn words_are_whole() {
    assert!(mentions("sys::cudaFree(ptr)", "cudaFree") && !mentions("cudaFreeAsync(ptr)", "cudaFree"));
    assert!(emulated().contains(&"ncclAllReduce".to_owned()) && declared().contains(&"cudaFree".to_owned()));
    assert_eq!(Uses::of("ncclAllReduce").layer, ["src/nccl/c_calls/function.rs"]);
}
