//! Finds, binds and links the libraries, or chooses the emulator. The work is done by the pure functions under `build/`.
//!
//! With arguments it only writes bindings: `OUTPUT nccl|cuda INCLUDE...` (see tests/snapshot.rs).

#[path = "build/bind.rs"]
mod bind;
#[path = "build/elf.rs"]
mod elf;
#[path = "build/find.rs"]
mod find;
#[path = "build/headers.rs"]
mod headers;
#[path = "build/layout.rs"]
mod layout;
#[path = "build/library.rs"]
mod library;
#[path = "build/link.rs"]
mod link;
#[path = "build/place.rs"]
mod place;
#[path = "build/tools.rs"]
mod tools;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What cargo is to be told. It is printed at the end: when a build script fails, cargo shows all that it printed.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn tell(line: impl Into<String>) {
    LINES.lock().expect("one thread").push(line.into());
}

fn tell_all(lines: Vec<String>) {
    lines.into_iter().for_each(tell);
}

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let result = if arguments.is_empty() { build() } else { write_bindings(&arguments) };
    if let Err(text) = result {
        eprintln!("{}", text.trim_end());
        std::process::exit(1);
    }
    LINES.lock().expect("one thread").iter().for_each(|line| println!("{line}"));
}

/// A variable of the environment; cargo runs this again when it changes.
fn variable(name: &str) -> Option<String> {
    tell(format!("cargo::rerun-if-env-changed={name}"));
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A variable that cargo sets.
fn cargo(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn build() -> Result<(), String> {
    let root = PathBuf::from(cargo("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(cargo("OUT_DIR"));
    for path in ["build.rs", "build", "wrapper.h", "vendor"] {
        tell(format!("cargo::rerun-if-changed={path}"));
    }
    tell_all(link::declared());
    let this = std::env::current_exe().map_err(|error| format!("error: this build script is nowhere: {error}"))?;
    tell(format!("cargo::rustc-env=GPUCOMM_BUILD_SCRIPT={}", this.display()));

    if variable("GPUCOMM_WRITE_SNAPSHOT").is_some() {
        write_bindings(&[root.join("src/sys/snapshot.rs"), "nccl".into(), root.join("vendor/include")])?;
    }
    let wanted = std::env::var_os("CARGO_FEATURE_EMULATOR").is_some();
    let emulated = wanted && variable("GPUCOMM_NO_EMULATOR").as_deref() != Some("1");
    let nccl = std::env::var_os("CARGO_FEATURE_NCCL").is_some();
    if emulated || variable("DOCS_RS").is_some() {
        tell(format!("cargo::rustc-cfg={}", if emulated { "gpucomm_emulator" } else { "gpucomm_snapshot" }));
        snapshot(&root, nccl, emulated)
    } else {
        libraries(&root, &out, nccl)
    }
}

/// No headers, no libclang, no linking: the versions are those of our own declarations.
fn snapshot(root: &Path, nccl: bool, emulated: bool) -> Result<(), String> {
    let read = |library: &library::Library| {
        let path = root.join("vendor/include").join(library.header);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("error: {}: {error}", path.display()))?;
        (library.version)(&text).ok_or(format!("error: {} does not say its version", path.display()))
    };
    let cuda = read(&library::CUDA)?;
    let nccl = if nccl { Some(read(&library::NCCL)?) } else { None };
    tell_all(link::reached(cuda, nccl));
    tell_all(link::versions(cuda, nccl, emulated));
    Ok(())
}

/// Finds, binds and links what is installed.
fn libraries(root: &Path, out: &Path, with_nccl: bool) -> Result<(), String> {
    if cargo("CARGO_CFG_TARGET_OS") != "linux" {
        return Err("error: NCCL exists for Linux only; use --features emulator for the CPU emulator".into());
    }
    let (target, host) = (cargo("TARGET"), cargo("HOST"));
    let search = find::Search {
        env: &variable,
        package: &tools::pkg_config,
        root: Path::new("/"),
        target: &target,
        host: &host,
    };
    let cuda = find::find(&library::CUDA, &search);
    let nccl = if with_nccl { find::find(&library::NCCL, &search).map(Some) } else { Ok(None) };
    let (cuda, nccl) = match (cuda, nccl) {
        (Ok(cuda), Ok(nccl)) => (cuda, nccl),
        (Err(one), Err(other)) => return Err(format!("{one}{other}")),
        (Err(one), _) | (_, Err(one)) => return Err(one.to_string()),
    };
    let nccl = nccl.as_ref();
    for warning in nccl.into_iter().chain([&cuda]).flat_map(|found| &found.warnings) {
        tell(format!("cargo::warning={warning}"));
    }

    let staged = |error: std::io::Error| format!("error: {}: {error}", out.display());
    let (lib, include) = (out.join("lib"), out.join("include"));
    if lib.exists() {
        std::fs::remove_dir_all(&lib).map_err(staged)?;
    }
    let mut includes = vec![root.join("vendor/shim")];
    if let Some(nccl) = nccl {
        link::stage_headers(nccl, &include).map_err(staged)?;
        includes.push(include);
    }
    includes.push(cuda.include.clone());
    includes.extend(cuda.companions.iter().cloned());
    for (found, stem) in nccl.map(|found| (found, "nccl")).into_iter().chain([(&cuda, "cudart")]) {
        tell(format!("cargo::rerun-if-changed={}", found.file.display()));
        if !found.fixed {
            link::stage_library(found, stem, &lib).map_err(staged)?;
        }
    }

    let request = bind::Request { wrapper: root.join("wrapper.h"), includes: includes.clone(), nccl: with_nccl };
    let (bindings, read) = bind::generate(&request)?;
    std::fs::write(out.join("bindings.rs"), bindings).map_err(staged)?;
    tell_all(read);
    tools::shim(root, &includes, nccl, &cuda)?;
    tell(format!("cargo::rustc-link-search=native={}", out.display()));
    tell("cargo::rustc-link-lib=static=gpucomm_shim");
    for name in tools::VARIABLES {
        variable(name);
        variable(&format!("{name}_{target}"));
        variable(&format!("{name}_{}", target.replace('-', "_")));
    }

    let nccl_version = nccl.map(|found| found.version);
    tell_all(link::reached(cuda.version, nccl_version));
    tell_all(link::versions(cuda.version, nccl_version, false));
    tell_all(link::directives(nccl, &cuda, &lib));
    tell_all(link::report(nccl, &cuda));
    Ok(())
}

/// `OUTPUT nccl|cuda INCLUDE...`
fn write_bindings(arguments: &[PathBuf]) -> Result<(), String> {
    let [output, which, includes @ ..] = arguments else { return Err("error: OUTPUT nccl|cuda INCLUDE...".into()) };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = vec![root.join("vendor/shim")];
    all.extend(includes.iter().cloned());
    let nccl = which == Path::new("nccl");
    let request = bind::Request { wrapper: root.join("wrapper.h"), includes: all, nccl };
    let text = format!(
        "// Generated from wrapper.h over vendor/include by build/bind.rs. Do not edit: see CONTRIBUTING.md.\n\n{}",
        bind::generate(&request)?.0
    );
    std::fs::write(output, text).map_err(|error| format!("error: {}: {error}", output.display()))
}
