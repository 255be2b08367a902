//! What cargo is told: cfgs, search paths, libraries, metadata.

use std::io;
use std::path::{Path, PathBuf};

use super::find::Found;
use super::headers::Version;

/// Versions of NCCL that a cfg of their own begins with: `nccl_ge_2_20` and so on; with a patch where that brought something.
const NCCL: &[(u32, u32, u32)] = &[
    (2, 20, 0),
    (2, 21, 0),
    (2, 22, 0),
    (2, 23, 0),
    (2, 23, 4),
    (2, 24, 0),
    (2, 25, 0),
    (2, 26, 0),
    (2, 27, 0),
    (2, 28, 0),
    (2, 28, 7),
    (2, 29, 0),
    (2, 29, 7),
    (2, 30, 0),
    (2, 30, 4),
    (2, 30, 7),
    (2, 31, 0),
    (2, 32, 0),
];

/// The same for CUDA: `cuda_ge_12_1` and so on.
const CUDA: &[(u32, u32, u32)] = &[
    (12, 1, 0),
    (12, 2, 0),
    (12, 3, 0),
    (12, 4, 0),
    (12, 5, 0),
    (12, 6, 0),
    (12, 8, 0),
    (12, 9, 0),
    (13, 0, 0),
    (13, 1, 0),
    (13, 2, 0),
    (13, 3, 0),
    (13, 4, 0),
    (13, 5, 0),
];

/// The same for NVSHMEM: `nvshmem_ge_3_3` and so on.
const NVSHMEM: &[(u32, u32, u32)] = &[(3, 3, 0), (3, 4, 0), (3, 5, 0), (3, 6, 0), (3, 7, 0), (3, 8, 0)];

/// Declares every cfg that may be emitted.
pub fn declared() -> Vec<String> {
    let all = [("nccl", NCCL), ("cuda", CUDA), ("nvshmem", NVSHMEM)];
    let versions = all.into_iter().flat_map(|(name, versions)| cfgs(name, versions, None));
    let names = ["gpucomm_emulator", "gpucomm_snapshot"].map(String::from).into_iter().chain(versions);
    names.map(|name| format!("cargo::rustc-check-cfg=cfg({name})")).collect()
}

/// The cfgs of versions: all that they reach.
pub fn reached(cuda: Version, nccl: Option<Version>, nvshmem: Option<Version>) -> Vec<String> {
    let all = [("cuda", CUDA, Some(cuda)), ("nccl", NCCL, nccl), ("nvshmem", NVSHMEM, nvshmem)];
    let names = all.into_iter().filter(|(.., upto)| upto.is_some());
    let names = names.flat_map(|(name, versions, upto)| cfgs(name, versions, upto));
    names.map(|name| format!("cargo::rustc-cfg={name}")).collect()
}

fn cfgs(name: &str, versions: &[(u32, u32, u32)], upto: Option<Version>) -> Vec<String> {
    let reached = |version: &&(u32, u32, u32)| upto.is_none_or(|upto| **version <= (upto.0, upto.1, upto.2));
    let text = |&(major, minor, patch): &(u32, u32, u32)| match patch {
        0 => format!("{name}_ge_{major}_{minor}"),
        _ => format!("{name}_ge_{major}_{minor}_{patch}"),
    };
    versions.iter().filter(reached).map(text).collect()
}

/// Puts links to a shared library into `directory`, under the name that the linker wants and the one that the loader wants.
///
/// Installations may hold only the latter. cargo lets programs that it starts search directories within `OUT_DIR`, so
/// that those of dependent packages start too. And no other library of the directory of the original can be picked up.
/// NVSHMEM looks for its plug-ins beside itself, so they come along.
pub fn stage_library(found: &Found, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let real = found.file.canonicalize()?;
    for name in [format!("lib{}.so", found.stem), found.soname.clone()] {
        replace_link(&real, &directory.join(name))?;
    }
    if found.key == "NVSHMEM" {
        // The library may be a link itself, of which its plug-ins know nothing.
        let beside = real.parent().unwrap_or(&found.lib);
        let entries = std::fs::read_dir(beside)?.chain(std::fs::read_dir(&found.lib)?);
        for entry in entries {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name().to_string_lossy().into_owned()))?;
            if name.starts_with("nvshmem_") && name.contains(".so") {
                replace_link(&path.canonicalize()?, &directory.join(name))?;
            }
        }
    }
    Ok(())
}

/// Directories of headers of NVSHMEM.
const NVSHMEM_HEADERS: &[&str] =
    &["bootstrap_device_host", "device", "device_host", "device_host_transport", "gpunetio", "host", "non_abi"];

/// Puts links to the headers of NCCL or NVSHMEM into `directory`: with theirs may lie those of another CUDA as well.
pub fn stage_headers(found: &Found, directory: &Path) -> io::Result<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory)?;
    for entry in std::fs::read_dir(&found.include)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let below = found.key == "NVSHMEM" && NVSHMEM_HEADERS.contains(&name.as_str());
        if below || name.starts_with(&found.key.to_lowercase()) {
            replace_link(&entry.path().canonicalize()?, &directory.join(name))?;
        }
    }
    Ok(())
}

fn replace_link(to: &Path, at: &Path) -> io::Result<()> {
    match std::fs::remove_file(at) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => std::os::unix::fs::symlink(to, at),
    }
}

/// The directives that link what was found, staged in `staged`. What uses a library comes before it: CUDA is the last.
pub fn directives(all: &[&Found], staged: &Path) -> Vec<String> {
    let mut lines = vec![format!("cargo::rustc-link-search=native={}", staged.display())];
    let mut paths: Vec<&Path> = Vec::new();
    for found in all {
        if found.fixed {
            lines.push(format!("cargo::rustc-link-search=native={}", found.lib.display()));
            lines.push(format!("cargo::rustc-link-lib=static:-bundle={}_static", found.stem));
        } else {
            lines.push(format!("cargo::rustc-link-lib=dylib={}", found.stem));
            if !paths.contains(&found.lib.as_path()) {
                paths.push(&found.lib);
            }
        }
    }
    if all.iter().any(|found| found.fixed) {
        let nccl = all.iter().any(|found| found.fixed && found.key == "NCCL");
        for name in nccl.then_some("stdc++").into_iter().chain(["dl", "rt", "pthread"]) {
            lines.push(format!("cargo::rustc-link-lib=dylib={name}"));
        }
    }
    if !paths.is_empty() {
        // RUNPATH, not RPATH: LD_LIBRARY_PATH goes before it.
        lines.push("cargo::rustc-link-arg=-Wl,--enable-new-dtags".into());
        let arguments: Vec<String> =
            paths.iter().map(|path| format!("link-arg=-Wl,-rpath,{}", path.display())).collect();
        lines.extend(arguments.iter().map(|argument| format!("cargo::rustc-{argument}")));
        let flags = |between: &str, separator: &str| {
            let all = arguments.iter().map(|argument| format!("-C{between}{argument}"));
            all.collect::<Vec<String>>().join(separator)
        };
        lines.push(format!("cargo::metadata=RUSTFLAGS={}", flags(" ", " ")));
        // cargo splits RUSTFLAGS at spaces, without a way to quote them.
        let spaces = paths.iter().any(|path| path.to_string_lossy().contains(char::is_whitespace));
        let setting = match spaces {
            true => format!("CARGO_ENCODED_RUSTFLAGS=$'{}'", flags("", "\\x1f").replace('\'', "\\'")),
            false => format!("RUSTFLAGS=\"{}\"", flags(" ", " ")),
        };
        lines.push(format!(
            "gpucomm: programs of dependent packages, started without cargo, need {setting} or LD_LIBRARY_PATH"
        ));
    }
    lines
}

/// Metadata for dependent build scripts (`DEP_GPUCOMM_*`) and environment for `src/version.rs`.
pub fn report(all: &[&Found]) -> Vec<String> {
    let joined = |those: &[&Found], of: fn(&Found) -> PathBuf| {
        let mut paths: Vec<String> = those.iter().map(|found| of(found).display().to_string()).collect();
        paths.dedup();
        paths.join(":")
    };
    let join = |of| joined(all, of);
    let root = |found: &Found| found.include.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut lines = vec![
        format!("cargo::metadata=ROOT={}", join(root)),
        format!("cargo::metadata=INCLUDE={}", join(|found| found.include.clone())),
        format!("cargo::metadata=LIB_DIR={}", join(|found| found.lib.clone())),
    ];
    let shared: Vec<&Found> = all.iter().copied().filter(|found| !found.fixed).collect();
    if !shared.is_empty() {
        lines.push(format!("cargo::metadata=RUN_PATH={}", joined(&shared, |found| found.lib.clone())));
    }
    for Found { key, include, file, origin, .. } in all {
        lines.push(format!("cargo::rustc-env=GPUCOMM_{key}_INCLUDE_DIR={}", include.display()));
        lines.push(format!("cargo::rustc-env=GPUCOMM_{key}_LIBRARY={}", file.display()));
        lines.push(format!("cargo::rustc-env=GPUCOMM_{key}_ORIGIN={origin}"));
    }
    lines
}

/// The versions that the program is built for, for both audiences.
pub fn versions(cuda: Version, nccl: Option<Version>, nvshmem: Option<Version>, emulated: bool) -> Vec<String> {
    let cudart = cuda.0 * 1000 + cuda.1 * 10;
    let mut lines = vec![
        format!("cargo::metadata=EMULATED={}", u8::from(emulated)),
        format!("cargo::metadata=CUDART_VERSION={cudart}"),
        format!("cargo::rustc-env=GPUCOMM_BUILT_CUDART={cudart}"),
    ];
    for (key, version) in [("NCCL", nccl), ("NVSHMEM", nvshmem)] {
        let Some(Version(major, minor, patch)) = version else { continue };
        let code = major * 10_000 + minor * 100 + patch;
        lines.push(format!("cargo::metadata={key}_VERSION={code}"));
        lines.push(format!("cargo::rustc-env=GPUCOMM_BUILT_{key}={code}"));
    }
    lines
}
