//! Where installations put headers and libraries.

use std::path::{Path, PathBuf};

use super::library::Library;

/// The directories of one installation: the header lies in one of `includes`, the library in one of `libs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Directories that may hold the header, best first.
    pub includes: Vec<PathBuf>,
    /// Directories that may hold the library, best first.
    pub libs: Vec<PathBuf>,
    /// More directories that the header may need, where they exist.
    pub companions: Vec<PathBuf>,
}

impl Layout {
    /// Exactly these two directories.
    pub fn pair(include: PathBuf, lib: PathBuf) -> Self {
        Self { includes: vec![include], libs: vec![lib], companions: Vec::new() }
    }

    /// Everything that an installation under `prefix` may use. Stub directories are never among it.
    pub fn prefix(prefix: &Path, target: &str) -> Self {
        let mut includes = vec![prefix.join("include")];
        let mut libs: Vec<PathBuf> = ["lib64", "lib"].iter().map(|name| prefix.join(name)).collect();
        libs.extend(multiarch(target).map(|name| prefix.join("lib").join(name)));
        for name in toolkit_targets(target) {
            includes.push(prefix.join("targets").join(name).join("include"));
            libs.push(prefix.join("targets").join(name).join("lib"));
        }
        // The wheels for CUDA 12 spread the toolkit over sibling directories; crt/ is not with the runtime.
        let split = prefix.file_name().is_some_and(|name| name == "cuda_runtime");
        let companions = if split { vec![prefix.with_file_name("cuda_nvcc").join("include")] } else { Vec::new() };
        Self { includes, libs, companions }
    }

    /// The same, with the directories of packages that are for one major version of CUDA first.
    pub fn of(library: &Library, prefix: &Path, target: &str) -> Self {
        let mut layout = Self::prefix(prefix, target);
        if let Some(major) = library.for_cuda {
            let name = library.key.to_lowercase();
            let below = |lib: &str| prefix.join(lib).join(&name).join(major.to_string());
            layout.includes.insert(0, prefix.join(format!("include/{name}_{major}")));
            let multiarch = multiarch(target).map(|name| below(&format!("lib/{name}")));
            layout.libs.splice(0..0, multiarch.into_iter().chain([below("lib64")]));
        }
        layout
    }
}

/// Debian's name for the directory of a target's libraries.
pub fn multiarch(target: &str) -> Option<&'static str> {
    match arch(target) {
        "x86_64" => Some("x86_64-linux-gnu"),
        "aarch64" => Some("aarch64-linux-gnu"),
        "powerpc64le" => Some("powerpc64le-linux-gnu"),
        _ => None,
    }
}

/// NVIDIA's names for a target under `targets/` of a toolkit: servers first, then embedded.
pub fn toolkit_targets(target: &str) -> &'static [&'static str] {
    match arch(target) {
        "x86_64" => &["x86_64-linux"],
        "aarch64" => &["sbsa-linux", "aarch64-linux"],
        "powerpc64le" => &["ppc64le-linux"],
        _ => &[],
    }
}

/// The first word of a triple.
pub fn arch(target: &str) -> &str {
    target.split('-').next().unwrap_or_default()
}

/// `site-packages/nvidia` of the Pythons of a virtual environment.
pub fn wheels(environment: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"] {
        let Ok(entries) = std::fs::read_dir(environment.join(lib)) else { continue };
        for entry in entries.flatten() {
            let nvidia = entry.path().join("site-packages/nvidia");
            if entry.file_name().to_string_lossy().starts_with("python") && nvidia.is_dir() {
                found.push(nvidia);
            }
        }
    }
    found.sort();
    found
}
