//! What is looked for: the CUDA runtime, NCCL, NVSHMEM and PMIx, as data.

use std::path::Path;

use super::headers::{self, Version};

/// What is looked for.
#[derive(Debug)]
pub struct Library {
    /// Its name for people.
    pub name: &'static str,
    /// The `X` of `X_INCLUDE_DIR`, `X_LIB_DIR` and `X_STATIC`.
    pub key: &'static str,
    /// Variables that name the root of an installation; the first one that is set counts.
    pub homes: &'static [&'static str],
    /// Variables that name the root of something else, below which it may lie as well.
    pub within: &'static [&'static str],
    /// The header that states the version.
    pub header: &'static str,
    /// Reads the version from the header's text.
    pub version: fn(&str) -> Option<Version>,
    /// The oldest version that will do.
    pub minimum: Version,
    /// `nccl` of `libnccl.so`.
    pub stem: &'static str,
    /// `libX.so.N` for the version of the headers.
    pub soname: fn(Version) -> String,
    /// Whether the numbers in the name of its file are those of the headers.
    pub numbered: bool,
    /// Whether it comes as an archive too.
    pub archive: bool,
    /// The major version of CUDA that it is for, where packages of it for several lie side by side: the N of
    /// `include/nvshmem_N`.
    pub for_cuda: Option<u32>,
    /// Names for pkg-config, best first.
    pub packages: fn() -> Vec<String>,
    /// Below `NVHPC_ROOT`.
    pub hpc_sdk: &'static [&'static str],
    /// Below `site-packages/nvidia`.
    pub wheels: &'static [&'static str],
    /// Prefixes of distributions; `{multiarch}` stands for Debian's name of the target.
    pub prefixes: &'static [&'static str],
    /// The command that installs it.
    pub install: &'static str,
}

impl Library {
    /// The version that our own declarations in vendor/include are of; `root` is that of this package.
    pub fn declared(&self, root: &Path) -> Result<Version, String> {
        let path = root.join("vendor/include").join(self.header);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("error: {}: {error}", path.display()))?;
        (self.version)(&text).ok_or(format!("error: {} does not say its version", path.display()))
    }
}

/// The CUDA runtime.
pub const CUDA: Library = Library {
    name: "CUDA runtime",
    key: "CUDA",
    homes: &["CUDA_PATH", "CUDA_HOME", "CUDA_TOOLKIT_PATH"],
    within: &[],
    header: "cuda_runtime_api.h",
    version: headers::cudart,
    minimum: Version(12, 0, 0),
    stem: "cudart",
    soname: |version| format!("libcudart.so.{}", version.0),
    numbered: true,
    archive: true,
    for_cuda: None,
    packages: || {
        let versions = (0..=5).rev().map(|minor| (13, minor)).chain((0..=9).rev().map(|minor| (12, minor)));
        std::iter::once("cudart".to_string())
            .chain(versions.map(|(major, minor)| format!("cudart-{major}.{minor}")))
            .collect()
    },
    hpc_sdk: &["cuda"],
    wheels: &["cu13", "cuda_runtime"],
    prefixes: &["usr/local/cuda", "opt/cuda", "usr"],
    install: "apt install cuda-cudart-dev-13-0 cuda-crt-13-0",
};

/// NCCL.
pub const NCCL: Library = Library {
    name: "NCCL",
    key: "NCCL",
    homes: &["NCCL_HOME", "NCCL_ROOT"],
    within: CUDA.homes,
    header: "nccl.h",
    version: headers::nccl,
    minimum: Version(2, 19, 0),
    stem: "nccl",
    soname: |version| format!("libnccl.so.{}", version.0),
    numbered: true,
    archive: true,
    for_cuda: None,
    packages: || vec!["nccl".to_string()],
    hpc_sdk: &["comm_libs/nccl"],
    wheels: &["nccl"],
    prefixes: &["usr", "usr/local", "usr/local/cuda", "usr/local/nccl"],
    install: "apt install libnccl-dev",
};

/// NVSHMEM's library for the host. `for_cuda` is to be set when that is known.
pub const NVSHMEM: Library = Library {
    name: "NVSHMEM",
    key: "NVSHMEM",
    homes: &["NVSHMEM_HOME", "NVSHMEM_DIR", "NVSHMEM_PREFIX"],
    within: CUDA.homes,
    header: "non_abi/nvshmem_version.h",
    version: headers::nvshmem,
    minimum: Version(3, 2, 0),
    stem: "nvshmem_host",
    soname: |version| format!("libnvshmem_host.so.{}", version.0),
    numbered: true,
    archive: false,
    for_cuda: None,
    packages: Vec::new,
    hpc_sdk: &["comm_libs/nvshmem"],
    wheels: &["nvshmem"],
    prefixes: &["usr", "usr/local", "usr/local/nvshmem"],
    install: "apt install libnvshmem3-dev-cuda-13",
};

/// PMIx's library for clients: the same name since PMIx 2, whatever the version.
pub const PMIX: Library = Library {
    name: "PMIx",
    key: "PMIX",
    homes: &["PMIX_HOME", "PMIX_ROOT"],
    within: &[],
    header: "pmix_version.h",
    version: headers::pmix,
    minimum: Version(3, 1, 0),
    stem: "pmix",
    soname: |_| "libpmix.so.2".to_string(),
    numbered: false,
    archive: false,
    for_cuda: None,
    packages: || vec!["pmix".to_string()],
    hpc_sdk: &[],
    wheels: &[],
    prefixes: &["usr/lib/{multiarch}/pmix2", "usr", "usr/local", "opt/pmix"],
    install: "apt install libpmix-dev",
};
