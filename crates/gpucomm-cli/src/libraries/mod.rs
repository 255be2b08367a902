//! The libraries of this program: what it was built for, what is running, and where that came from.

pub mod bugs;
pub mod loaded;
#[cfg(feature = "nvshmem")]
mod of_nvshmem;

use gpucomm::version::{Build, built_cuda, built_nccl, check_cuda, check_nccl};
#[cfg(feature = "nvshmem")]
use gpucomm::version::{built_nvshmem, check_nvshmem, running_nvshmem};

/// What is known of one library.
#[derive(Debug, Clone)]
pub struct Library {
    /// As it is written.
    pub name: &'static str,
    pub built: String,
    /// The version that is running, or why there is none.
    pub running: Result<String, String>,
    /// Why this program does not use the one that is running.
    pub refused: Option<String>,
    pub headers: Option<&'static str>,
    pub linked: Option<&'static str>,
    pub origin: Option<&'static str>,
    /// The file that the running one came from.
    pub loaded: Option<String>,
}

pub fn nccl() -> Library {
    let running = gpucomm::nccl::version().map(|version| version.to_string());
    library("NCCL", "libnccl.so", &built_nccl(), running, check_nccl())
}

pub fn cuda_runtime() -> Library {
    library("CUDA runtime", "libcudart.so", &built_cuda(), gpucomm::cuda::runtime_version().map(cuda), check_cuda())
}

#[cfg(feature = "nvshmem")]
pub fn nvshmem() -> Library {
    let running = running_nvshmem().map(|version| version.to_string());
    library("NVSHMEM", "libnvshmem_host.so", &built_nvshmem(), running, check_nvshmem())
}

#[cfg(feature = "nvshmem")]
pub use of_nvshmem::collectives;

fn library(
    name: &'static str,
    file: &str,
    built: &Build,
    running: gpucomm::Result<String>,
    usable: gpucomm::Result<()>,
) -> Library {
    Library {
        name,
        built: built.version.to_string(),
        running: running.map_err(|error| error.to_string()),
        refused: match usable {
            Err(error @ gpucomm::Error::LibraryTooOld { .. }) => Some(error.to_string()),
            _ => None,
        },
        headers: built.include_dir,
        linked: built.library,
        origin: built.origin,
        loaded: loaded::path(file),
    }
}

/// A version of CUDA from its code, such as 13000.
pub fn cuda(code: i32) -> String {
    format!("{}.{}", code / 1000, code % 1000 / 10)
}
