//! The calls by which NCCL starts ranks, and what comes of them as long as nobody has taken it.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use super::abort::start_abort;
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::nccl::raw::check::check;
use crate::nccl::raw::handle::Handle;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::state::household::Household;
use crate::nccl::state::inner::Inner;
use crate::sys;

const FUNCTION: &str = "ncclCommInitRankConfig";

/// The error where NCCL says that all is well, and there is no communicator.
#[cold]
pub(crate) fn nothing(operation: &'static str) -> Error {
    Error::InvalidUsage { operation, reason: "NCCL made no communicator".into() }
}

/// Wraps `ncclCommInitRankConfig`, where there are several ids `ncclCommInitRankScalable`, and into one that grows `ncclCommGrow`.
///
/// # Safety
/// As those: a place for the handle, and a configuration that was initialised.
unsafe fn start_one(
    handle: &mut sys::ncclComm_t,
    (ids, grows): (&[UniqueId], bool),
    (size, rank): (c_int, c_int),
    config: &mut sys::ncclConfig_t,
) -> sys::ncclResult_t {
    match ids {
        #[cfg(nccl_ge_2_29)]
        [id] if grows => {
            let id = id.to_raw();
            // SAFETY: the caller upholds the contract; NCCL copies the id within the call.
            unsafe { sys::ncclCommGrow(ptr::null_mut(), size, &raw const id, rank, handle, config) }
        }
        #[cfg(not(nccl_ge_2_29))]
        _ if grows => sys::ncclResult_t::ncclInvalidUsage,
        // SAFETY: the caller upholds the contract.
        [id] => unsafe { sys::ncclCommInitRankConfig(handle, size, id.to_raw(), rank, config) },
        #[cfg(nccl_ge_2_23_4)]
        several => {
            let mut raw: Vec<_> = several.iter().map(|id| id.to_raw()).collect();
            // SAFETY: the caller upholds the contract; there are at most as many ids as ranks, whose number fits, and NCCL copies them.
            unsafe { sys::ncclCommInitRankScalable(handle, size, rank, raw.len() as c_int, raw.as_mut_ptr(), config) }
        }
        #[cfg(not(nccl_ge_2_23_4))]
        _ => sys::ncclResult_t::ncclInvalidUsage,
    }
}

/// Ranks that are being started, and their communicators as long as nobody has taken them: aborted then.
pub(super) struct Made {
    ranks: Vec<(usize, Device)>,
    /// Null where NCCL has made none.
    handles: Vec<Handle>,
    household: Arc<Household<Inner>>,
    /// Whether they come into a communicator that grows.
    grows: bool,
}

impl Made {
    pub(super) fn new(ranks: Vec<(usize, Device)>, household: Arc<Household<Inner>>, grows: bool) -> Self {
        Self { ranks, handles: Vec::new(), household, grows }
    }

    /// Starts the ranks, on a thread that may stay here for ever.
    pub(super) fn start(mut self, ids: &[UniqueId], size: usize, config: &Config) -> Result<Self> {
        let mut raw_config = config.to_raw();
        let grows = self.grows;
        let function = if grows { "ncclCommGrow" } else { FUNCTION };
        for (rank, device) in &self.ranks {
            // A rank that is missing for want of its device would leave the others waiting.
            drop(device.set_current().map_err(|error| error.of_rank(*rank))?);
        }
        self.handles = vec![Handle(ptr::null_mut()); self.ranks.len()];
        // SAFETY: ended below, whatever happens in between: nothing there panics or returns.
        let mut result = check("ncclGroupStart", unsafe { sys::ncclGroupStart() });
        if result.is_ok() {
            for ((rank, device), Handle(handle)) in self.ranks.iter().zip(&mut self.handles) {
                let current = device.set_current();
                // SAFETY: a place for the handle, and a configuration that was initialised; what it points to lives as long
                // as the household. The sizes fit: they were checked before.
                let code = unsafe { start_one(handle, (ids, grows), (size as c_int, *rank as c_int), &mut raw_config) };
                let started = current.and(check(function, code)).map_err(|error| error.of_rank(*rank));
                result = result.and(started);
            }
            // SAFETY: this thread has opened the group above. After an error NCCL starts none.
            let ended = check(function, unsafe { sys::ncclGroupEnd() });
            result = result.and(ended.map_err(|error| match self.ranks.as_slice() {
                [(rank, _)] => error.of_rank(*rank),
                // Of which of them NCCL does not say.
                all => error.noted(format_args!("of one of {} ranks that start together", all.len())),
            }));
        }
        if result.is_ok() && self.handles.iter().any(|handle| handle.raw().is_null()) {
            result = Err(nothing(function));
        }
        result.map(|()| self)
    }

    /// The communicators, which the caller ends from now on.
    pub(super) fn take(mut self) -> (Vec<Handle>, Vec<(usize, Device)>) {
        (std::mem::take(&mut self.handles), std::mem::take(&mut self.ranks))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let handles = std::mem::take(&mut self.handles);
        if let (Some((rank, _)), false) = (self.ranks.first(), handles.is_empty()) {
            // Ranks of this process that have started with it, or are about to, would wait for it until their deadlines.
            let reason = format!("the start of rank {rank} was given up, or has failed");
            let cause = Error::Aborted { operation: "drop", reason };
            start_abort(&self.household.fail(&cause), &cause);
        }
        for handle in handles.into_iter().filter(|handle| !handle.raw().is_null()) {
            // SAFETY: the start has returned, well or not, in time or too late: NCCL gives the handle before it starts, and
            // leaves it to be aborted. Nobody else has it.
            let _ = unsafe { sys::ncclCommAbort(handle.raw()) };
        }
        self.ranks.iter().for_each(|_| self.household.withdraw());
    }
}

#[cfg(all(test, gpucomm_emulator))]
mod tests {
    use super::*;
    use crate::nccl::state::inner::HOUSEHOLDS;

    /// A size that no other test has.
    const SIZE: usize = 13;

    /// All ranks on one device: NCCL refuses that when they have met, and leaves their communicators.
    fn start(household: &Arc<Household<Inner>>) -> Result<Made> {
        let device = Device::new(0)?;
        let ranks = (0..SIZE).map(|rank| (rank, device)).collect();
        Made::new(ranks, Arc::clone(household), false).start(&[UniqueId::new()?], SIZE, &Config::default())
    }

    #[test]
    fn a_failed_start_leaves_nothing() {
        let household = HOUSEHOLDS.join(&UniqueId::from_bytes([7; 128]), SIZE, false);
        let Err(error) = start(&household) else { panic!("ranks that share a device") };
        assert!(matches!(error, Error::Nccl { .. }), "{error:?}");
        assert_eq!(gpucomm_emulator::communicators_alive(SIZE), 0);
        assert!(household.is_empty());
    }
}
