//! The committed bindings are what bindgen makes of vendor/include, and vendor/include agrees with NVIDIA's headers.
//!
//! Both run the build script, which writes bindings when it is given arguments. Without libclang, or where the build
//! script is gone (an archive of tests on another machine), they say that they were skipped; `GPUCOMM_TEST_STRICT=1`
//! makes that a failure. `GPUCOMM_TEST_SDK` names the prefixes of real headers, separated by colons.

#[path = "support/skip.rs"]
mod skip;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One of the snapshots.
struct Part {
    /// The word for it, as the build script takes it.
    name: &'static str,
    file: &'static str,
    committed: &'static str,
    /// A header that real installations have.
    header: &'static str,
    /// Constants that state the version.
    versions: &'static [&'static str],
    /// Words in the names of what changes with the version.
    follow: &'static [&'static str],
}

const PARTS: &[Part] = &[
    Part {
        name: "nccl",
        file: "cuda_nccl.rs",
        committed: concat!(
            include_str!("../crates/gpucomm-abi/src/cuda_nccl.rs"),
            include_str!("../crates/gpucomm-abi/src/cuda_nccl_functions.rs")
        ),
        header: "nccl.h",
        versions: &["NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH", "NCCL_VERSION_CODE", "CUDART_VERSION", "CUDA_VERSION"],
        // A location is a number in older versions of CUDA, and a union without a name in newer ones.
        follow: &[
            "ncclConfig",
            "ncclCollConfig",
            "ncclEncryptionConfig",
            "ncclWindow_",
            "Num",
            "MaxRedOp",
            "CUmemLocation",
            "CUmemAllocationProp",
            "CUmemAccessDesc",
        ],
    },
    Part {
        name: "nvshmem",
        file: "nvshmem.rs",
        committed: concat!(
            include_str!("../crates/gpucomm-abi/src/nvshmem.rs"),
            include_str!("../crates/gpucomm-abi/src/nvshmem_functions.rs")
        ),
        header: "non_abi/nvshmem_version.h",
        versions: &["NVSHMEM_VENDOR_MAJOR_VERSION", "NVSHMEM_VENDOR_MINOR_VERSION", "NVSHMEM_VENDOR_PATCH_VERSION"],
        follow: &["nvshmemx_init_args", "nvshmemx_init_attr", "nvshmem_team_config"],
    },
];

/// Bindings of `part` over `includes`; `None` where they cannot be made here.
fn bindings(name: &str, part: &Part, includes: &[PathBuf]) -> Option<String> {
    let script = Path::new(env!("GPUCOMM_BUILD_SCRIPT"));
    if !script.exists() {
        return skip(&format!("{} is not on this machine", script.display()));
    }
    let output = std::env::temp_dir().join(format!("gpucomm-bindings-{}-{name}-{}.rs", std::process::id(), part.name));
    let run = Command::new(script).arg(&output).arg(part.name).args(includes).output().expect("the build script runs");
    let text = String::from_utf8_lossy(&run.stderr);
    if !run.status.success() {
        assert!(text.contains("libclang is missing"), "{text}");
        return skip("libclang is missing");
    }
    let bindings = std::fs::read_to_string(&output).expect("the build script wrote its output");
    std::fs::remove_file(&output).expect("the output can be removed");
    Some(bindings)
}

fn skip(reason: &str) -> Option<String> {
    skip::skip("the bindings were not compared", reason);
    None
}

fn vendor() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vendor/include")
}

/// Words, literals and punctuation, without spaces, comments, and the commas that formatting adds.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut rest = code.as_str();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => rest[1..].find('"').expect("a string ends") + 2,
            '_' | 'a'..='z' | 'A'..='Z' | '0'..='9' => {
                rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len())
            }
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        if matches!(first, ')' | ']' | '}' | '>') && tokens.last().is_some_and(|last| last == ",") {
            tokens.pop();
        }
        if !first.is_whitespace() {
            tokens.push(rest[..length].to_string());
        }
        rest = &rest[length..];
    }
    tokens
}

/// Items by name: those in `extern` and `impl` blocks one by one. Names of parameters are left out.
fn items(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    split(&tokens(text), "", &mut found);
    found
}

fn split(tokens: &[String], within: &str, found: &mut BTreeMap<String, String>) {
    let (mut start, mut depth) = (0, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        let next = tokens.get(at + 1).map(String::as_str);
        if depth == 0 && (token == ";" || token == "}" && next != Some(";")) {
            item(&tokens[start..=at], within, found);
            start = at + 1;
        }
    }
    assert_eq!(start, tokens.len(), "the text ends within an item: {:?}", &tokens[start..]);
}

fn item(tokens: &[String], within: &str, found: &mut BTreeMap<String, String>) {
    let after = |word: &str| tokens.iter().position(|token| token == word).map(|at| tokens[at + 1].clone());
    let body = tokens.iter().position(|token| token == "{");
    if let (Some(open), true) = (body, tokens.contains(&"extern".into()) && !tokens.contains(&"type".into())) {
        return split(&tokens[open + 1..tokens.len() - 1], within, found);
    }
    if let (Some(open), Some(name)) = (body, after("impl")) {
        return split(&tokens[open + 1..tokens.len() - 1], &format!("{name}::"), found);
    }
    let literal = tokens.iter().find(|token| token.starts_with('"')).cloned();
    let name = after("fn").filter(|_| !tokens.contains(&"type".into()));
    let name = name
        .or(after("type"))
        .or(after("as").filter(|_| tokens.contains(&"use".into())))
        .or(after("struct"))
        .or(after("union"))
        .or(after("const").filter(|name| name != "_"));
    let key = name.map(|name| format!("{within}{name}")).or(literal).expect("an item has a name");
    let previous = found.insert(key.clone(), unnamed(tokens).join(" "));
    assert!(previous.is_none(), "{key} twice");
}

/// Without the names of parameters.
fn unnamed(tokens: &[String]) -> Vec<&str> {
    let (mut kept, mut parens, mut at) = (Vec::new(), 0, 0);
    while at < tokens.len() {
        match tokens[at].as_str() {
            "(" => parens += 1,
            ")" => parens -= 1,
            _ => {}
        }
        let opens = at > 0 && matches!(tokens[at - 1].as_str(), "(" | ",");
        if parens > 0 && opens && tokens.get(at + 1).is_some_and(|token| token == ":") {
            at += 2;
            continue;
        }
        kept.push(tokens[at].as_str());
        at += 1;
    }
    kept
}

#[test]
fn committed_snapshot_is_current() {
    for part in PARTS {
        let Some(made) = bindings("vendor", part, &[vendor()]) else { return };
        if tokens(&made) == tokens(part.committed) {
            continue;
        }
        let (made, committed) = (items(&made), items(part.committed));
        let differing: Vec<_> =
            made.keys().chain(committed.keys()).filter(|key| made.get(*key) != committed.get(*key)).collect();
        panic!(
            "crates/gpucomm-abi/src/{} is out of date (GPUCOMM_WRITE_SNAPSHOT=1 cargo check --features emulator): {differing:?}",
            part.file
        );
    }
}

#[test]
fn vendor_agrees_with_installed_headers() {
    let Some(prefixes) = std::env::var_os("GPUCOMM_TEST_SDK") else {
        skip("GPUCOMM_TEST_SDK is unset");
        return;
    };
    let includes: Vec<PathBuf> = std::env::split_paths(&prefixes).map(|prefix| prefix.join("include")).collect();
    for part in PARTS {
        if !includes.iter().any(|include| include.join(part.header).is_file()) {
            skip(&format!("GPUCOMM_TEST_SDK names no {}", part.header));
            continue;
        }
        let Some(real) = bindings("real", part, &includes) else { return };
        let (ours, real) = (items(part.committed), items(&real));
        let wrong = differences(part, &ours, &real);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(ours.keys().filter(|name| real.contains_key(*name)).count() > 150, "too few items to mean anything");
    }
}

/// Items of ours that the installed headers have differently, or not.
fn differences(part: &Part, ours: &BTreeMap<String, String>, real: &BTreeMap<String, String>) -> Vec<String> {
    // Against other versions, what exists in both must agree, except what states or follows the version.
    let exact = part.versions.iter().all(|name| ours.get(*name) == real.get(*name));
    let follows = |name: &str| part.versions.contains(&name) || part.follow.iter().any(|word| name.contains(word));
    let mut wrong = Vec::new();
    for (name, mine) in ours {
        match real.get(name) {
            Some(theirs) if mine == theirs => {}
            Some(_) | None if !exact && (follows(name) || !real.contains_key(name)) => {}
            Some(theirs) => wrong.push(format!("{name}:\n  vendor    {mine}\n  installed {theirs}")),
            None => wrong.push(format!("{name} is not in the installed headers")),
        }
    }
    wrong
}

#[test]
fn a_wrong_declaration_is_seen() {
    for part in PARTS {
        let real = items(part.committed);
        let function = real.iter().find(|(_, item)| item.starts_with("pub fn") && item.contains("c_int"));
        let (name, item) = function.expect("a function with an int");
        let mut ours = real.clone();
        ours.insert(name.clone(), item.replacen("c_int", "c_long", 1));
        ours.insert("no_such_function".into(), "pub fn no_such_function ( ) ;".into());
        assert_eq!(differences(part, &real, &real), Vec::<String>::new());
        assert_eq!(differences(part, &ours, &real).len(), 2, "{name}");
    }
}

#[test]
fn items_are_told_apart() {
    let text = "pub type A = ::x::B;\n#[repr(C)]\npub struct S { pub a: u8, pub b: [u8; 3usize], }\nimpl S { pub const X: S = S(1); pub const Y: S = S(2,); }\nunsafe extern \"C\" { pub fn f(a: A, b: *mut S) -> A; #[must_use] pub fn g(); }\nconst _: () = { [\"Size of S\"][1 - 1usize]; };";
    let found = items(text);
    let keys: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(keys, ["\"Size of S\"", "A", "S", "S::X", "S::Y", "f", "g"]);
    assert_eq!(found["f"], "pub fn f ( A , * mut S ) -> A ;".replace("->", "- >"));
    assert_ne!(items("pub fn f(a: u8);"), items("pub fn f(a: u16);"));
    assert_eq!(items("pub fn f(a: u8);"), items("pub fn f(\n    b: u8,\n);"));
}
