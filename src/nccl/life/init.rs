//! Starting communicators, with a deadline.
//!
//! Communicators are made blocking, because a non-blocking one takes ten times as long for each operation, and a blocking
//! one split from it 2 to 3 µs longer and twice the device memory. A blocking start cannot be stopped, so it runs on the
//! communicator's own thread: if a rank does not come in time, the caller gets its error, and the thread is left behind;
//! should the rank come after all, it aborts what it then has. The ranks of a clique start as one group of NCCL, which ends
//! the starts of all when that of one fails.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use super::abort::start_abort;
use super::scope;
use super::watchdog;
use crate::cuda::Device;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::agree::order::Sharing;
use crate::nccl::raw::check::{check, lost, said};
use crate::nccl::raw::handle::Handle;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::setup::begun;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::environment;
use crate::nccl::setup::init_options::InitOptions;
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::state::gate::Lock;
use crate::nccl::state::helper::Helper;
use crate::nccl::state::household::Household;
use crate::nccl::state::inner::{Family, HOUSEHOLDS, Inner, Parts, next_id};
use crate::{sys, version};

const FUNCTION: &str = "ncclCommInitRankConfig";

/// How often a start looks whether the program that it is part of has failed.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// One rank; the others are made elsewhere.
pub(crate) fn one_rank(
    operation: &'static str,
    device: Device,
    size: usize,
    id: &UniqueId,
    rank: usize,
    options: &InitOptions,
) -> Result<Arc<Inner>> {
    one_by(operation, device, size, vec![*id], rank, options)
}

/// One rank, which comes by several ids.
#[cfg(nccl_ge_2_23_4)]
pub(crate) fn one_of_many(
    operation: &'static str,
    device: Device,
    size: usize,
    ids: &[UniqueId],
    rank: usize,
    options: &InitOptions,
) -> Result<Arc<Inner>> {
    version::check_nccl()?;
    version::needs(operation, version::Version::new(2, 23, 4))?;
    if ids.is_empty() || ids.len() > size {
        return Err(Error::argument(operation, "ids", format_args!("1 to {size}, at most one a rank"), ids.len()));
    }
    if let Some(at) = ids.iter().enumerate().position(|(at, id)| ids[..at].contains(id)) {
        return Err(Error::argument(operation, "ids", "each id once", format_args!("one twice, at {at}")));
    }
    if ids.len() > 1 {
        environment::check_ids(operation)?;
    }
    one_by(operation, device, size, ids.to_vec(), rank, options)
}

/// Some ranks of a communicator, started by one thread; the others are made elsewhere.
pub(crate) fn some_ranks(
    operation: &'static str,
    ranks: Vec<(usize, Device)>,
    size: usize,
    id: &UniqueId,
    options: &InitOptions,
) -> Result<Vec<Arc<Inner>>> {
    begin(operation, &options.config)?;
    if ranks.is_empty() {
        return Err(Error::argument(operation, "ranks", "at least one rank", "none"));
    }
    for (at, (rank, device)) in ranks.iter().enumerate() {
        check_rank(operation, *rank, size)?;
        if ranks[..at].iter().any(|(other, _)| other == rank) {
            return Err(Error::argument(operation, "ranks", "each rank once", format!("rank {rank} twice")));
        }
        if ranks[..at].iter().any(|(_, other)| other == device) {
            return Err(Error::argument(operation, "ranks", "each device once", format!("{device} twice")));
        }
    }
    Start { operation, ids: vec![*id], size, ranks }.run(None, options)
}

fn check_rank(operation: &'static str, rank: usize, size: usize) -> Result<()> {
    if size == 0 || c_int::try_from(size).is_err() {
        return Err(Error::argument(operation, "size", format!("1 to {} ranks", c_int::MAX), size));
    }
    if rank >= size {
        return Err(Error::argument(operation, "rank", format!("a rank below {size}"), rank));
    }
    Ok(())
}

fn one_by(
    operation: &'static str,
    device: Device,
    size: usize,
    ids: Vec<UniqueId>,
    rank: usize,
    options: &InitOptions,
) -> Result<Arc<Inner>> {
    begin(operation, &options.config)?;
    check_rank(operation, rank, size)?;
    let start = Start { operation, ids, size, ranks: vec![(rank, device)] };
    start.run(None, options)?.into_iter().next().ok_or_else(|| nothing(operation))
}

/// All ranks of a communicator within this process.
pub(crate) fn all_ranks(operation: &'static str, devices: &[Device], options: &InitOptions) -> Result<Vec<Arc<Inner>>> {
    begin(operation, &options.config)?;
    if devices.is_empty() {
        return Err(Error::argument(operation, "devices", "at least one device", "none"));
    }
    for (at, device) in devices.iter().enumerate() {
        if devices[..at].contains(device) {
            return Err(Error::argument(operation, "devices", "each device once", format!("{device} twice")));
        }
    }
    let size = devices.len();
    let sharing = environment::shares(options.config.shares()).then(|| Sharing::new(size));
    let family = Arc::new(Family::new(size, None, sharing));
    let ranks = devices.iter().copied().enumerate().collect();
    let start = Start { operation, ids: vec![UniqueId::new()?], size, ranks };
    start.run(Some(family), options)
}

fn begin(operation: &'static str, config: &Config) -> Result<()> {
    outside_of_host_functions(operation)?;
    version::check_nccl()?;
    environment::check(operation)?;
    begun::begin();
    config.check(operation)
}

/// Waits for a start that is under way.
fn wait(
    operation: &'static str,
    start: &Receiver<Result<Made>>,
    deadline: &Deadline,
    absent: impl FnOnce() -> String,
) -> Result<Made> {
    let scope = scope::current();
    loop {
        match start.recv_timeout(deadline.remaining().min(LOOK)) {
            Ok(made) => return made,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(nothing(operation)),
        }
        if let Some(reason) = scope.as_ref().and_then(|scope| scope.failure()) {
            return Err(Error::Aborted { operation, reason });
        }
        if deadline.expired() {
            let said = said(Handle(ptr::null_mut())).map(|said| format!("; {said}")).unwrap_or_default();
            return Err(deadline.error(operation, format!("{}{said}", absent())));
        }
    }
}

/// The error where NCCL says that all is well, and there is no communicator.
#[cold]
pub(crate) fn nothing(operation: &'static str) -> Error {
    Error::InvalidUsage { operation, reason: "NCCL made no communicator".into() }
}

/// The start of those ranks of a communicator that one call makes.
struct Start {
    operation: &'static str,
    /// One, or several by which the ranks come.
    ids: Vec<UniqueId>,
    size: usize,
    ranks: Vec<(usize, Device)>,
}

impl Start {
    fn run(self, family: Option<Arc<Family>>, options: &InitOptions) -> Result<Vec<Arc<Inner>>> {
        let Self { operation, ids, size, ranks } = self;
        let Some(first_id) = ids.first() else { return Err(nothing(operation)) };
        let deadline = Deadline::after(options.timeout);
        // All threads that the communicators will ever need, before there is a communicator.
        watchdog::start(operation)?;
        let helpers = ranks.iter().map(|(_, device)| Helper::start(operation, *device)).collect::<Result<Vec<_>>>()?;
        let shares = environment::shares(options.config.shares());
        let household = HOUSEHOLDS.join(first_id, ranks.len(), shares);
        let config = household.keep(options.config.clone());
        let devices: Vec<Device> = ranks.iter().map(|(_, device)| *device).collect();
        // A clique has them all.
        let first = ranks.first().map(|(rank, _)| *rank).filter(|_| family.is_none());
        let made = Made { ranks, handles: Vec::new(), household: Arc::clone(&household) };
        // Handed over or kept: a start that is too late is aborted where it was made.
        let (sender, receiver) = mpsc::sync_channel(0);
        helpers[0].run(move || {
            let _ = sender.send(made.start(&ids, size, &config));
        });
        let absent = || match first {
            Some(rank) => format!("not all of the {size} ranks have come to rank {rank}"),
            None => format!("not all of the {size} ranks have come"),
        };
        let made = wait(operation, &receiver, &deadline, absent);
        let (handles, ranks) = made.map_err(|error| lost(&error, devices).unwrap_or(error))?.take();
        let members: Vec<_> = helpers
            .into_iter()
            .zip(handles.into_iter().zip(ranks))
            .map(|(helper, (handle, (rank, device)))| {
                let (family, household) = (family.clone(), Arc::clone(&household));
                let (timeout, force_windows) = (options.timeout, options.config.forces_windows());
                let lock = shares.then(|| Lock::new(next_id()));
                let parts =
                    Parts { handle, rank, size, device, family, household, helper, timeout, force_windows, lock };
                Inner::new(parts)
            })
            .collect();
        if let Some(family) = family {
            members.iter().for_each(|inner| family.join(inner.rank, inner));
        }
        welcome(operation, &members, &household)?;
        Ok(members)
    }
}

/// Has `members`, which have started, looked after, and end with those that they belong to.
///
/// # Errors
/// Why they have to end at once; they are aborted then.
pub(crate) fn welcome(operation: &'static str, members: &[Arc<Inner>], household: &Household<Inner>) -> Result<()> {
    watchdog::look_after(members);
    if let Some(cause) = household.admit(members) {
        start_abort(members, &cause);
        return Err(members.first().and_then(|inner| inner.refusal(operation)).unwrap_or(cause));
    }
    if let Some(scope) = scope::current() {
        scope.adopt(members);
        if let Some(reason) = scope.failure() {
            let error = Error::Aborted { operation, reason };
            start_abort(members, &error);
            return Err(error);
        }
    }
    Ok(())
}

/// Wraps `ncclCommInitRankConfig`, and where there are several ids, `ncclCommInitRankScalable`.
///
/// # Safety
/// As those: a place for the handle, and a configuration that was initialised.
unsafe fn start_one(
    handle: &mut sys::ncclComm_t,
    ids: &[UniqueId],
    (size, rank): (c_int, c_int),
    config: &mut sys::ncclConfig_t,
) -> sys::ncclResult_t {
    match ids {
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
struct Made {
    ranks: Vec<(usize, Device)>,
    /// Null where NCCL has made none.
    handles: Vec<Handle>,
    household: Arc<Household<Inner>>,
}

impl Made {
    /// Starts the ranks, on a thread that may stay here for ever.
    fn start(mut self, ids: &[UniqueId], size: usize, config: &Config) -> Result<Self> {
        let mut raw_config = config.to_raw();
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
                let code = unsafe { start_one(handle, ids, (size as c_int, *rank as c_int), &mut raw_config) };
                let started = current.and(check(FUNCTION, code)).map_err(|error| error.of_rank(*rank));
                result = result.and(started);
            }
            // SAFETY: this thread has opened the group above. After an error NCCL starts none.
            let ended = check(FUNCTION, unsafe { sys::ncclGroupEnd() });
            result = result.and(ended.map_err(|error| match self.ranks.as_slice() {
                [(rank, _)] => error.of_rank(*rank),
                // Of which of them NCCL does not say.
                all => error.noted(format_args!("of one of {} ranks that start together", all.len())),
            }));
        }
        if result.is_ok() && self.handles.iter().any(|handle| handle.raw().is_null()) {
            result = Err(nothing(FUNCTION));
        }
        result.map(|()| self)
    }

    /// The communicators, which the caller ends from now on.
    fn take(mut self) -> (Vec<Handle>, Vec<(usize, Device)>) {
        (std::mem::take(&mut self.handles), std::mem::take(&mut self.ranks))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for handle in std::mem::take(&mut self.handles).into_iter().filter(|handle| !handle.raw().is_null()) {
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
    use crate::emulator::nccl::registry;

    /// A size that no other test has.
    const SIZE: usize = 13;

    /// All ranks on one device: NCCL refuses that when they have met, and leaves their communicators.
    fn start(household: &Arc<Household<Inner>>) -> Result<Made> {
        let device = Device::new(0)?;
        let ranks = (0..SIZE).map(|rank| (rank, device)).collect();
        let made = Made { ranks, handles: Vec::new(), household: Arc::clone(household) };
        made.start(&[UniqueId::new()?], SIZE, &Config::default())
    }

    #[test]
    fn a_failed_start_leaves_nothing() {
        let household = HOUSEHOLDS.join(&UniqueId::from_bytes([7; 128]), SIZE, false);
        let Err(error) = start(&household) else { panic!("ranks that share a device") };
        assert!(matches!(error, Error::Nccl { .. }), "{error:?}");
        assert_eq!(registry::alive(SIZE), 0);
        assert!(household.is_empty());
    }
}
