//! `docs/variables.md` has each variable that the sources read at run time, and no other. No page names a variable that nothing reads.

use std::collections::BTreeSet;
use std::path::Path;

use crate::interface::root;

const PAGE: &str = "docs/variables.md";
const START: &str = "GPUCOMM_";

/// Calls `each` for every file below `directory`, with its path and its text.
fn files(directory: &Path, each: &mut dyn FnMut(&Path, String)) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, each);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            each(&path, std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The sources below `directory` that are no tests.
fn sources(directory: &Path, all: &mut Vec<String>) {
    files(directory, &mut |path, text| {
        let mut parts = path.strip_prefix(directory).unwrap().iter().map(|part| part.to_string_lossy());
        if path.extension().is_some_and(|extension| extension == "rs")
            && !parts.any(|part| part == "tests" || part.ends_with("tests.rs"))
        {
            all.push(text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned());
        }
    });
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

/// The names of variables in a page. `DEP_GPUCOMM_…` are cargo's.
fn named(page: &str) -> impl Iterator<Item = &str> {
    page.match_indices(START).filter_map(|(at, _)| {
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let rest = &page[at..];
        let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        (!page[..at].ends_with(is_name) && name.len() > START.len()).then_some(name)
    })
}

#[test]
fn no_page_names_a_variable_that_nothing_reads() {
    let root = root();
    let mut read = of_sources();
    // Those of the build script, and of tests and benchmarks.
    let mut quoted_in = |text: &str| read.extend(quoted(text, "\"GPUCOMM_").map(|(_, name)| format!("{START}{name}")));
    quoted_in(&std::fs::read_to_string(root.join("build.rs")).unwrap());
    for directory in ["build", "tests", "benches", "crates/gpucomm-cli/tests", "fuzz/harness", "src"] {
        files(&root.join(directory), &mut |_, text| quoted_in(&text));
    }
    let mut wrong = Vec::new();
    let mut check = |path: &Path, text: String| {
        let unknown = named(&text).filter(|name| !read.contains(*name));
        wrong.extend(unknown.map(|name| format!("{}: {name}", path.strip_prefix(root).unwrap().display())));
    };
    for page in ["README.md", "CONTRIBUTING.md", "CONVENTIONS.md"] {
        let path = root.join(page);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
        check(&path, text);
    }
    files(&root.join("docs"), &mut |path, text| {
        // Records of what was once run keep the names of that day.
        if path.parent().is_none_or(|parent| !parent.ends_with("measurements")) {
            check(path, text);
        }
    });
    assert!(wrong.is_empty(), "nothing reads {wrong:#?}");
}
