//! This machine.

use std::collections::BTreeMap;

use gpucomm::{Backend, backend};

use super::files::System;
use super::interfaces;
use super::machine::Machine;
use super::settings::Settings;
use crate::{gpus, libraries};

/// Looks at all of it.
pub fn look() -> Machine<'static> {
    let text = |name: std::ffi::OsString| name.to_string_lossy().into_owned();
    let environment: BTreeMap<_, _> = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let mut of_program = vec![libraries::nccl()];
    #[cfg(feature = "nvshmem")]
    of_program.push(libraries::nvshmem());
    of_program.push(libraries::cuda_runtime());
    Machine {
        is_this: true,
        files: &System,
        settings: Settings::read(environment, &System),
        interfaces: interfaces::all(),
        is_emulated: backend() == Backend::Emulator,
        driver: gpucomm::cuda::driver_version().map_err(|error| error.to_string()),
        runtime: gpucomm::cuda::runtime_version().map_err(|error| error.to_string()),
        gpus: gpus::all().map_err(|error| error.to_string()),
        libraries: of_program,
        bugs: libraries::bugs::here(),
    }
}
