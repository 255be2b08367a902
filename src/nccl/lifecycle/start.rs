//! Starts communicators, with a deadline.
//!
//! Communicators are blocking: a non-blocking one takes ten times as long for each operation, and a
//! blocking one that is split from it takes 2 to 3 µs longer and twice the device memory. A
//! blocking start cannot be stopped. So it runs on the rank's own thread. If the other ranks do not
//! come in time, the caller gets an error and leaves the thread behind, which aborts what it then
//! has should they come after all.
//!
//! The ranks of a clique start as one group of NCCL, which ends the starts of all if one fails.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use super::abort::start_abort;
use super::scope::{self, Scope};
use super::watchdog;
use crate::cuda::{self, Device, Entered};
use crate::deadline::Deadline;
use crate::error::{Cause, Error, Result};
use crate::name::Name;
use crate::nccl::flight::files::Trouble;
use crate::nccl::rank::gate::Lock;
use crate::nccl::rank::helper::Helper;
use crate::nccl::rank::inner::{Inner, LOCAL_RANKS, LocalRanks, Parts, next_id};
use crate::nccl::raw::check::{check, lost};
use crate::nccl::raw::handle::Handle;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::raw::warnings::{self, said};
use crate::nccl::setup::begun;
use crate::nccl::setup::config::Config;
use crate::nccl::setup::environment;
use crate::nccl::setup::init_options::InitOptions;
use crate::nccl::setup::local_memory;
use crate::nccl::setup::unique_id::UniqueId;
use crate::nccl::validate::ballot::RanksOf;
use crate::nccl::validate::in_process::InProcess;
use crate::nccl::validate::order::Sharing;
use crate::{sys, version};

const FUNCTION: &str = "ncclCommInitRankConfig";

/// How often a start looks whether the program that it is part of has failed.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How long a start goes on after a rank has ended.
pub(super) const REST: Duration = Duration::from_millis(500);

/// Starts one rank. Others start the other ranks.
pub(crate) fn one_rank(
    operation: &'static str,
    device: Device,
    size: usize,
    ids: Vec<UniqueId>,
    rank: usize,
    options: &InitOptions,
) -> Result<Arc<Inner>> {
    let ranks = begin_rank(operation, device, size, ids, rank, options, None)?.wait()?;
    ranks.into_iter().next().ok_or_else(|| nothing(operation))
}

/// Starts one rank, without waiting. `helper` is its thread, if there is one already.
pub(crate) fn begin_rank(
    operation: &'static str,
    device: Device,
    size: usize,
    ids: Vec<UniqueId>,
    rank: usize,
    options: &InitOptions,
    helper: Option<Helper>,
) -> Result<Starting> {
    check_unchecked(operation, options)?;
    check_rank(operation, rank, size)?;
    Start { operation, ids, grows: None, size, ranks: vec![(rank, device)] }.begin(options, helper)
}

/// Starts the threads that a start of a rank on `device` needs, for a caller that must have them
/// before the other ranks rely on this one.
pub(crate) fn helper(operation: &'static str, device: Device) -> Result<Helper> {
    watchdog::start(operation)?;
    Helper::start(operation, device)
}

/// Starts one rank of a communicator that has several ids.
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
    one_rank(operation, device, size, ids.to_vec(), rank, options)
}

/// Starts some ranks of a communicator. Others start the other ranks.
pub(crate) fn some_ranks(
    operation: &'static str,
    ranks: Vec<(usize, Device)>,
    size: usize,
    id: &UniqueId,
    options: &InitOptions,
) -> Result<Vec<Arc<Inner>>> {
    check_unchecked(operation, options)?;
    if ranks.is_empty() {
        return Err(Error::argument(operation, "ranks", "at least one rank", "none"));
    }
    for (at, (rank, _)) in ranks.iter().enumerate() {
        check_rank(operation, *rank, size)?;
        if ranks[..at].iter().any(|(other, _)| other == rank) {
            return Err(Error::argument(operation, "ranks", "each rank once", format!("rank {rank} twice")));
        }
    }
    let devices: Vec<Device> = ranks.iter().map(|(_, device)| *device).collect();
    environment::check_devices(operation, "ranks", &devices)?;
    Start { operation, ids: vec![*id], grows: None, size, ranks }.run(options)
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

/// Starts a rank that joins a communicator that grows, and that goes by `key` in this process,
/// without waiting. `helper` is its thread, if there is one already.
#[cfg(nccl_ge_2_29)]
pub(crate) fn newcomer(
    operation: &'static str,
    device: Device,
    (id, key): (UniqueId, UniqueId),
    (size, rank): (usize, usize),
    options: &InitOptions,
    helper: Option<Helper>,
) -> Result<Starting> {
    check_unchecked(operation, options)?;
    version::needs(operation, version::Version::new(2, 29, 2))?;
    check_rank(operation, rank, size)?;
    let start = Start { operation, ids: vec![id], grows: Some(key), size, ranks: vec![(rank, device)] };
    start.begin(options, helper)
}

/// Starts all ranks of a communicator in this process.
pub(crate) fn all_ranks(operation: &'static str, devices: &[Device], options: &InitOptions) -> Result<Vec<Arc<Inner>>> {
    check_start(operation, &options.config)?;
    if devices.is_empty() {
        return Err(Error::argument(operation, "devices", "at least one device", "none"));
    }
    environment::check_devices(operation, "devices", devices)?;
    let size = devices.len();
    let sharing = environment::shares(options.config.shares()).then(|| Sharing::new(&options.name(), size));
    let id = UniqueId::new()?;
    let local_ranks = LOCAL_RANKS.by_key(&id);
    local_ranks.set_in_process(|| InProcess::new(size, RanksOf::whole(options.name()), sharing));
    let ranks = devices.iter().copied().enumerate().collect();
    Start { operation, ids: vec![id], grows: None, size, ranks }.run(options)
}

/// Checks what a start needs of ranks that cannot compare what they do with others.
pub(crate) fn check_unchecked(operation: &'static str, options: &InitOptions) -> Result<()> {
    check_start(operation, &options.config)?;
    if options.checked {
        let expected = "false: ranks of other processes compare over an exchange, see `Communicator::init_rank_over`";
        return Err(Error::argument(operation, "checked", expected, true));
    }
    Ok(())
}

fn check_start(operation: &'static str, config: &Config) -> Result<()> {
    outside_of_host_functions(operation)?;
    version::check_nccl()?;
    environment::check(operation)?;
    config.check(operation)?;
    begun::begin();
    Ok(())
}

/// The ranks of a communicator that one call starts.
struct Start {
    operation: &'static str,
    /// One or several.
    ids: Vec<UniqueId>,
    /// The key of the communicator that they join, if it grows.
    grows: Option<UniqueId>,
    size: usize,
    ranks: Vec<(usize, Device)>,
}

impl Start {
    fn run(self, options: &InitOptions) -> Result<Vec<Arc<Inner>>> {
        self.begin(options, None)?.wait()
    }

    /// Starts the ranks, without waiting for others. `helper` is the thread of a single rank, if
    /// there is one already.
    fn begin(self, options: &InitOptions, helper: Option<Helper>) -> Result<Starting> {
        let Self { operation, ids, grows, size, ranks } = self;
        let Some(key) = grows.as_ref().or(ids.first()) else { return Err(nothing(operation)) };
        let deadline = Deadline::after(options.timeout);
        // All threads that the communicators will ever need, before there is one.
        watchdog::start(operation)?;
        let helpers = match helper {
            Some(helper) => vec![helper],
            None => ranks.iter().map(|(_, device)| Helper::start(operation, *device)).collect::<Result<Vec<_>>>()?,
        };
        let shares = environment::shares(options.config.shares());
        let local_ranks = LOCAL_RANKS.join(key, ranks.len(), shares);
        let name = options.name();
        let config = local_ranks.keep_config(options.config.named(&name));
        let first = ranks.first().map(|(rank, _)| *rank).filter(|_| local_ranks.in_process().is_none());
        let made = Made::new(ranks.clone(), Arc::clone(&local_ranks), grows.is_some());
        // Without a buffer: a start that is too late stays with its thread, which aborts it.
        let (sender, receiver) = mpsc::sync_channel(0);
        let devices: Vec<_> = ranks.iter().map(|(_, device)| *device).collect();
        // So the caller learns of it.
        let soon = Deadline::after(deadline.remaining().saturating_sub(3 * LOOK));
        helpers[0].run(move || {
            let idle = local_memory::before_start(operation, &devices, &soon);
            let _ = sender.send(idle.and_then(|()| made.start(&ids, size, &config)));
        });
        let (timeout, force_windows) = (options.timeout, options.config.forces_windows());
        Ok(Starting {
            operation,
            size,
            first,
            name,
            ranks,
            helpers,
            local_ranks,
            shares,
            timeout,
            force_windows,
            scope: scope::current(),
            deadline,
            receiver,
            made: None,
        })
    }
}

/// A start of some ranks of a communicator that is under way. Dropping it gives the start up.
#[derive(Debug)]
pub(crate) struct Starting {
    operation: &'static str,
    size: usize,
    name: Name,
    /// The first of the ranks, if there are others in other processes.
    first: Option<usize>,
    /// The ranks, and their devices.
    ranks: Vec<(usize, Device)>,
    /// One for each rank.
    helpers: Vec<Helper>,
    local_ranks: Arc<LocalRanks>,
    shares: bool,
    timeout: Duration,
    force_windows: bool,
    /// The run of a program that the start is part of.
    scope: Option<Arc<Scope>>,
    deadline: Deadline,
    /// Ranks that are not received are aborted.
    receiver: Receiver<Result<Made>>,
    /// The ranks, while NCCL frees another communicator on their devices.
    made: Option<Made>,
}

impl Starting {
    /// Waits for the ranks, until the deadline.
    pub(crate) fn wait(mut self) -> Result<Vec<Arc<Inner>>> {
        loop {
            if let Some(end) = self.ask_within(self.deadline.remaining().min(LOOK)) {
                return end;
            }
        }
    }

    /// Waits as [`wait`](Self::wait) does, unless a rank has gone. `gone` is called now and then,
    /// and does not wait.
    pub(crate) fn wait_unless(mut self, gone: impl Fn() -> Option<Error>) -> Result<Vec<Arc<Inner>>> {
        let mut lost = None;
        loop {
            if let Some(end) = self.ask_within(self.deadline.remaining().min(LOOK)) {
                return end;
            }
            lost = lost.or_else(|| Some((Deadline::after(REST), gone()?)));
            // Not at once: a rank may have started, and ended after that.
            if let Some((_, error)) = lost.take_if(|(rest, _)| rest.expired()) {
                Trouble::starting(&self.local_ranks.lineage, &self.name, &self.ranks, self.size, &error).write();
                return Err(error);
            }
        }
    }

    /// Returns the result, once, or `None` while the start goes on. Never waits.
    pub(crate) fn ask(&mut self) -> Option<Result<Vec<Arc<Inner>>>> {
        self.ask_within(Duration::ZERO)
    }

    fn ask_within(&mut self, patience: Duration) -> Option<Result<Vec<Arc<Inner>>>> {
        let operation = self.operation;
        if self.made.is_none() {
            match self.receiver.recv_timeout(patience) {
                Ok(Ok(made)) => self.made = Some(made),
                Ok(Err(error)) => return Some(Err(self.lost(error))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Some(Err(nothing(operation))),
            }
        }
        if let Some(made) = self.made.take() {
            let devices: Vec<_> = self.ranks.iter().map(|(_, device)| *device).collect();
            let mut entered = cuda::enter_gates(operation, &devices, &Deadline::after(patience));
            let is_last = self.deadline.expired();
            if entered.is_err() && is_last {
                entered = cuda::enter_gates(operation, &devices, &self.deadline);
            }
            if entered.is_ok() || is_last {
                return Some(self.finish(made, entered));
            }
            self.made = Some(made);
        }
        if let Some(reason) = self.scope.as_ref().and_then(|scope| scope.failure()) {
            return Some(Err(Error::Aborted { operation, reason }));
        }
        if self.deadline.expired() {
            let said = said(Handle(ptr::null_mut())).map(|said| format!("; {said}")).unwrap_or_default();
            let late = self.deadline.error(operation, format!("{}{said}", self.absent()));
            Trouble::starting(&self.local_ranks.lineage, &self.name, &self.ranks, self.size, &late).write();
            return Some(Err(late));
        }
        None
    }

    fn lost(&self, error: Error) -> Error {
        lost(&error, self.ranks.iter().map(|(_, device)| *device)).unwrap_or(error)
    }

    /// Says that not all ranks have come, and what to do: NCCL does not say which are missing.
    fn absent(&self) -> String {
        let size = self.size;
        match self.first {
            Some(rank) => format!(
                "not all of the {size} ranks have come to rank {rank}: check that each was started, with the same id; \
                 `gpucomm doctor` under their launcher checks that they reach each other"
            ),
            None => format!("not all of the {size} ranks have come: `gpucomm doctor` checks this machine"),
        }
    }

    /// Takes the ranks that have started, inside the gates of their devices.
    fn finish(&mut self, made: Made, entered: Result<Vec<Entered>>) -> Result<Vec<Arc<Inner>>> {
        let (handles, ranks) = made.take();
        let &mut Self { size, shares, timeout, force_windows, .. } = self;
        let members: Vec<_> = std::mem::take(&mut self.helpers)
            .into_iter()
            .zip(handles.into_iter().zip(ranks))
            .map(|(helper, (handle, (rank, device)))| {
                let local_ranks = Arc::clone(&self.local_ranks);
                let lock = shares.then(|| Lock::new(next_id()));
                let name = self.name.clone();
                Inner::new(Parts {
                    handle,
                    name,
                    rank,
                    size,
                    device,
                    local_ranks,
                    helper,
                    timeout,
                    force_windows,
                    lock,
                })
            })
            .collect();
        admit_in(self.scope.take(), self.operation, &members, &self.local_ranks, entered)?;
        Ok(members)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let (Some(made), Some(helper)) = (self.made.take(), self.helpers.first()) {
            // NCCL aborts them there, and waits for the device.
            helper.run(move || drop(made));
        }
    }
}

/// Adds `members`, which have started, to the ranks of this process. From now on the watchdog looks
/// after them, and they end with the others. Waits while NCCL frees another communicator on their
/// devices: an operation that they enqueued there would be held up with the driver.
///
/// # Errors
/// Why they have to end at once. They are aborted then.
pub(crate) fn admit(
    operation: &'static str,
    members: &[Arc<Inner>],
    local_ranks: &LocalRanks,
    deadline: &Deadline,
) -> Result<()> {
    let devices: Vec<_> = members.iter().map(|inner| inner.device).collect();
    admit_in(scope::current(), operation, members, local_ranks, cuda::enter_gates(operation, &devices, deadline))
}

/// The same, for ranks of a run that another thread may be part of, inside the gates of their devices.
fn admit_in(
    scope: Option<Arc<Scope>>,
    operation: &'static str,
    members: &[Arc<Inner>],
    local_ranks: &LocalRanks,
    entered: Result<Vec<Entered>>,
) -> Result<()> {
    warnings::all_went_well();
    members.iter().for_each(|inner| inner.trace_start());
    local_ranks.add_devices(members.iter().map(|inner| inner.device));
    let failure = local_ranks.admit(members.iter().map(|inner| (inner.rank, inner)));
    let late = entered.err();
    watchdog::wake();
    // Ranks that are too late were added, too, so that they are aborted as all others are.
    if let Some(late) = late {
        start_abort(members, &late);
        return Err(late);
    }
    if let Some(cause) = failure {
        start_abort(members, &cause);
        return Err(members.first().and_then(|inner| inner.refusal(operation)).unwrap_or(cause));
    }
    if let Some(scope) = scope {
        scope.adopt(members);
        if let Some(reason) = scope.failure() {
            let error = Error::Aborted { operation, reason };
            start_abort(members, &error);
            return Err(error);
        }
    }
    Ok(())
}

/// The error if NCCL returns success without a communicator.
#[cold]
pub(crate) fn nothing(operation: &'static str) -> Error {
    Error::InvalidUsage { operation, reason: "NCCL made no communicator".into() }
}

/// Wraps `ncclCommInitRankConfig`; for several ids `ncclCommInitRankScalable`; for a communicator
/// that grows `ncclCommGrow`.
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
            // SAFETY: the caller upholds the contract; there are at most as many ids as ranks,
            // whose number fits, and NCCL copies them.
            unsafe { sys::ncclCommInitRankScalable(handle, size, rank, raw.len() as c_int, raw.as_mut_ptr(), config) }
        }
        #[cfg(not(nccl_ge_2_23_4))]
        _ => sys::ncclResult_t::ncclInvalidUsage,
    }
}

/// Ranks that are being started, and their communicators until somebody takes them. Aborts those
/// that nobody takes.
#[derive(Debug)]
struct Made {
    ranks: Vec<(usize, Device)>,
    /// Null if NCCL has made none.
    handles: Vec<Handle>,
    local_ranks: Arc<LocalRanks>,
    /// Whether they join a communicator that grows.
    grows: bool,
}

impl Made {
    fn new(ranks: Vec<(usize, Device)>, local_ranks: Arc<LocalRanks>, grows: bool) -> Self {
        Self { ranks, handles: Vec::new(), local_ranks, grows }
    }

    /// Starts the ranks. The thread may stay here for ever.
    fn start(mut self, ids: &[UniqueId], size: usize, config: &Config) -> Result<Self> {
        let mut raw_config = config.to_raw();
        let grows = self.grows;
        let function = if grows { "ncclCommGrow" } else { FUNCTION };
        for (rank, device) in &self.ranks {
            // Before any rank starts: the others would wait for one that cannot.
            drop(device.set_current().map_err(|error| error.of_rank(*rank))?);
        }
        self.handles = vec![Handle(ptr::null_mut()); self.ranks.len()];
        // SAFETY: the group is ended below: nothing in between panics or returns.
        let mut result = check("ncclGroupStart", unsafe { sys::ncclGroupStart() });
        if result.is_ok() {
            for ((rank, device), Handle(handle)) in self.ranks.iter().zip(&mut self.handles) {
                let current = device.set_current();
                // SAFETY: a place for the handle, and a configuration that was initialised; what it
                // points to lives as long as the local ranks. The sizes fit: they were checked
                // before.
                let code = unsafe { start_one(handle, (ids, grows), (size as c_int, *rank as c_int), &mut raw_config) };
                let started = current.and(check(function, code)).map_err(|error| error.of_rank(*rank));
                result = result.and(started);
            }
            // SAFETY: this thread has opened the group above. After an error NCCL starts none.
            let ended = check(function, unsafe { sys::ncclGroupEnd() });
            result = result.and(ended.map_err(|error| match self.ranks.as_slice() {
                [(rank, _)] => error.of_rank(*rank),
                // NCCL does not say which.
                all => error.noted(format_args!("of one of {} ranks that start together", all.len())),
            }));
        }
        if result.is_ok() && self.handles.iter().any(|handle| handle.raw().is_null()) {
            result = Err(nothing(function));
        }
        result.map(|()| self)
    }

    /// Takes the communicators, which the caller ends from now on.
    fn take(mut self) -> (Vec<Handle>, Vec<(usize, Device)>) {
        (std::mem::take(&mut self.handles), std::mem::take(&mut self.ranks))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let handles = std::mem::take(&mut self.handles);
        if let (Some((rank, _)), false) = (self.ranks.first(), handles.is_empty()) {
            // The other ranks of this process would wait for these until their deadlines.
            let reason = format!("the start of rank {rank} was given up, or has failed");
            let cause = Error::Aborted { operation: "drop", reason: Cause::from(reason).of_rank(*rank) };
            start_abort(&self.local_ranks.mark_failed(&cause), &cause);
        }
        for handle in handles.into_iter().filter(|handle| !handle.raw().is_null()) {
            // SAFETY: the start has returned, with or without an error: NCCL gives the handle
            // before it starts, and leaves it to be aborted. Nobody else has it.
            let _ = unsafe { sys::ncclCommAbort(handle.raw()) };
        }
        self.ranks.iter().for_each(|_| self.local_ranks.withdraw());
    }
}

#[cfg(all(test, gpucomm_emulator))]
mod tests {
    use super::*;
    use crate::nccl::lifecycle::last_device;

    /// A size that no other test has.
    const SIZE: usize = 13;

    /// All ranks on one device: NCCL refuses that when they have met, and leaves their
    /// communicators.
    fn start(local_ranks: &Arc<LocalRanks>) -> Result<Made> {
        let device = Device::new(0)?;
        let ranks = (0..SIZE).map(|rank| (rank, device)).collect();
        Made::new(ranks, Arc::clone(local_ranks), false).start(&[UniqueId::new()?], SIZE, &Config::default())
    }

    #[test]
    fn a_failed_start_leaves_nothing() {
        let local_ranks = LOCAL_RANKS.join(&UniqueId::from_bytes([7; 128]), SIZE, false);
        let Err(error) = start(&local_ranks) else { panic!("ranks that share a device") };
        assert!(matches!(error, Error::Nccl { .. }), "{error:?}");
        assert_eq!(gpucomm_emulator::communicators_alive(SIZE), 0);
        assert!(local_ranks.are_freed());
    }

    /// Nor does it wait when it is given up there.
    #[test]
    fn a_start_that_is_asked_does_not_wait_for_a_gate() {
        const SOON: Duration = Duration::from_secs(20);
        let (_alone, device) = last_device();
        let options = InitOptions::new().with_timeout(SOON);
        let shut = cuda::shut_gates(&[device], SOON).expect("no launch is inside");
        let [mut first, mut second] = [(); 2].map(|()| {
            let id = UniqueId::new().unwrap();
            let mut starting = begin_rank("test", device, 1, vec![id], 0, &options, None).unwrap();
            let is_made = || {
                assert!(starting.ask().is_none(), "it has started behind a gate that is shut");
                starting.made.is_some()
            };
            assert!(Deadline::after(SOON).wait(is_made));
            starting
        });
        assert!(first.ask().is_none());
        let local_ranks = Arc::clone(&first.local_ranks);
        drop(first);
        drop(shut);
        assert!(Deadline::after(SOON).wait(|| local_ranks.are_freed()), "what was given up is left");
        let mut started = None;
        assert!(Deadline::after(SOON).wait(|| {
            started = second.ask();
            started.is_some()
        }));
        start_abort(&started.unwrap().unwrap(), &Error::Aborted { operation: "test", reason: "it is over".into() });
    }
}
