//! `gpucomm info`: what this program was built with, what is running, and what it can do here.

mod bugs;
mod capabilities;
mod devices;
mod probe;
mod ranks;
mod text;

use std::fmt::Display;

use gpucomm::{Backend, Error, backend};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::gpus;
use crate::libraries::{self, Library, cuda};
use crate::options::InfoArgs;
use crate::output;

/// Prints everything. Only a closed standard output is a failure: without a GPU, that is what the answer says.
///
/// Of several ranks that a launcher has started rank 0 prints, who all are included.
pub fn run(options: &InfoArgs) -> Result<()> {
    // What is installed can be said wherever this was started, and whoever does not come.
    let ranks = match ranks::describe() {
        Ok(Some((1.., _))) => return Ok(()),
        Ok(ranks) => ranks.map(|(_, ranks)| ranks),
        Err(failure) => Some(failure.one_line().into()),
    };
    let gpus = gpus::all();
    let no_gpu = if let Err(Error::NoDevice { reason, .. }) = &gpus { Some(reason) } else { None };
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
        "ranks": ranks,
        "devices": devices::describe(&gpus),
        "no_gpu": no_gpu,
        "capabilities": capabilities::describe(),
        "known_bugs": bugs::describe(),
        "probe": options.probe.then(probe::run),
    });
    if options.json {
        return output::line(&format!("{info:#}"));
    }
    for line in text::lines(&info, options.verbose) {
        output::line(&line)?;
    }
    Ok(())
}

fn libraries() -> Value {
    let mut libraries = json!({ "nccl": library(&libraries::nccl()) });
    #[cfg(feature = "nvshmem")]
    {
        libraries["nvshmem"] = library(&libraries::nvshmem());
        libraries["nvshmem"]["collectives"] = libraries::collectives().into();
    }
    libraries["cuda_runtime"] = library(&libraries::cuda_runtime());
    libraries
}

fn library(library: &Library) -> Value {
    json!({
        "refused": library.refused,
        "built_for": library.built,
        "running": answer(library.running.clone()),
        "headers": library.headers,
        "library": library.linked,
        "loaded": library.loaded,
        "found_by": library.origin,
    })
}

/// The answer, or why there is none.
fn answer<E: Display>(result: Result<String, E>) -> Value {
    result.unwrap_or_else(|error| format!("unknown: {error}")).into()
}
