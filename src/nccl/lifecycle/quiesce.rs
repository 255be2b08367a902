//! Waits for other work on the devices before NCCL frees ranks there.
//!
//! NCCL frees the ranks of a process when the last of them ends, on the thread of that call, and
//! waits for everything on the device of each (`cudaFreeHost`). If other communicators use these
//! devices, that may take for ever: a rank that has ended before may have gone on with one of
//! those, in an operation that waits for the very rank whose thread waits here. So ranks wait a
//! moment for each other, lest one goes on before all are freed, and the last one does not wait for
//! ever.
//!
//! While NCCL waits, it holds a lock of the driver. A thread that enqueues on the device waits as
//! well, without a deadline. So NCCL is asked to free ranks only after the other communicators have
//! done the work that they had enqueued, or have ended, and after all other work on these devices
//! that this crate knows: host functions, kernels, waits of NVSHMEM. If there is a moment in which
//! all of them are idle, the other communicators enqueue nothing more while NCCL frees.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::cuda::{self, Busy, Device, Mark, Shut, Stream};
use crate::deadline::{Deadline, wait_until};
use crate::error::{Error, Result};
use crate::lock::Mutex;
use crate::nccl::rank::gate::LockedAll;
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::inner::{Inner, LOCAL_RANKS};

/// How long a rank waits for the others of its process to end as well: one thread may end all of
/// them, one after the other.
const A_MOMENT: Duration = Duration::from_millis(100);

/// How long a rank waits for work that may wait for this rank. NCCL alone takes less.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long [`undisturbed`] and [`shut_gates`] look for a moment in which the others are idle. Each
/// attempt looks twice as long as the one before, up to the second time.
const LOOKS: Duration = Duration::from_millis(10);
const LOOKS_AT_MOST: Duration = Duration::from_millis(500);

/// The longest time for which other launches are kept out while NCCL frees. A kernel that starts
/// meanwhile can hold up NCCL, and wait for a rank that NCCL holds up. NCCL may also wait for ranks of
/// other processes before it frees anything. Then launches wait all of this time: they have a deadline,
/// and such a kernel has none.
const KEEPS: Duration = Duration::from_secs(5);

/// How long an abort waits for the work of others that goes on, or goes on again since something
/// was stopped.
const SOON: Duration = Duration::from_millis(500);

/// Waits for the `ends` of `members`, which their threads report. Returns false if NCCL goes on
/// freeing them by itself: the work of other communicators holds it up.
///
/// # Errors
/// Those of the ends; `late` if they take longer than the deadline and no other work is known that
/// holds them up.
pub(super) fn wait(
    members: &[Arc<Inner>],
    ends: &Receiver<Result<()>>,
    deadline: &Deadline,
    late: impl FnOnce() -> Error,
) -> Result<bool> {
    let shared = is_held_up(members);
    let patience = if shared { at_most(PATIENCE, deadline) } else { *deadline };
    let mut ended = Ok(());
    loop {
        match ends.recv_timeout(patience.remaining()) {
            Ok(end) => ended = ended.and(end),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if shared => return ended.map(|()| false),
            Err(RecvTimeoutError::Timeout) => return ended.and(Err(late())),
        }
    }
    let waits = members.iter().any(|inner| inner.waits_for_sharers());
    ended.map(|()| !waits && (!shared || others_have_ended(members, &patience)))
}

/// How long to wait for the ends of `members`: not for long, if others hold them up.
pub(super) fn patience(members: &[Arc<Inner>], deadline: &Deadline) -> Deadline {
    if is_held_up(members) { at_most(PATIENCE, deadline) } else { *deadline }
}

/// Waits for the other ranks of this process, if they end as well. Returns whether NCCL has freed
/// all of them.
fn others_have_ended(members: &[Arc<Inner>], patience: &Deadline) -> bool {
    let moment = at_most(A_MOMENT, patience);
    let go_on = || members.iter().flat_map(|inner| inner.local_ranks.ranks()).any(|inner| inner.is_active());
    let are_freed = || members.iter().all(|inner| inner.are_all_freed());
    patience.wait(|| are_freed() || (moment.expired() && go_on())) && are_freed()
}

/// Waits, on a thread that ends `members`, until other communicators have done the work that they
/// have enqueued by now on the devices on which NCCL will free memory, or have ended. Has no
/// deadline. Calls `busy` if that takes long.
pub(super) fn wait_for_devices(members: &[Arc<Inner>], busy: impl FnOnce()) {
    let mut busy = Some(busy);
    let soon = Deadline::after(SOON);
    let mut others: Vec<_> =
        others_of(members.iter().map(|inner| &**inner)).into_iter().map(|other| (other, None)).collect();
    // After the others: work that waits for a communicator may end with that.
    let mut work = None;
    wait_until(|| {
        others.retain_mut(|(other, points)| other.is_active() && !have_passed(other, points));
        let is_over = others.is_empty() && work.get_or_insert_with(|| Busy::with(&devices_of(members))).is_over();
        if !is_over && soon.expired() {
            busy.take().into_iter().for_each(|busy| busy());
        }
        is_over
    });
}

/// Runs `free`, in which NCCL frees `members`, on a thread that ends them. If possible, other
/// communicators enqueue nothing on these devices meanwhile, for a limited time, and nobody launches
/// a host function, a kernel or a graph there, or starts a communicator.
pub(super) fn undisturbed<R>(members: &[Arc<Inner>], free: impl FnOnce() -> R) -> R {
    let mut looks = LOOKS;
    loop {
        let shut = shut_gates(members);
        // None is added to these as long as the gates are shut.
        let others = others_of(members.iter().map(|inner| &**inner));
        let attempt = || keep_out(&others, looks);
        let Some(kept) = (if others.is_empty() { Some(attempt()) } else { TURNS.take(looks, attempt) }) else {
            drop(shut);
            thread::sleep(LOOKS);
            continue;
        };
        if kept.is_none() && looks < LOOKS_AT_MOST {
            // Their work may wait for a rank that waits at a gate, or for a lock.
            drop(shut);
            thread::sleep(looks);
            looks = LOOKS_AT_MOST.min(looks * 2);
            continue;
        }
        if shut.is_empty() && (others.is_empty() || kept.is_none()) {
            return free();
        }
        let (done, is_done) = mpsc::channel::<()>();
        return thread::scope(|scope| {
            let keeper = move || {
                let _ = is_done.recv_timeout(KEEPS);
                drop((shut, kept));
            };
            // If the thread cannot be started, its locks are dropped at once.
            let _ = thread::Builder::new().name("gpucomm-keeper".into()).spawn_scoped(scope, keeper);
            let freed = free();
            drop(done);
            freed
        });
    }
}

/// The attempts of all threads to keep others out. Only one at a time is made, and after one in vain
/// none for as long as it may have lasted: the ranks of one communicator end on a thread each, and
/// would keep others out without a pause if each did so in the pauses of another.
static TURNS: Turns = Turns(Mutex::new(None));

/// When the next attempt may begin; locked during an attempt.
struct Turns(Mutex<Option<Instant>>);

impl Turns {
    /// Makes an attempt that lasts about so long; `None` if it is not the moment for one.
    fn take<T>(&self, looks: Duration, attempt: impl FnOnce() -> Option<T>) -> Option<Option<T>> {
        let mut next = self.0.try_lock()?;
        if next.is_some_and(|next| Instant::now() < next) {
            return None;
        }
        let made = attempt();
        *next = made.is_none().then(|| Instant::now() + looks);
        Some(made)
    }
}

/// Shuts the gates of the devices at a moment in which no work is there that may not end. Has no
/// deadline: who would free without that moment might hold up the driver for as long as that work.
///
/// A launch that stays inside a gate is one whose closure, which is the user's, waits for something.
/// Nothing is shut then, as that may be what waits here.
fn shut_gates(members: &[Arc<Inner>]) -> Vec<Shut> {
    let devices = devices_of(members);
    let is_idle = || !cuda::are_busy(&devices, |stream| !stream.in_flight().may_have_other_work());
    let mut looks = LOOKS;
    loop {
        let shut = cuda::shut_gates(&devices, LOOKS_AT_MOST).unwrap_or_default();
        // New work stays away meanwhile. Work that is there may wait for that, so not for long.
        if Deadline::after(looks).wait(is_idle) {
            return shut;
        }
        drop(shut);
        looks = LOOKS_AT_MOST.min(looks * 2);
        wait_for_devices(members, || {});
    }
}

/// Takes the locks of all of `others` at a moment in which all of them are idle. Returns `None` if
/// there is no such moment within about this time.
///
/// Their work ends while the locks are held, unless only some ranks have enqueued it. So the caller
/// tries it several times, each time for twice as long.
fn keep_out(others: &[Arc<Inner>], looks: Duration) -> Option<LockedAll<'_, Guarded>> {
    let is_done = |stream: &Stream| !stream.is_captured() && stream.is_idle().unwrap_or(true);
    let locks = Deadline::after(looks).until(|| Ok(lock_all(others)));
    let mut locks = locks.ok().flatten()?;
    let are_idle = || locks.values().all(|guarded| guarded.streams.all().iter().all(is_done));
    Deadline::after(looks).wait(are_idle).then_some(locks)
}

/// The locks of all of `others` that are active. Returns `None` if a thread holds one of them.
fn lock_all(others: &[Arc<Inner>]) -> Option<LockedAll<'_, Guarded>> {
    let mut locks = LockedAll::new();
    let all = others
        .iter()
        .filter(|other| other.is_active())
        .all(|other| other.join(&mut locks) || other.try_lock().map(|locked| locks.add(locked)).is_some());
    all.then_some(locks)
}

/// Whether the streams of `other` have done all work that was there at the first call. Never waits.
fn have_passed(other: &Inner, points: &mut Option<Vec<(Stream, Mark)>>) -> bool {
    if points.is_none() {
        let Some(guard) = other.try_lock() else { return false };
        let streams = guard.streams.all().iter();
        let busy = streams.filter(|stream| !stream.is_captured() && !stream.is_idle().unwrap_or(true));
        *points = Some(busy.filter_map(|stream| Some((stream.clone(), stream.mark().ok()?))).collect());
    }
    points.iter_mut().for_each(|points| points.retain(|(stream, mark)| !stream.has_reached(mark).unwrap_or(true)));
    points.iter().all(Vec::is_empty)
}

/// Whether other work may hold up the end of `members`: communicators that are active on the
/// devices on which NCCL frees memory, and other work there.
fn is_held_up(members: &[Arc<Inner>]) -> bool {
    Others::of(members).hold_up()
}

/// The work that may hold up the end of some ranks.
pub(super) struct Others {
    are_active: bool,
    /// The devices on which NCCL frees memory.
    devices: Vec<Device>,
    /// The streams of all ranks that end with them. `None` if a thread has locked one of these
    /// ranks, as it does while it is inside NCCL.
    own: Option<Vec<Stream>>,
}

impl Others {
    /// Neither calls CUDA nor waits.
    pub(super) fn of(members: &[Arc<Inner>]) -> Self {
        let are_active = !others_of(members.iter().map(|inner| &**inner)).is_empty();
        let ranks: Vec<_> = members.iter().flat_map(|inner| inner.local_ranks.ranks()).collect();
        let own: Option<Vec<_>> =
            ranks.iter().map(|inner| inner.try_lock().map(|guard| guard.streams.all().to_vec())).collect();
        let devices = devices_of(members);
        Self { are_active, devices, own: own.map(|own| own.into_iter().flatten().collect()) }
    }

    /// Whether it is known which work is their own.
    pub(super) fn are_known(&self) -> bool {
        self.own.is_some()
    }

    /// As [`Self::hold_up`], but does not call CUDA: work that nobody has seen done counts, and all
    /// work if it is not known which is their own.
    pub(super) fn may_hold_up(&self) -> bool {
        self.are_active || cuda::may_be_busy(&self.devices, |stream| self.is_own(stream))
    }

    fn hold_up(&self) -> bool {
        // CUDA must not be called in host functions.
        if self.are_active || cuda::is_off_limits() {
            return self.are_active;
        }
        self.are_known() && cuda::are_busy(&self.devices, |stream| self.is_own(stream))
    }

    /// Whether all work on `stream` ends with the ranks.
    fn is_own(&self, stream: &Stream) -> bool {
        let is_own = |own: &Vec<_>| own.contains(stream) && !stream.in_flight().may_have_other_work();
        self.own.as_ref().is_some_and(is_own)
    }
}

/// The devices on which NCCL frees memory when `members` end: none while other ranks of the same
/// communicators live.
fn devices_of(members: &[Arc<Inner>]) -> Vec<Device> {
    let mut devices = Vec::new();
    for inner in members {
        let goes_on = |other: &Arc<Inner>| other.is_active() && !members.iter().any(|inner| Arc::ptr_eq(inner, other));
        if !inner.local_ranks.ranks().iter().any(goes_on) {
            devices.extend(inner.local_ranks.devices());
        }
    }
    devices.sort_unstable_by_key(|device| device.ordinal());
    devices.dedup();
    devices
}

/// Ranks of other communicators that are active on the devices on which NCCL frees memory when
/// `members` end.
fn others_of<'a>(members: impl Iterator<Item = &'a Inner> + Clone) -> Vec<Arc<Inner>> {
    let ends = |one: &Inner| members.clone().any(|inner| Arc::ptr_eq(&inner.local_ranks, &one.local_ranks));
    let devices: Vec<_> = members.clone().flat_map(|inner| inner.local_ranks.devices()).collect();
    let mut all = LOCAL_RANKS.ranks();
    all.retain(|one| one.is_active() && !ends(one) && devices.contains(&one.device));
    all
}

pub(super) fn at_most(time: Duration, deadline: &Deadline) -> Deadline {
    Deadline::after(time.min(deadline.remaining()))
}

#[cfg(all(test, gpucomm_emulator))]
#[path = "quiesce_tests.rs"]
mod tests;
