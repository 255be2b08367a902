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
    (2, 24, 0),
    (2, 25, 0),
    (2, 26, 0),
    (2, 27, 0),
    (2, 28, 0),
    (2, 28, 7),
    (2, 29, 0),
    (2, 30, 0),
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

/// Declares every cfg that may be emitted.
pub fn declared() -> Vec<String> {
    let versions = cfgs("nccl", NCCL, None).into_iter().chain(cfgs("cuda", CUDA, None));
    let names = ["gpucomm_emulator", "gpucomm_snapshot"].map(String::from).into_iter().chain(versions);
    names.map(|name| format!("cargo::rustc-check-cfg=cfg({name})")).collect()
}

/// The cfgs of a version: all that it reaches.
pub fn reached(cuda: Version, nccl: Option<Version>) -> Vec<String> {
    let nccl = nccl.map(|version| cfgs("nccl", NCCL, Some(version))).unwrap_or_default();
    let all = cfgs("cuda", CUDA, Some(cuda)).into_iter().chain(nccl);
    all.map(|name| format!("cargo::rustc-cfg={name}")).collect()
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
pub fn stage_library(found: &Found, stem: &str, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let real = found.file.canonicalize()?;
    for name in [format!("lib{stem}.so"), found.soname.clone()] {
        replace_link(&real, &directory.join(name))?;
    }
    Ok(())
}

/// Puts links to the headers of NCCL into `directory`: theirs may be that of another CUDA as well.
pub fn stage_headers(found: &Found, directory: &Path) -> io::Result<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory)?;
    for entry in std::fs::read_dir(&found.include)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("nccl") {
            replace_link(&entry.path().canonicalize()?, &directory.join(entry.file_name()))?;
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

/// The directives that link what was found, staged in `staged`.
pub fn directives(nccl: Option<&Found>, cuda: &Found, staged: &Path) -> Vec<String> {
    let mut lines = vec![format!("cargo::rustc-link-search=native={}", staged.display())];
    let mut paths: Vec<&Path> = Vec::new();
    // What uses a library comes before it.
    for (found, stem) in nccl.map(|found| (found, "nccl")).into_iter().chain([(cuda, "cudart")]) {
        if found.fixed {
            lines.push(format!("cargo::rustc-link-search=native={}", found.lib.display()));
            lines.push(format!("cargo::rustc-link-lib=static:-bundle={stem}_static"));
        } else {
            lines.push(format!("cargo::rustc-link-lib=dylib={stem}"));
            if !paths.contains(&found.lib.as_path()) {
                paths.push(&found.lib);
            }
        }
    }
    if cuda.fixed || nccl.is_some_and(|found| found.fixed) {
        let system: &[&str] = if nccl.is_some_and(|found| found.fixed) { &["stdc++"] } else { &[] };
        for name in system.iter().chain(&["dl", "rt", "pthread"]) {
            lines.push(format!("cargo::rustc-link-lib=dylib={name}"));
        }
    }
    if !paths.is_empty() {
        // RUNPATH, not RPATH: LD_LIBRARY_PATH goes before it.
        lines.push("cargo::rustc-link-arg=-Wl,--enable-new-dtags".into());
        lines.extend(paths.iter().map(|path| format!("cargo::rustc-link-arg=-Wl,-rpath,{}", path.display())));
        let flags: Vec<String> =
            paths.iter().map(|path| format!("-C link-arg=-Wl,-rpath,{}", path.display())).collect();
        lines.push(format!("cargo::metadata=RUSTFLAGS={}", flags.join(" ")));
        lines.push(format!(
            "gpucomm: programs of dependent packages, started without cargo, need RUSTFLAGS=\"{}\" or LD_LIBRARY_PATH",
            flags.join(" ")
        ));
    }
    lines
}

/// Metadata for dependent build scripts (`DEP_GPUCOMM_*`) and environment for `src/version.rs`.
pub fn report(nccl: Option<&Found>, cuda: &Found) -> Vec<String> {
    let all: Vec<&Found> = nccl.into_iter().chain([cuda]).collect();
    let join = |of: fn(&Found) -> PathBuf| {
        let mut paths: Vec<String> = all.iter().map(|found| of(found).display().to_string()).collect();
        paths.dedup();
        paths.join(":")
    };
    let root = |found: &Found| found.include.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut lines = vec![
        format!("cargo::metadata=ROOT={}", join(root)),
        format!("cargo::metadata=INCLUDE={}", join(|found| found.include.clone())),
        format!("cargo::metadata=LIB_DIR={}", join(|found| found.lib.clone())),
        format!("cargo::rustc-env=GPUCOMM_CUDA_INCLUDE_DIR={}", cuda.include.display()),
        format!("cargo::rustc-env=GPUCOMM_CUDA_LIBRARY={}", cuda.file.display()),
        format!("cargo::rustc-env=GPUCOMM_CUDA_ORIGIN={}", cuda.origin),
    ];
    if let Some(nccl) = nccl {
        lines.push(format!("cargo::rustc-env=GPUCOMM_NCCL_INCLUDE_DIR={}", nccl.include.display()));
        lines.push(format!("cargo::rustc-env=GPUCOMM_NCCL_LIBRARY={}", nccl.file.display()));
        lines.push(format!("cargo::rustc-env=GPUCOMM_NCCL_ORIGIN={}", nccl.origin));
    }
    lines
}

/// The versions that the program is built for, for both audiences.
pub fn versions(cuda: Version, nccl: Option<Version>, emulated: bool) -> Vec<String> {
    let cudart = cuda.0 * 1000 + cuda.1 * 10;
    let mut lines = vec![
        format!("cargo::metadata=EMULATED={}", u8::from(emulated)),
        format!("cargo::metadata=CUDART_VERSION={cudart}"),
        format!("cargo::rustc-env=GPUCOMM_BUILT_CUDART={cudart}"),
    ];
    if let Some(Version(major, minor, patch)) = nccl {
        let code = major * 10_000 + minor * 100 + patch;
        lines.push(format!("cargo::metadata=NCCL_VERSION={code}"));
        lines.push(format!("cargo::rustc-env=GPUCOMM_BUILT_NCCL={code}"));
    }
    lines
}
