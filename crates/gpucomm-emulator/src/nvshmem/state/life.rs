//! The one PE of this process, from its start to its end.

use std::sync::Arc;

use super::boot::Boot;
use super::pe::Pe;
use crate::cuda::core::device;
use crate::lock::Mutex;
use crate::nvshmem::basics::{Outcome, wrong};
use crate::nvshmem::launch::Job;
use crate::sys::*;

/// How far this process has come.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// How often it has started, less how often it has finalized.
    pub(crate) users: i32,
    pub(crate) boot: Option<Arc<Boot>>,
    pub(crate) pe: Option<Arc<Pe>>,
    /// That of the launcher by which this has started. It stays when NVSHMEM ends, and is what later starts have.
    pub(crate) job: Option<Job>,
    /// How often the PEs of that job have met.
    pub(crate) starts: u32,
}

static LIFE: Mutex<Life> = Mutex::new(Life { users: 0, boot: None, pe: None, job: None, starts: 0 });

/// Does something with it.
pub(crate) fn with<R>(work: impl FnOnce(&mut Life) -> R) -> R {
    work(&mut LIFE.lock())
}

/// What `nvshmemx_init_status` says.
pub(crate) fn status() -> i32 {
    with(|life| match (&life.boot, &life.pe) {
        (None, _) if life.job.is_some() => NVSHMEM_STATUS_IS_BOOTSTRAPPED,
        (None, _) => NVSHMEM_STATUS_NOT_INITIALIZED,
        (Some(_), None) => NVSHMEM_STATUS_IS_BOOTSTRAPPED,
        (Some(_), Some(pe)) => pe.status,
    })
}

/// Who takes part, with or without a device.
pub(crate) fn boot() -> Option<Arc<Boot>> {
    with(|life| life.boot.clone())
}

/// The PE of this process.
pub(crate) fn pe() -> Outcome<Arc<Pe>> {
    with(|life| life.pe.clone()).ok_or_else(|| wrong("NVSHMEM is not started, or has finalized: it ends the process"))
}

/// The same; starts it where that had to wait for a device.
pub(crate) fn pe_or_start() -> Outcome<Arc<Pe>> {
    match with(|life| (life.boot.clone(), life.pe.clone())) {
        (_, Some(known)) => Ok(known),
        (None, None) => pe(),
        (Some(boot), None) => {
            start(&boot)?;
            pe()
        }
    }
}

/// Starts the PE on the current device, if the thread has chosen one.
pub(crate) fn start(boot: &Arc<Boot>) -> Outcome {
    let current = device::current().ok().filter(|device| device.is_used());
    let Some(current) = current else {
        return Err(wrong("no device is chosen, and NVSHMEM cannot start: it ends the process"));
    };
    let pe = Pe::start(boot, current.ordinal)?;
    with(|life| life.pe = Some(pe));
    Ok(())
}
