//! Finds, binds and links the libraries, or chooses the emulator. The work is done by the pure functions under `build/`.
//!
//! With the feature `bindgen`, bindgen makes the bindings from the installed headers. Without it, the C compiler, and for NVSHMEM
//! the C++ compiler, compares the committed bindings with the headers.

#[cfg(feature = "bindgen")]
#[path = "build/bind.rs"]
mod bind;
#[cfg(feature = "bindgen")]
#[path = "build/made.rs"]
mod bindings;
#[cfg(not(feature = "bindgen"))]
#[path = "build/held.rs"]
mod bindings;
#[cfg(not(feature = "bindgen"))]
#[path = "build/committed/mod.rs"]
mod committed;
#[path = "build/elf.rs"]
mod elf;
#[path = "build/emulator.rs"]
mod emulator;
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
#[cfg(feature = "bindgen")]
#[path = "build/nvshmem.rs"]
mod nvshmem;
#[path = "build/place.rs"]
mod place;
#[cfg(feature = "bindgen")]
#[path = "build/quiet.rs"]
mod quiet;
#[path = "build/tools.rs"]
mod tools;
#[path = "build/wanted.rs"]
mod wanted;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use find::Found;
use library::Library;

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
    let result = if arguments.is_empty() { build() } else { bindings::write(&arguments, instead()) };
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

/// A variable that is 1, or 0 or unset.
fn flag(name: &str) -> Result<bool, String> {
    match variable(name).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(value) => Err(format!("error: {name}={value}: expected 0 or 1")),
    }
}

/// How to do without the libraries.
fn instead() -> &'static str {
    emulator::how(variable(emulator::REFUSED).is_some_and(|value| value == "1"))
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

    if flag("GPUCOMM_WRITE_SNAPSHOT")? {
        for (name, part) in [("cuda_nccl", "nccl"), ("nvshmem", "nvshmem")] {
            write_snapshot(&root, &out, name, part)?;
        }
    }
    let feature = |name: &str| std::env::var_os(format!("CARGO_FEATURE_{name}")).is_some();
    let emulated = feature("EMULATOR") && !flag(emulator::REFUSED)?;
    let with = With { nccl: feature("NCCL"), nvshmem: feature("NVSHMEM"), pmix: feature("PMIX") };
    let documented = variable("DOCS_RS").is_some();
    if emulated || documented {
        tell(format!("cargo::rustc-cfg={}", if emulated { "gpucomm_emulator" } else { "gpucomm_snapshot" }));
        snapshot(&root, with, emulated)?;
        if !emulated {
            write(&out, "bindings.rs", gpucomm_abi::text::CUDA_NCCL)?;
            write(&out, "bindings_nvshmem.rs", gpucomm_abi::text::NVSHMEM)?;
            write(&out, "multicast.rs", gpucomm_abi::text::MULTICAST)?;
        }
        // The emulator has no PMIx.
        if with.pmix && !documented { pmix_alone(&root, &out) } else { Ok(()) }
    } else {
        libraries(&root, &out, with)
    }
}

/// Writes a part of gpucomm-abi: the types into `NAME.rs`, and the functions, which bindgen puts last, into `NAME_functions.rs`.
fn write_snapshot(root: &Path, out: &Path, name: &str, part: &str) -> Result<(), String> {
    let whole = out.join("snapshot.rs");
    bindings::write(&[whole.clone(), part.into(), root.join("vendor/include")], instead())?;
    let text = std::fs::read_to_string(&whole).map_err(|error| format!("error: {}: {error}", whole.display()))?;
    let functions = text.find("unsafe extern \"C\" {").ok_or("error: bindgen has made no functions")?;
    let head = text.find("\n\n").map_or("", |end| &text[..end + 2]);
    let committed = root.join("crates/gpucomm-abi/src");
    write(&committed, &format!("{name}.rs"), &text[..functions])?;
    write(&committed, &format!("{name}_functions.rs"), &format!("{head}{}", &text[functions..]))
}

/// What is wanted beside the CUDA runtime.
#[derive(Clone, Copy)]
struct With {
    nccl: bool,
    nvshmem: bool,
    pmix: bool,
}

/// No headers, no libclang, no linking: the versions are those of our own declarations.
fn snapshot(root: &Path, with: With, emulated: bool) -> Result<(), String> {
    let cuda = library::CUDA.declared(root)?;
    let nccl = with.nccl.then(|| library::NCCL.declared(root)).transpose()?;
    let nvshmem = with.nvshmem.then(|| library::NVSHMEM.declared(root)).transpose()?;
    tell_all(link::reached(cuda, nccl, nvshmem));
    tell_all(link::versions(cuda, nccl, nvshmem, emulated));
    Ok(())
}

/// Writes a source.
fn write(out: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = out.join(name);
    std::fs::write(&path, text).map_err(|error| format!("error: {}: {error}", path.display()))
}

/// Finds, binds and links what is installed.
fn libraries(root: &Path, out: &Path, with: With) -> Result<(), String> {
    if cargo("CARGO_CFG_TARGET_OS") != "linux" {
        return Err(format!("error: NCCL exists for Linux only; for the CPU emulator {}", instead()));
    }
    let Installed { cuda, nccl, nvshmem, pmix } = find_all(with)?;
    // What uses a library comes before it.
    let all: Vec<&Found> = nccl.iter().chain(&nvshmem).chain([&cuda]).collect();
    let linked: Vec<&Found> = all.iter().copied().chain(&pmix).collect();

    let staged = |error: std::io::Error| format!("error: {}: {error}", out.display());
    let lib = stage(&linked, out)?;
    let mut includes = Vec::new();
    for found in nccl.iter().chain(&nvshmem) {
        let include = out.join("include").join(found.stem);
        link::stage_headers(found, &include).map_err(staged)?;
        includes.push(include);
    }
    includes.push(cuda.include.clone());
    includes.extend(cuda.companions.iter().cloned());

    // The user has the headers where they were found, not the links to them.
    let original = |error: String| {
        nccl.iter().chain(&nvshmem).fold(error, |error, found| {
            let link = out.join("include").join(found.stem);
            error.replace(&link.display().to_string(), &found.include.display().to_string())
        })
    };
    let wanted = wanted::Wanted { root, out, includes: &includes, all: &all, instead: instead() };
    tell_all(bindings::bind(&wanted).map_err(original)?);
    write(out, "multicast.rs", gpucomm_abi::text::MULTICAST)?;
    tools::shim(root, &includes, &all)?;
    shim("gpucomm_shim", out);
    if let Some(pmix) = &pmix {
        tools::shim_of_pmix(root, pmix)?;
        shim("gpucomm_pmix", out);
    }

    let upto = |library: &Library, found: &Found| -> Result<_, String> {
        Ok(bindings::upto(found.version, library.declared(root)?))
    };
    let of = |library: &Library, found: &Option<Found>| found.as_ref().map(|found| upto(library, found)).transpose();
    let (for_nccl, for_nvshmem) = (of(&library::NCCL, &nccl)?, of(&library::NVSHMEM, &nvshmem)?);
    tell_all(link::reached(upto(&library::CUDA, &cuda)?, for_nccl, for_nvshmem));
    let (nccl, nvshmem) = (nccl.as_ref().map(|found| found.version), nvshmem.as_ref().map(|found| found.version));
    tell_all(link::versions(cuda.version, nccl, nvshmem, false));
    tell_all(link::directives(&linked, &lib));
    tell_all(link::report(&linked));
    Ok(())
}

/// PMIx beside the emulator: found and linked.
fn pmix_alone(root: &Path, out: &Path) -> Result<(), String> {
    let pmix = find(&library::PMIX).map_err(|failure| failure.to_string())?;
    let lib = stage(&[&pmix], out)?;
    tools::shim_of_pmix(root, &pmix)?;
    shim("gpucomm_pmix", out);
    tell_all(link::directives(&[&pmix], &lib));
    tell_all(link::report(&[&pmix]));
    Ok(())
}

/// Puts links to libraries into a directory of `out`, and says what the user should know of them.
fn stage(all: &[&Found], out: &Path) -> Result<PathBuf, String> {
    for warning in all.iter().flat_map(|found| &found.warnings) {
        tell(format!("cargo::warning={warning}"));
    }
    let staged = |error: std::io::Error| format!("error: {}: {error}", out.display());
    let lib = out.join("lib");
    if lib.exists() {
        std::fs::remove_dir_all(&lib).map_err(staged)?;
    }
    for found in all {
        tell(format!("cargo::rerun-if-changed={}", found.file.display()));
        if !found.fixed {
            link::stage_library(found, &lib).map_err(staged)?;
        }
    }
    Ok(lib)
}

/// What cargo is told of C that was compiled into `out`.
fn shim(name: &str, out: &Path) {
    tell(format!("cargo::rustc-link-search=native={}", out.display()));
    tell(format!("cargo::rustc-link-lib=static={name}"));
    let target = cargo("TARGET");
    for name in tools::VARIABLES {
        variable(name);
        variable(&format!("{name}_{target}"));
        variable(&format!("{name}_{}", target.replace('-', "_")));
    }
}

/// Finds a library on this machine.
fn find(library: &Library) -> Result<Found, find::Failure> {
    let (target, host) = (cargo("TARGET"), cargo("HOST"));
    let package = &tools::pkg_config;
    find::find(library, &find::Search { env: &variable, package, root: Path::new("/"), target: &target, host: &host })
}

/// What was found of what is wanted.
struct Installed {
    cuda: Found,
    nccl: Option<Found>,
    nvshmem: Option<Found>,
    pmix: Option<Found>,
}

/// The CUDA runtime, and what is wanted beside it; or all that failed.
fn find_all(with: With) -> Result<Installed, String> {
    let mut failures = String::new();
    let mut found = |library: &Library| match find(library) {
        Ok(found) => Some(found),
        Err(failure) => {
            failures += &failure.to_string();
            None
        }
    };
    let cuda = found(&library::CUDA);
    let nccl = if with.nccl { found(&library::NCCL) } else { None };
    let for_cuda = cuda.as_ref().map(|cuda| cuda.version.0);
    let nvshmem = if with.nvshmem { found(&Library { for_cuda, ..library::NVSHMEM }) } else { None };
    let pmix = if with.pmix { found(&library::PMIX) } else { None };
    match cuda {
        Some(cuda) if failures.is_empty() => Ok(Installed { cuda, nccl, nvshmem, pmix }),
        _ => Err(failures),
    }
}
