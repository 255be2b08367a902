//! `docs/variables.md` has each variable that the sources read at run time, and no other.

use std::collections::BTreeSet;
use std::path::Path;

use crate::interface::root;

const PAGE: &str = "docs/variables.md";
const START: &str = "GPUCOMM_";

/// The sources below `directory` that are no tests.
fn sources(directory: &Path, all: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "tests" || name.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            sources(&path, all);
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            all.push(text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned());
        }
    }
}

/// The names that stand in quotes behind `before`, without what surrounds them.
fn quoted<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    text.match_indices(before).filter_map(move |(at, _)| {
        let rest = &text[at + before.len()..];
        let name = &rest[..rest.find('"')?];
        let is_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        (name.bytes().all(is_name) && !name.is_empty()).then_some((&text[..at], name))
    })
}

/// Not what the compiler reads, nor what a program that is started is given.
fn is_read(before: &str) -> bool {
    !["env!(", "option_env!(", ".env("].iter().any(|call| before.trim_end().ends_with(call))
}

fn of_sources() -> BTreeSet<String> {
    let mut all = Vec::new();
    for directory in ["src", "crates"] {
        sources(&root().join(directory), &mut all);
    }
    assert!(all.len() > 100, "{} files", all.len());
    let mut names = BTreeSet::new();
    for text in &all {
        let whole = quoted(text, "\"GPUCOMM_").filter(|(before, name)| is_read(before) && !name.starts_with("TEST_"));
        names.extend(whole.map(|(_, name)| format!("{START}{name}")));
        // The settings of the emulator have them by their ends.
        names.extend(quoted(text, "self.take(\"").map(|(_, name)| format!("{START}EMULATOR_{name}")));
    }
    names
}

#[test]
fn all_variables_are_in_the_documentation() {
    let page = std::fs::read_to_string(root().join(PAGE)).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
    let mut told = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| `GPUCOMM_")) {
        let first = row.split('|').nth(1).unwrap_or_default();
        for name in first.split(',') {
            let name = name.trim().trim_matches('`').to_owned();
            assert!(told.insert(name.clone()), "{PAGE} has {name} twice");
        }
    }
    let read = of_sources();
    let missing: Vec<_> = read.difference(&told).collect();
    let unknown: Vec<_> = told.difference(&read).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "{PAGE} lacks {missing:?}, and has {unknown:?}, which nothing reads"
    );
}
