//! Waiting until NCCL has freed what has ended.
//!
//! NCCL frees the ranks of a process when the last of them ends, on the thread of that call, and waits for everything on the device of each
//! (`cudaFreeHost`). Where other communicators use these devices, that may take for ever: a rank that has ended before may have gone on
//! with one of those, in an operation that waits for the very rank whose thread waits here. So ranks wait a moment for each other,
//! lest one goes on before all is freed, and whoever ends last does not insist.
//!
//! While NCCL waits so, it holds a lock of the driver, and who enqueues there waits as well, without a deadline. So NCCL is not asked to free
//! anything before what the other communicators had on their way is done, or they have ended, nor before all other work on these devices is
//! done that this crate knows of: host functions, kernels, waits of NVSHMEM. Other communicators are kept from enqueuing more for a moment in
//! which NCCL frees, where there is one in which all of them are done.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::cuda::{self, Busy, Device, Mark, Stream};
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::nccl::state::gate::LockedAll;
use crate::nccl::state::guarded::Guarded;
use crate::nccl::state::inner::{HOUSEHOLDS, Inner};

/// How long a rank waits for others of its process to end as well: one thread may end them all, one after the other.
const A_MOMENT: Duration = Duration::from_millis(100);

/// How long a rank waits for what may wait for this rank. NCCL alone takes less.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long such a moment is looked for, and how long others are kept out at the most.
const LOOKS: Duration = Duration::from_millis(10);
const KEEPS: Duration = Duration::from_millis(50);

/// How long who aborts waits for the work of others that goes on, or goes on again since something was stopped.
const SOON: Duration = Duration::from_millis(500);

/// Waits for the `ends` of `members`, which their threads are at. False where NCCL goes on freeing them by itself, since what other
/// communicators do holds it up.
///
/// # Errors
/// Those of the ends; `late` where they take longer than the deadline, and nothing is known that holds them up.
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
    // Who rests is freed with those that share its resources.
    let rest = members.iter().any(|inner| inner.rests());
    ended.map(|()| !rest && (!shared || others_have_ended(members, &patience)))
}

/// How long the ends of `members` are waited for: not for long, where others hold them up.
pub(super) fn patience(members: &[Arc<Inner>], deadline: &Deadline) -> Deadline {
    if is_held_up(members) { at_most(PATIENCE, deadline) } else { *deadline }
}

/// Waits for the other ranks of this process, if they come to their ends as well; whether NCCL has freed all of them.
fn others_have_ended(members: &[Arc<Inner>], patience: &Deadline) -> bool {
    let moment = at_most(A_MOMENT, patience);
    let go_on = || members.iter().flat_map(|inner| inner.household.members()).any(|inner| inner.is_active());
    let mut round = 0;
    while !members.iter().all(|inner| inner.is_gone()) {
        if patience.expired() || (moment.expired() && go_on()) {
            return false;
        }
        backoff(round);
        round += 1;
    }
    true
}

/// Waits, on a thread that ends `members`, until what others have on their way at this moment on the devices on which NCCL will free
/// something is done; however long that takes, unless they end. Calls `busy` where that takes long.
pub(super) fn wait_for_devices(members: &[Arc<Inner>], busy: impl FnOnce()) {
    let mut busy = Some(busy);
    let soon = Deadline::after(SOON);
    let mut others: Vec<_> =
        others_of(members.iter().map(|inner| &**inner)).into_iter().map(|other| (other, None)).collect();
    // Work that waits for a communicator goes with that, if it ends.
    let mut work = None;
    let mut round = 0;
    loop {
        others.retain_mut(|(other, points)| other.is_active() && !have_come(other, points));
        if others.is_empty() && work.get_or_insert_with(|| Busy::with(&devices_of(members))).is_over() {
            return;
        }
        if let Some(busy) = busy.take_if(|_| soon.expired()) {
            busy();
        }
        backoff(round);
        round += 1;
    }
}

/// Has NCCL free `members` by `free`, on a thread that ends them, while others enqueue nothing on these devices, if that can be had. They are
/// let in again after a while, whatever NCCL does.
pub(super) fn undisturbed<R>(members: &[Arc<Inner>], free: impl FnOnce() -> R) -> R {
    let others = others_of(members.iter().map(|inner| &**inner));
    let Some(kept) = (!others.is_empty()).then(|| keep_out(&others)).flatten() else { return free() };
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let keeper = move || {
            let _ = is_done.recv_timeout(KEEPS);
            drop(kept);
        };
        // Where no thread can be had, nobody is kept out.
        let _ = thread::Builder::new().name("gpucomm-keeper".into()).spawn_scoped(scope, keeper);
        let freed = free();
        drop(done);
        freed
    })
}

/// The locks of all of `others`, taken when none of them had anything on its way.
fn keep_out(others: &[Arc<Inner>]) -> Option<LockedAll<'_, Guarded>> {
    let deadline = Deadline::after(LOOKS);
    let mut round = 0;
    loop {
        let mut locks = LockedAll::new();
        let all = others
            .iter()
            .filter(|other| other.is_active())
            .all(|other| other.join(&mut locks) || other.try_lock().map(|locked| locks.add(locked)).is_some());
        let is_done = |stream: &Stream| !stream.is_captured() && stream.is_idle().unwrap_or(true);
        if all && locks.values().all(|guarded| guarded.streams.all().iter().all(is_done)) {
            return Some(locks);
        }
        drop(locks);
        if deadline.expired() {
            return None;
        }
        backoff(round);
        round += 1;
    }
}

/// Whether the streams of `other` have come past all that was there when this was first asked. Never waits.
fn have_come(other: &Inner, points: &mut Option<Vec<(Stream, Mark)>>) -> bool {
    if points.is_none() {
        let Some(guard) = other.try_lock() else { return false };
        let streams = guard.streams.all().iter();
        let busy = streams.filter(|stream| !stream.is_captured() && !stream.is_idle().unwrap_or(true));
        *points = Some(busy.filter_map(|stream| Some((stream.clone(), stream.mark().ok()?))).collect());
    }
    points.iter_mut().for_each(|points| points.retain(|(stream, mark)| !stream.has_reached(mark).unwrap_or(true)));
    points.iter().all(Vec::is_empty)
}

/// Whether what others do may hold up the end of `members`: communicators that are active on the devices on which NCCL frees something, and
/// work there that is not theirs.
pub(super) fn is_held_up(members: &[Arc<Inner>]) -> bool {
    Others::of(members).hold_up()
}

/// What may hold up the end of some ranks.
pub(super) struct Others {
    are_active: bool,
    /// The devices on which NCCL frees something.
    devices: Vec<Device>,
    /// The streams of all ranks that end with them, unless a thread has locked one of these ranks, as when it is inside NCCL.
    own: Option<Vec<Stream>>,
}

impl Others {
    /// Calls nothing, and waits for nothing.
    pub(super) fn of(members: &[Arc<Inner>]) -> Self {
        let are_active = !others_of(members.iter().map(|inner| &**inner)).is_empty();
        let relatives: Vec<_> = members.iter().flat_map(|inner| inner.household.members()).collect();
        // Somebody is inside of one that is locked.
        let own: Option<Vec<_>> =
            relatives.iter().map(|inner| inner.try_lock().map(|guard| guard.streams.all().to_vec())).collect();
        let devices = devices_of(members);
        Self { are_active, devices, own: own.map(|own| own.into_iter().flatten().collect()) }
    }

    /// Whether it is known what their own work is.
    pub(super) fn are_known(&self) -> bool {
        self.own.is_some()
    }

    /// As [`Self::hold_up`], but calls nothing of CUDA: work that nobody has seen done counts, and all work if it is not known which is
    /// their own.
    pub(super) fn may_hold_up(&self) -> bool {
        self.are_active || cuda::may_be_busy(&self.devices, |stream| self.is_own(stream))
    }

    fn hold_up(&self) -> bool {
        // CUDA must not be called in host functions.
        if self.are_active || cuda::in_host_function() {
            return self.are_active;
        }
        self.are_known() && cuda::are_busy(&self.devices, |stream| self.is_own(stream))
    }

    /// Whether `stream` has work only that the end of the ranks ends.
    fn is_own(&self, stream: &Stream) -> bool {
        let is_own = |own: &Vec<_>| own.contains(stream) && !stream.in_flight().may_have_other_work();
        self.own.as_ref().is_some_and(is_own)
    }
}

/// The devices on which NCCL frees something when `members` end: none where others of the same communicators go on.
fn devices_of(members: &[Arc<Inner>]) -> Vec<Device> {
    let mut devices = Vec::new();
    for inner in members {
        let goes_on = |other: &Arc<Inner>| other.is_active() && !members.iter().any(|inner| Arc::ptr_eq(inner, other));
        if !inner.household.members().iter().any(goes_on) {
            devices.extend(inner.household.devices());
        }
    }
    devices.sort_unstable_by_key(|device| device.ordinal());
    devices.dedup();
    devices
}

/// Communicators other than those of `members` that are active on the devices on which NCCL frees something when these end.
fn others_of<'a>(members: impl Iterator<Item = &'a Inner> + Clone) -> Vec<Arc<Inner>> {
    let ends = |one: &Inner| members.clone().any(|inner| Arc::ptr_eq(&inner.household, &one.household));
    let devices: Vec<_> = members.clone().flat_map(|inner| inner.household.devices()).collect();
    let mut all = HOUSEHOLDS.members();
    all.retain(|one| one.is_active() && !ends(one) && devices.contains(&one.device));
    all
}

pub(super) fn at_most(time: Duration, deadline: &Deadline) -> Deadline {
    Deadline::after(time.min(deadline.remaining()))
}
