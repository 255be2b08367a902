//! The resources of a rank: those that a communicator shares with the ones that are split off from it if `splitShare` is set.

use std::ffi::c_void;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::bugs::Nccl;
use crate::cuda::tasks::memory;
use crate::lock::{Condvar, Mutex};
use crate::meet::futex::SLICE;
use crate::memory::heap::Origin;
use crate::nccl::basics::error::{Failure, Outcome, cuda};
use crate::nccl::basics::graphs::{Graphs, Usage};
use crate::nccl::state::proxies::Proxies;
use crate::races::{Chain, Moment, Point};
use crate::report;
use crate::settings::settings;

/// The flag that stops all sharers, the stream on which their operations come one after another, and who is inside them.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    pub(crate) abort: Arc<AbortFlag>,
    pub(crate) progress: Arc<Progress>,
    /// NCCL lets each launch wait for the last one, on whatever streams they are.
    pub(crate) chain: Arc<Chain>,
    pub(crate) mixing: Arc<Mixing>,
    pub(crate) visits: Visits,
    pub(super) proxies: Arc<Proxies>,
    pub(crate) memory: Arc<Memory>,
    /// How many collectives this one has launched.
    pub(crate) collectives: Arc<AtomicU64>,
    /// The same of those that it was split off from, as far as they share.
    above: Vec<Arc<AtomicU64>>,
}

impl Resources {
    /// Those of a communicator that is split off from this one, and shares.
    pub(crate) fn share(&self) -> Self {
        self.memory.share();
        Self {
            abort: self.abort.clone(),
            progress: self.progress.clone(),
            chain: self.chain.clone(),
            mixing: self.mixing.clone(),
            visits: self.visits.clone(),
            proxies: self.proxies.clone(),
            memory: self.memory.clone(),
            collectives: Arc::default(),
            above: self.above.iter().chain([&self.collectives]).cloned().collect(),
        }
    }

    /// A number that the ranks of this communicator have in common where each has launched the same on those above it, if there are any.
    pub(crate) fn order(&self) -> Option<u32> {
        let digest = |digest: u64, count: u64| (digest ^ count).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        let all = self.above.iter().map(|count| count.load(Ordering::Relaxed));
        (!self.above.is_empty()).then(|| all.fold(0, digest) as u32)
    }
}

/// Somebody who waits, and looks at the flag when woken.
pub(crate) trait Sleeper: Debug + Send + Sync {
    fn wake(&self);
}

/// The flag that stops everything a communicator does: for good in an abort, for a while in a revoke. A child made with `splitShare` has its parent's.
#[derive(Debug, Default)]
pub(crate) struct AbortFlag {
    set: AtomicBool,
    /// How often everything was stopped and went on.
    epoch: AtomicU32,
    /// Who sleeps while it is not set.
    sleepers: Mutex<Vec<Weak<dyn Sleeper>>>,
    /// Flags of children that are being made: nobody else knows them yet.
    making: Mutex<Vec<Arc<AbortFlag>>>,
}

impl AbortFlag {
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Sets the flag, and wakes every wait of this process that it ends.
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
        self.sleepers.lock().iter().filter_map(Weak::upgrade).for_each(|sleeper| sleeper.wake());
        for child in std::mem::take(&mut *self.making.lock()) {
            child.set();
        }
    }

    /// How often everything was stopped by a revoke. What began in an earlier epoch never goes on.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// What has begun will have been stopped.
    pub(super) fn next_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes a stop back. Who did not see it in time, knows it by the epoch.
    pub(super) fn take_back(&self) {
        self.set.store(false, Ordering::SeqCst);
    }

    /// From now on `sleeper` is woken when the flag is set.
    pub(super) fn watch(&self, sleeper: Weak<dyn Sleeper>) {
        let mut sleepers = self.sleepers.lock();
        sleepers.retain(|other| other.strong_count() > 0);
        sleepers.push(sleeper);
    }

    /// Sets `child` as well, if this flag is set while `work` runs.
    pub(crate) fn with_child<R>(&self, child: &Arc<Self>, work: impl FnOnce() -> R) -> R {
        self.making.lock().push(child.clone());
        if self.is_set() {
            child.set();
        }
        let result = work();
        self.making.lock().retain(|other| !Arc::ptr_eq(other, child));
        result
    }
}

/// How far the batches of a communicator, and of those that share its resources, have come. They run in the order in which they were
/// launched, on whatever streams.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// How many there are. Held while one is enqueued, so streams see them in one order.
    pub(crate) launched: Mutex<u64>,
    done: AtomicU64,
    running: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Progress {
    /// Waits until `count` batches are done, or `stop` says to stop. Whether they are.
    pub(crate) fn wait(&self, count: u64, mut stop: impl FnMut() -> bool) -> bool {
        if self.done.load(Ordering::Acquire) >= count {
            return true;
        }
        let mut guard = self.lock.lock();
        while self.done.load(Ordering::Acquire) < count {
            if stop() {
                return false;
            }
            guard = self.changed.wait_timeout(guard, SLICE);
        }
        true
    }

    /// Whether `count` batches are done.
    pub(crate) fn has_come(&self, count: u64) -> bool {
        self.done.load(Ordering::Acquire) >= count
    }

    /// A batch touches memory, or may.
    pub(crate) fn begin(&self) {
        self.running.store(true, Ordering::SeqCst);
    }

    /// Whether a batch does.
    pub(crate) fn running(&self) -> bool {
        self.running.load(Ordering::SeqCst)
    }

    /// The batch that has begun no longer does.
    pub(crate) fn end(&self) {
        self.running.store(false, Ordering::SeqCst);
    }

    /// One more batch is done, or will never run.
    pub(crate) fn finish(&self) {
        let _guard = self.lock.lock();
        self.done.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }

    /// Makes every sleeper look again.
    pub(super) fn nudge(&self) {
        let _guard = self.lock.lock();
        self.changed.notify_all();
    }
}

// Who is inside a communicator.
//
// NCCL's calls on one communicator must come one at a time, and while it is being aborted or destroyed none may be under way:
// it would go on in memory that is free. Only `ncclCommRevoke` and `ncclCommGetAsyncError` may come beside others, and even they
// not beside its end. Communicators that share their resources count as one, but for those two: these may come beside the end of another.

/// What a call may meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// No other call but guests.
    Alone,
    /// Anything but the end.
    Guest,
    /// Nothing: it ends the communicator.
    End,
}

/// One thread inside a communicator.
#[derive(Debug)]
struct Visit {
    thread: u64,
    /// The handle of the communicator.
    comm: usize,
    manner: Manner,
    call: &'static str,
}

/// All who are inside a communicator, or inside those that share its resources.
#[derive(Debug, Default, Clone)]
pub(crate) struct Visits(Arc<Mutex<Vec<Visit>>>);

/// A thread is inside as long as this lives.
#[derive(Debug)]
pub(crate) struct Inside {
    visits: Arc<Mutex<Vec<Visit>>>,
    thread: u64,
}

fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

impl Visits {
    /// Goes inside, and reports whom it must not meet there.
    pub(crate) fn enter(&self, comm: usize, rank: usize, manner: Manner) -> Inside {
        let (thread, call) = (this_thread(), report::call());
        let mut visits = self.0.lock();
        let met = visits.iter().find(|other| {
            let guests = [manner, other.manner].contains(&Manner::Guest);
            let ends = [manner, other.manner].contains(&Manner::End);
            other.thread != thread && (!guests || (ends && other.comm == comm))
        });
        let met = met.map(|other| {
            format!(
                "{call} of rank {rank} while another thread is inside {} of {}; NCCL corrupts its heap",
                other.call,
                if other.comm == comm { "the same communicator" } else { "one that shares its resources" }
            )
        });
        visits.push(Visit { thread, comm, manner, call });
        drop(visits);
        if let Some(text) = met {
            report::violation(text);
        }
        Inside { visits: self.0.clone(), thread }
    }

    /// Whether a thread is inside beside which no other may be.
    #[cfg(test)]
    pub(crate) fn are_closed(&self) -> bool {
        self.0.lock().iter().any(|visit| visit.manner == Manner::Alone)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut visits = self.visits.lock();
        if let Some(last) = visits.iter().rposition(|visit| visit.thread == self.thread) {
            visits.swap_remove(last);
        }
    }
}

/// The last things that were launched.
#[derive(Debug, Default)]
pub(crate) struct Mixing {
    captured: Mutex<Option<Moment>>,
    live: Mutex<Option<Moment>>,
    /// Launches of graphs, which NCCL keeps in order without the rest.
    pub(crate) graphs: Chain,
}

impl Mixing {
    /// Whether a launch of a graph may be on its way that NCCL does not see.
    pub(crate) fn is_unseen(&self, graphs: Graphs) -> bool {
        graphs.usage != Usage::Mixed && self.captured.lock().as_ref().is_some_and(|last| !last.is_seen())
    }

    /// Reports launches of graphs that may be on their way when all is to be stopped, where NCCL does not see them: it takes its flag back
    /// and ends its threads, and they run afterwards.
    pub(crate) fn stop(&self, graphs: Graphs, rank: usize) {
        if self.is_unseen(graphs) {
            report::violation(format!(
                "rank {rank} is revoked while a graph with operations of it is on its way, and graphUsageMode is not 2: expected a wait of \
                 the host for the graph before it"
            ));
        }
    }

    /// Reports launches of graphs that may be on their way when what they use is freed: in an abort NCCL waits for the graphs themselves, which
    /// CUDA lets go of before that.
    pub(crate) fn free(&self, graphs: Graphs, rank: usize) {
        if self.is_unseen(graphs) {
            report::violation(format!(
                "rank {rank} is freed while a graph with operations of it is on its way, and graphUsageMode is not 2: expected that the graph \
                 is destroyed when the host has seen it done"
            ));
        }
    }

    /// Something is launched, of a graph or not, at `point`; `what` names it. Reports what NCCL neither puts in order nor supports.
    pub(crate) fn launch(&self, graphs: Graphs, captured: bool, point: &Point, what: &str) {
        if graphs.usage != Usage::Mixed {
            let (of_graphs, others) = (self.captured.lock().clone(), self.live.lock().clone());
            let mode = "and graphUsageMode is not 2";
            if !captured && of_graphs.is_some_and(|last| !last.is_seen()) {
                report::violation(format!(
                    "{what} is launched while a graph with operations of the communicator is on its way, {mode}: expected a wait of the \
                     host for the graph before it"
                ));
            }
            if captured && others.is_some_and(|last| !point.follows(&last)) {
                report::violation(format!(
                    "{what} of a graph has no order with what was launched on the communicator before, {mode}: expected a wait for an event"
                ));
            }
            let of_graphs = self.captured.lock().clone();
            if captured && graphs.ordered && of_graphs.is_some_and(|last| !point.follows(&last)) {
                report::violation(format!(
                    "{what} of a graph has no order with a launch of another one that has operations of the communicator, {mode}: expected a \
                     wait for an event"
                ));
            }
        }
        let last = if captured { &self.captured } else { &self.live };
        *last.lock() = Some(point.moment().clone());
    }
}

// What a communicator takes of the memory of its device.
//
// NCCL counts it since 2.29.7, and can give back what it has for its peers, until it is asked to go on. Before that, and what it takes for
// anything else, is not there. As NCCL's, that of a communicator which ends while it is suspended is lost: what should free all of it stops
// at the first part that is not mapped.

/// The first version that counts it.
const FIRST: Nccl = 2_29_07;

/// Bytes that stay, and for each rank bytes that can be given back.
const PERSISTENT: usize = 96 << 10;
const PER_RANK: usize = 128 << 10;

/// That of one communicator, and of those that share its resources.
#[derive(Debug)]
pub(crate) struct Memory(Mutex<Held>);

#[derive(Debug)]
struct Held {
    device: i32,
    /// Addresses, of what there is.
    persistent: Option<usize>,
    suspendable: Option<usize>,
    /// Bytes of what can be given back, whether it is or not.
    bytes: usize,
    is_suspended: bool,
    sharers: usize,
}

impl Default for Memory {
    fn default() -> Self {
        let held = Held { device: 0, persistent: None, suspendable: None, bytes: 0, is_suspended: false, sharers: 1 };
        Self(Mutex::new(held))
    }
}

fn allocate(device: i32, bytes: usize) -> Outcome<usize> {
    let failed = |error| cuda(&format!("{bytes} bytes on device {device} for a communicator"), error);
    memory::allocate(device, bytes, Origin::Malloc).map(|memory| memory.expose_provenance()).map_err(failed)
}

fn free(address: usize) {
    let memory: *mut c_void = std::ptr::with_exposed_provenance_mut(address);
    // The device may be lost.
    let _ = memory::unmap(memory);
}

impl Memory {
    /// A communicator of so many ranks starts; where it shares, all of it is there.
    pub(crate) fn take(&self, device: i32, ranks: usize) -> Outcome {
        let mut held = self.0.lock();
        if settings().nccl < FIRST || held.bytes > 0 {
            return Ok(());
        }
        held.device = device;
        held.persistent = Some(allocate(device, PERSISTENT)?);
        held.suspendable = Some(allocate(device, ranks * PER_RANK)?);
        held.bytes = ranks * PER_RANK;
        Ok(())
    }

    /// One more shares it.
    pub(super) fn share(&self) {
        self.0.lock().sharers += 1;
    }

    /// Whether several share it.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.lock().sharers > 1
    }

    /// One has ended that has it: the last one frees it.
    pub(crate) fn leave(&self) {
        let mut held = self.0.lock();
        held.sharers = held.sharers.saturating_sub(1);
        if held.sharers == 0 {
            held.free();
        }
    }

    /// Whether it was given back.
    pub(crate) fn is_suspended(&self) -> bool {
        self.0.lock().is_suspended
    }

    /// Gives back what can be.
    pub(crate) fn suspend(&self) {
        let mut held = self.0.lock();
        held.suspendable.take().into_iter().for_each(free);
        held.is_suspended = true;
    }

    /// Takes it again, which others may have taken; it counts as suspended until [`Memory::wake`].
    pub(crate) fn resume(&self) -> Outcome {
        let mut held = self.0.lock();
        if held.suspendable.is_none() {
            held.suspendable = Some(allocate(held.device, held.bytes)?);
        }
        Ok(())
    }

    /// All ranks have it again.
    pub(crate) fn wake(&self) {
        self.0.lock().is_suspended = false;
    }

    /// `ncclCommMemStats`.
    pub(crate) fn statistic(&self, which: u32) -> Outcome<u64> {
        let held = self.0.lock();
        let persistent = held.persistent.map_or(0, |_| PERSISTENT);
        match which {
            0 => Ok(held.bytes as u64),
            1 => Ok(u64::from(held.is_suspended)),
            2 => Ok(persistent as u64),
            3 => Ok((held.bytes + persistent) as u64),
            other => Err(Failure::argument(format!("{other} is no statistic"))),
        }
    }
}

impl Held {
    fn free(&mut self) {
        if !self.is_suspended {
            self.persistent.take().into_iter().chain(self.suspendable.take()).for_each(free);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Of one that has not started with the others.
        self.0.get_mut().free();
    }
}
