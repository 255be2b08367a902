//! Assertions for the C compiler, one for each fact, and what it says to them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c_type::{Tags, pointer, spell};
use crate::items::{Item, Value};

/// What the compiler takes the headers for. C has no way to tell an enum from its integer; C++ has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    C,
    Cxx,
}

impl Language {
    fn compiler(self) -> Command {
        let (variable, default, arguments): (_, _, &[&str]) = match self {
            Self::C => ("CC", "cc", &["-xc", "-std=gnu11"]),
            // cuda_runtime.h, which nccl.h includes, adds templates of the same names; this is its guard.
            Self::Cxx => ("CXX", "c++", &["-xc++", "-std=gnu++17", "-D__CUDA_RUNTIME_H__"]),
        };
        let name = std::env::var(variable).ok().filter(|name| !name.is_empty()).unwrap_or(default.into());
        let mut command = Command::new(name);
        command.args(arguments).arg("-fno-diagnostics-color");
        command
    }
}

/// Headers as the bindings saw them.
#[derive(Debug, Clone)]
pub struct Headers {
    /// The one that includes the others.
    pub wrapper: PathBuf,
    pub includes: Vec<PathBuf>,
    /// `NAME=VALUE`.
    pub defines: Vec<String>,
}

/// Compares each item with what the compiler makes of the headers. The error names every item that differs.
pub fn compare(items: &[Item], headers: &Headers, language: Language) -> Result<usize, String> {
    // The first is what cuda_runtime.h, which C++ does without, would have included.
    let start = format!("#include <cuda_runtime_api.h>\n#include \"{}\"\n{PROLOGUE}", headers.wrapper.display());
    let preprocessed = compile(&start, headers, language, &["-E", "-P"])?;
    let named = |item: &Item| match item {
        Item::Record { name, .. } | Item::Enum { name, .. } => Some(name.clone()),
        _ => None,
    };
    let tags = Tags::read(&preprocessed, &items.iter().filter_map(named).collect());
    let (mut text, mut count) = (start, 0);
    for (name, of) in items.iter().flat_map(|item| unnamed(item, &tags)) {
        writeln!(text, "typedef __typeof__({of}) {name};").expect("a String takes all");
    }
    for item in items {
        for (what, condition) in conditions(item, language, &tags)? {
            writeln!(text, "ASSERT({condition}, \"{what}\");").expect("a String takes all");
            count += 1;
        }
    }
    compile(&text, headers, language, &["-fsyntax-only"]).map(|_| count)
}

/// The types of fields that have no name in C: the one that bindgen has made up, and the field.
fn unnamed(item: &Item, tags: &Tags) -> Vec<(String, String)> {
    let Item::Record { name, fields, .. } = item else { return Vec::new() };
    let made_up = |of: &syn::Type| match of {
        syn::Type::Path(of) => of.path.get_ident().map(ToString::to_string).filter(|of| of.contains("__bindgen_ty_")),
        _ => None,
    };
    let c = tags.spelled(name);
    let place = |field: &str| format!("(({c} *)0)->{}", in_c(field));
    fields.iter().filter_map(|(field, of)| Some((made_up(of)?, place(field)))).collect()
}

/// What has to hold, each with a name for people.
fn conditions(item: &Item, language: Language, tags: &Tags) -> Result<Vec<(String, String)>, String> {
    let context = |name: &str| {
        let name = name.to_string();
        move |error: String| format!("{name}: {error}")
    };
    let same = |what: String, c: String, ours: String| (what, format!("SAME({c}, {ours})"));
    Ok(match item {
        Item::Function { name, signature, .. } => {
            let ours = pointer(signature, tags).map_err(context(name))?;
            vec![same(format!("signature of {name}"), format!("__typeof__(&{name})"), ours)]
        }
        Item::Variable { name, of, .. } => {
            let ours = spell(of, tags).map_err(context(name))?;
            vec![same(format!("type of {name}"), format!("__typeof__({name})"), ours)]
        }
        Item::Record { name, fields, .. } => {
            let c = tags.spelled(name);
            let mut all = Vec::new();
            for (field, of) in fields {
                let ours = spell(of, tags).map_err(context(name))?;
                let theirs = format!("__typeof__((({c} *)0)->{})", in_c(field));
                all.push(same(format!("type of {name}.{field}"), theirs, ours));
            }
            all
        }
        Item::Enum { name, integer } => {
            let (c, integer) = (tags.spelled(name), spell(integer, tags).map_err(context(name))?);
            let what = format!("integer type of {name}");
            vec![match language {
                Language::C => same(what, c, integer),
                Language::Cxx => same(what, format!("std::underlying_type<{c}>::type"), integer),
            }]
        }
        Item::Alias { name, of } => {
            vec![same(format!("type {name}"), name.clone(), spell(of, tags).map_err(context(name))?)]
        }
        Item::Constant { name, value: Value::Number(number) } => {
            let condition = match u64::try_from(*number) {
                Ok(number) => format!("(unsigned long long)({name}) == {number}ULL && ({name}) >= 0"),
                Err(_) => format!("(long long)({name}) == {number}LL && ({name}) < 0"),
            };
            vec![(format!("value of {name}"), condition)]
        }
        Item::Constant { name, value: Value::Text(bytes) } => {
            let mut literal = String::new();
            for byte in bytes.strip_suffix(&[0]).unwrap_or(bytes) {
                write!(literal, "\\{byte:03o}").expect("a String takes all");
            }
            let condition =
                format!("sizeof({name}) == {} && __builtin_strcmp({name}, \"{literal}\") == 0", bytes.len());
            vec![(format!("value of {name}"), condition)]
        }
        Item::Size { name, bytes } => {
            vec![(format!("size of {name}"), format!("sizeof({}) == {bytes}", tags.spelled(name)))]
        }
        Item::Align { name, bytes } => {
            vec![(format!("alignment of {name}"), format!("ALIGNOF({}) == {bytes}", tags.spelled(name)))]
        }
        Item::Offset { name, field, bytes } => {
            let condition = format!("offsetof({}, {}) == {bytes}", tags.spelled(name), in_c(field));
            vec![(format!("offset of {name}.{field}"), condition)]
        }
    })
}

/// The name of a field that is a keyword of Rust.
fn in_c(field: &str) -> &str {
    match field.strip_suffix('_') {
        Some(word) if ["type", "ref", "fn", "mod", "in", "move", "match", "use"].contains(&word) => word,
        _ => field,
    }
}

const PROLOGUE: &str = "\
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#if defined(__cplusplus)
#include <type_traits>
template <typename T> struct Plain { typedef T type; };
template <typename R, typename... A> struct Plain<R (*)(A...) noexcept> { typedef R (*type)(A...); };
#define SAME(a, b) std::is_same<typename Plain<a>::type, b>::value
#define ALIGNOF(...) alignof(__VA_ARGS__)
#define ASSERT(condition, name) static_assert(condition, name)
#else
#define SAME(a, b) __builtin_types_compatible_p(a, b)
#define ALIGNOF(...) _Alignof(__VA_ARGS__)
#define ASSERT(condition, name) _Static_assert(condition, name)
#endif
";

/// Runs the compiler over `text`. Its error is the names of the assertions that failed, or all that it said.
fn compile(text: &str, headers: &Headers, language: Language, mode: &[&str]) -> Result<String, String> {
    let directory = std::env::temp_dir();
    let file = directory.join(format!("gpucomm-abi-{}-{}.c", std::process::id(), next()));
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut command = language.compiler();
    command.args(mode).args(headers.defines.iter().map(|define| format!("-D{define}")));
    for include in &headers.includes {
        command.arg("-isystem").arg(include);
    }
    let run = command.arg(&file).output().map_err(|error| format!("{command:?}: {error}"));
    let said = run.map(|run| (run.status.success(), run));
    let _ = std::fs::remove_file(&file);
    let (success, run) = said?;
    if success {
        return Ok(String::from_utf8_lossy(&run.stdout).into_owned());
    }
    Err(told(&String::from_utf8_lossy(&run.stderr)))
}

/// The compiler's errors, short where they are ours.
fn told(stderr: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in stderr.lines() {
        let Some((_, error)) = line.split_once("error: ") else { continue };
        let ours =
            ["static assertion failed: ", "static_assert failed "].iter().find_map(|start| error.strip_prefix(start));
        lines.push(match ours {
            Some(name) => format!("differs: {}", name.trim_matches(|c| c == '"' || c == ' ')),
            None => error.to_string(),
        });
    }
    if lines.is_empty() { stderr.to_string() } else { lines.join("\n") }
}

fn next() -> usize {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Whether a compiler for the language is on this machine.
pub fn available(language: Language) -> bool {
    language.compiler().arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Whether the compiler takes a text.
pub fn accepts(text: &str, headers: &Headers, language: Language) -> Result<(), String> {
    compile(text, headers, language, &["-fsyntax-only"]).map(drop)
}

/// Compiles `source` as C with all warnings as errors.
pub fn without_warnings(source: &Path, headers: &Headers) -> Result<(), String> {
    let text = format!("#include \"{}\"\n", source.display());
    let mode = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    compile(&text, headers, Language::C, &mode).map(|_| ())
}
