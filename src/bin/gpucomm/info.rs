//! `gpucomm info`: what this program was built with, what is running, and what it can do here.

mod bugs;
mod capabilities;
mod devices;
mod loaded;
mod probe;
mod text;

use gpucomm::version::{Build, built_cuda, built_nccl, check_cuda, check_nccl};
#[cfg(feature = "nvshmem")]
use gpucomm::version::{built_nvshmem, check_nvshmem, running_nvshmem};
use gpucomm::{Backend, backend};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::options::InfoArgs;
use crate::output;

/// Prints everything. Only a closed standard output is a failure: without a GPU, that is what the answer says.
pub fn run(options: &InfoArgs) -> Result<()> {
    let devices = devices::describe();
    let info = json!({
        "program": concat!("gpucomm ", env!("CARGO_PKG_VERSION")),
        "backend": match backend() {
            Backend::Emulator => "emulator",
            _ => "nvidia",
        },
        "libraries": libraries(),
        "driver": answer(gpucomm::cuda::driver_version().map(|code| match code {
            0 => "none".to_owned(),
            code => cuda(code),
        })),
        "devices": devices,
        "capabilities": capabilities::describe(),
        "known_bugs": bugs::describe(),
        "probe": options.probe.then(probe::run),
    });
    if options.json {
        return output::line(&format!("{info:#}"));
    }
    for line in text::lines(&info) {
        output::line(&line)?;
    }
    Ok(())
}

fn libraries() -> Value {
    let nccl = gpucomm::nccl::version().map(|version| version.to_string());
    let mut libraries = json!({ "nccl": library("libnccl.so", &built_nccl(), nccl, check_nccl()) });
    #[cfg(feature = "nvshmem")]
    {
        let nvshmem = running_nvshmem().map(|version| version.to_string());
        libraries["nvshmem"] = library("libnvshmem_host.so", &built_nvshmem(), nvshmem, check_nvshmem());
    }
    let runtime = gpucomm::cuda::runtime_version().map(cuda);
    libraries["cuda_runtime"] = library("libcudart.so", &built_cuda(), runtime, check_cuda());
    libraries
}

fn library(file: &str, built: &Build, running: gpucomm::Result<String>, usable: gpucomm::Result<()>) -> Value {
    let refused = match usable {
        Err(error @ gpucomm::Error::LibraryTooOld { .. }) => Some(error.to_string()),
        _ => None,
    };
    json!({
        "refused": refused,
        "built_for": built.version.to_string(),
        "running": answer(running),
        "headers": built.include_dir,
        "library": built.library,
        "loaded": loaded::path(file),
        "found_by": built.origin,
    })
}

/// The answer, or why there is none.
fn answer(result: gpucomm::Result<String>) -> Value {
    result.unwrap_or_else(|error| format!("unknown: {error}")).into()
}

/// A version of CUDA from its code, such as 13000.
fn cuda(code: i32) -> String {
    format!("{}.{}", code / 1000, code % 1000 / 10)
}
