//! Steps that fail because the program has asked for that.

use crate::memory::fault::Fault;
use crate::refusals::Step;
use crate::settings::settings;
use crate::sys::cudaError;

/// Fails where the program has asked for that.
pub(crate) fn refuse(step: Step) -> Result<(), Fault> {
    match settings().multicast.code(step) {
        Some(code) => Err(Fault { cuda: cudaError(code), text: "as GPUCOMM_EMULATOR_MULTICAST asks for".into() }),
        None => Ok(()),
    }
}
