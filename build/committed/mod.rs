//! Compares the committed bindings with the installed headers, by the C compiler, and those of NVSHMEM by the C++ compiler.
//! The build script does this without the feature `bindgen`, so that it needs no libclang.
//!
//! An item that the headers have otherwise is an error. What they lack is left out where they are older than the bindings;
//! sources of this crate ask for versions before they use it. What newer headers have beyond is not bound.

mod c_type;
mod cursor;
mod declared;
mod expected;
mod facts;
mod items;
mod language;
mod render;
mod tokens;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::headers::Version;
use declared::Declared;
use expected::{Expected, Fact, Wanted};
pub use language::Language;

/// A library that has a part of what is bound.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name for people.
    pub name: &'static str,
    /// How names of its items start.
    pub starts: &'static [&'static str],
    /// The version of the installed headers; `None` where it is not wanted.
    pub installed: Option<Version>,
    /// The version that the committed bindings are of.
    pub committed: Version,
}

/// What [`adapt`] is to do.
pub struct Request<'a> {
    /// The committed bindings.
    pub bindings: &'a str,
    /// The header that includes all others.
    pub wrapper: &'a Path,
    /// The language in which the compiler reads the headers.
    pub language: Language,
    /// A directory for files of the compiler.
    pub work: &'a Path,
    /// The compiler of that language, with the arguments that the headers need.
    pub compiler: &'a dyn Fn() -> Command,
    /// The first one whose names start so has an item.
    pub parts: &'a [Part],
    /// How to do without all this.
    pub instead: &'static str,
}

impl Request<'_> {
    /// A source file for the compiler.
    fn source(&self, stem: &str) -> PathBuf {
        self.work.join(format!("{stem}.{}", self.language.extension()))
    }
}

/// The bindings for the installed headers and the headers that were read, or what differs.
pub fn adapt(request: &Request<'_>) -> Result<(String, Vec<String>), String> {
    let start = format!("#include \"{}\"", request.wrapper.display());
    let source = request.source("headers");
    std::fs::write(&source, format!("{start}\n")).map_err(|error| format!("error: {}: {error}", source.display()))?;
    let mut preprocess = (request.compiler)();
    preprocess.arg("-E").arg("-dD").arg(&source);
    let declared = Declared::read(&String::from_utf8_lossy(&facts::output(preprocess, request.language)?));

    let tokens = tokens::tokens(request.bindings);
    let items = items::read(request.bindings, &tokens);
    let items = items.map_err(|error| format!("error: the committed bindings are not understood: {error}"))?;
    let expected = expected::expected(&items, &declared);
    let expressions: Vec<String> = expected.facts.iter().map(|fact| fact.expression.clone()).collect();
    let values = facts::values(request, &start, &expected.declarations, &expressions)?;
    differences(request, &expected, &values)?;

    let values = expected.facts.iter().map(|fact| fact.what.as_str()).zip(values).collect();
    let headers = render::Headers { absent: &expected.absent, values: &values, renamed: &expected.renamed };
    let mut text = render::bindings(&items, &headers);
    for (ours, c) in &expected.renamed {
        if let Some(tag) = declared.record_of(c).and_then(|record| record.name.as_ref()) {
            text = text.replace(ours, tag);
        }
    }
    let read = declared.files.iter().map(|file| format!("cargo::rerun-if-changed={file}")).collect();
    Ok((text, read))
}

/// What the headers have otherwise, and what they lack though they should have it.
fn differences(request: &Request<'_>, expected: &Expected, values: &[u64]) -> Result<(), String> {
    let part = |name: &str| {
        let of = |part: &&Part| part.starts.iter().any(|start| name.starts_with(start));
        request.parts.iter().find(of).expect("the last part has all names")
    };
    let mut text = String::new();
    for name in &expected.absent {
        let Part { name: library, installed, committed, .. } = part(name);
        if installed.is_some_and(|installed| installed >= *committed) {
            writeln!(text, "  {name}\n    expected  as in {library} {committed}\n    found     nothing")
                .expect("a String");
        }
    }
    for (Fact { what, wanted, place, .. }, value) in expected.facts.iter().zip(values) {
        let (ours, theirs) = match wanted {
            Wanted::Any => continue,
            Wanted::Number(number) if number == value => continue,
            Wanted::Same { .. } if *value == 1 => continue,
            Wanted::Number(number) => (signed(*number), signed(*value)),
            Wanted::Same { ours, theirs } => (ours.clone(), theirs.clone()),
        };
        writeln!(text, "  {place}: {what}\n    expected  {ours}\n    found     {theirs}").expect("a String takes all");
    }
    if text.is_empty() {
        return Ok(());
    }
    let wanted = |part: &Part| part.installed.map(|installed| format!("{} {installed}", part.name));
    let installed: Vec<String> = request.parts.iter().filter_map(wanted).collect();
    Err(format!(
        "error: the bindings that come with gpucomm are not those of the installed headers ({}):\n{text}  \
         fix: --features gpucomm/bindgen, so that libclang reads the headers | {} for the CPU emulator\n",
        installed.join(", "),
        request.instead
    ))
}

/// Constants may be negative; no size is that large.
fn signed(number: u64) -> String {
    number.cast_signed().to_string()
}
