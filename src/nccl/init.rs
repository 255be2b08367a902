//! Starting communicators, with a deadline.
//!
//! Communicators are made blocking, because a non-blocking one takes ten times as long for each operation, and a blocking
//! one split from it 2 to 3 µs longer and twice the device memory. A blocking start cannot be stopped, so it runs on a
//! thread of its own: if a rank does not come in time, the caller gets its error, and the thread is left behind; should the
//! rank come after all, it aborts what it then has.

use std::ffi::c_int;
use std::ptr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};

use super::check::check;
use super::communicator::Communicator;
use super::config::{Config, InitOptions};
use super::detached;
use super::environment;
use super::inner::{Family, Handle, Inner};
use super::ledger::Ledger;
use super::unique_id::UniqueId;
use super::watchdog;
use crate::cuda::Device;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::{sys, version};

const FUNCTION: &str = "ncclCommInitRankConfig";

/// One rank; the others are made elsewhere.
pub(crate) fn one_rank(
    device: Device,
    size: usize,
    id: &UniqueId,
    rank: usize,
    options: &InitOptions,
) -> Result<Communicator> {
    const OPERATION: &str = "Communicator::init_rank";
    version::check_nccl()?;
    environment::check(OPERATION)?;
    if size == 0 || c_int::try_from(size).is_err() {
        return Err(Error::argument(OPERATION, "size", format!("1 to {} ranks", c_int::MAX), size));
    }
    if rank >= size {
        return Err(Error::argument(OPERATION, "rank", format!("a rank below {size}"), rank));
    }
    let deadline = Deadline::after(options.timeout);
    let start = Start::begin(device, size, *id, rank, options.config.clone())?;
    let inner = start.finish(OPERATION, &deadline, None, options)?;
    watchdog::watch(&inner)?;
    Ok(Communicator::from_inner(inner))
}

/// All ranks of a communicator within this process.
pub(crate) fn all_ranks(devices: &[Device], options: &InitOptions) -> Result<Vec<Communicator>> {
    const OPERATION: &str = "Clique::init_all";
    version::check_nccl()?;
    environment::check(OPERATION)?;
    if devices.is_empty() {
        return Err(Error::argument(OPERATION, "devices", "at least one device", "none"));
    }
    for (at, device) in devices.iter().enumerate() {
        if devices[..at].contains(device) {
            return Err(Error::argument(OPERATION, "devices", "each device once", format!("{device} twice")));
        }
    }
    let deadline = Deadline::after(options.timeout);
    let id = UniqueId::new()?;
    let size = devices.len();
    let family = Arc::new(Family { ledger: Ledger::new(size), members: OnceLock::new() });
    let starts = devices
        .iter()
        .enumerate()
        .map(|(rank, device)| Start::begin(*device, size, id, rank, options.config.clone()))
        .collect::<Result<Vec<_>>>()?;
    // Every start is waited for, so that a failure of one leaves no handle of another without an owner.
    let finished: Vec<_> =
        starts.into_iter().map(|start| start.finish(OPERATION, &deadline, Some(&family), options)).collect();
    let members = finished.into_iter().collect::<Result<Vec<_>>>()?;
    let weak = members.iter().map(Arc::downgrade).collect();
    family.members.set(weak).map_err(|_| Error::InvalidUsage {
        operation: OPERATION,
        reason: "the ranks belong to another clique already".into(),
    })?;
    for inner in &members {
        watchdog::watch(inner)?;
    }
    Ok(members.into_iter().map(Communicator::from_inner).collect())
}

/// A start that is under way on its own thread.
struct Start {
    receiver: Receiver<Result<Made>>,
    device: Device,
    size: usize,
    rank: usize,
}

/// A communicator that nobody has taken yet: aborted unless somebody does.
struct Made {
    handle: Option<Handle>,
    /// NCCL keeps pointers into it.
    config: Config,
}

impl Start {
    fn begin(device: Device, size: usize, id: UniqueId, rank: usize, config: Config) -> Result<Self> {
        let receiver = detached::start(FUNCTION, move || {
            let _current = device.set_current()?;
            let mut raw_config = config.to_raw();
            let mut handle = ptr::null_mut();
            // SAFETY: a place for the handle, and a configuration that was initialised and outlives the communicator.
            // The sizes fit: they were checked before.
            let result = unsafe {
                sys::ncclCommInitRankConfig(&mut handle, size as c_int, id.to_raw(), rank as c_int, &mut raw_config)
            };
            check(FUNCTION, result)?;
            Ok(Made { handle: Some(Handle(handle)), config })
        })?;
        Ok(Self { receiver, device, size, rank })
    }

    fn finish(
        self,
        operation: &'static str,
        deadline: &Deadline,
        family: Option<&Arc<Family>>,
        options: &InitOptions,
    ) -> Result<Arc<Inner>> {
        let Self { receiver, device, size, rank } = self;
        let mut made = match receiver.recv_timeout(deadline.remaining()) {
            Ok(made) => made?,
            Err(RecvTimeoutError::Timeout) => {
                return Err(deadline.error(operation, format!("rank {rank} waits for the other {} ranks", size - 1)));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::InvalidUsage { operation, reason: "its thread panicked".into() });
            }
        };
        let handle = made
            .handle
            .take()
            .ok_or_else(|| Error::InvalidUsage { operation, reason: "NCCL made no communicator".into() })?;
        let config = std::mem::take(&mut made.config);
        Ok(Inner::new(handle, rank, size, device, family.cloned(), options.timeout, config))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(Handle(raw)) = self.handle.take() {
            // SAFETY: the communicator was made in time or too late, and nobody else has its handle.
            let _ = unsafe { sys::ncclCommAbort(raw) };
        }
    }
}
