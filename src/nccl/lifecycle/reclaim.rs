//! Frees memory that NCCL has allocated or registered, after it was dropped: when nothing uses it
//! and NCCL has forgotten it.
//!
//! `ncclMemFree` does not wait for the uses of the memory, and may wait for everything else on the
//! device: for a collective that spins until its peers come, or until it is aborted. So neither
//! destructors nor the watchdog call it, but a thread that nobody waits for.
//!
//! Memory that NCCL may have registered for a graph stays when the graph is gone. NCCL finds
//! registrations by their addresses. The end of a graph puts its registrations into a queue of the
//! communicator, which NCCL empties in groups of that communicator: in each of them, or (since
//! 2.27.3) in every eleventh one; not when graphs are launched. Until then NCCL takes other memory
//! at the same addresses for the memory that was there: peers write to the old memory, and the new
//! one stays as it was. So such memory is not freed before enough groups were made, or the
//! communicator has ended.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::cuda::scarce;
use crate::cuda::{self, Address, Allocation, Device, Freed, Hold, Uses, owners};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::lock::{Condvar, Mutex, MutexGuard};
use crate::nccl::rank::helper;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::windows::Reclaim;
use crate::sys;

/// How often the thread looks at memory that is still in use.
const INTERVAL: Duration = Duration::from_millis(20);

/// The same, if there is only memory that stays for a while in any case.
const LONG: Duration = Duration::from_millis(250);

/// Memory to be freed.
struct Waiting {
    memory: Memory,
    device: Device,
    /// The rank that it belonged to, if it belonged to one.
    inner: Option<Arc<Inner>>,
    /// Whether NCCL may use the memory until it has freed the communicator.
    after_end: bool,
    /// How long NCCL may know it, if it may have registered it for a graph.
    linger: Option<Linger>,
}

enum Memory {
    /// Allocated by NCCL, with the uses that may not be done.
    Freed(Address, Uses),
    /// Allocated by others, and kept alive.
    Kept(Hold),
}

/// The memory that waits to be freed.
struct Queue {
    waiting: Vec<Waiting>,
    /// The communicators and devices of the memory that the thread looks at just now.
    in_hand: Vec<(Option<u64>, Device)>,
    /// Whether memory was added since the thread looked.
    fresh: bool,
    running: bool,
}

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { waiting: Vec::new(), in_hand: Vec::new(), fresh: false, running: false });
static CHANGED: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock()
}

/// Starts the thread, unless it runs: before there is any memory to free.
pub(crate) fn start(operation: &'static str) -> Result<()> {
    let mut queue = queue();
    if !queue.running {
        let spawned = thread::Builder::new().name("gpucomm-reclaim".into()).spawn(run);
        spawned.map_err(|error| helper::cannot_start(operation, &error))?;
        scarce::set_holder(holds);
        queue.running = true;
    }
    Ok(())
}

/// Frees memory that is no window, as soon as nothing uses it.
pub(crate) fn free_when_idle(freed: Freed, inner: &Arc<Inner>) {
    reclaim(Reclaim::WhenIdle(freed), inner);
}

/// Frees memory that belongs to no communicator, as soon as nothing uses it.
pub(crate) fn free_unowned(Freed { address, device, uses, .. }: Freed) {
    let memory = Memory::Freed(address, uses);
    add(Waiting { memory, device, inner: None, after_end: false, linger: None });
}

/// Keeps memory alive that NCCL may have registered for a graph of `inner`, which was destroyed,
/// until NCCL has forgotten it.
pub(crate) fn keep(memory: Hold, inner: &Arc<Inner>) {
    let mut queue = queue();
    let is_it = |one: &&mut Waiting| {
        one.owner() == Some(inner.id) && matches!(&one.memory, Memory::Kept(known) if known.is_as(&memory))
    };
    if let Some(known) = queue.waiting.iter_mut().find(is_it) {
        return known.linger.iter_mut().for_each(Linger::begin_anew);
    }
    drop(queue);
    let (device, inner, linger) = (memory.device(), Some(Arc::clone(inner)), Some(Linger::default()));
    add(Waiting { memory: Memory::Kept(memory), device, inner, after_end: false, linger });
}

/// Frees memory as soon as nothing uses it and NCCL does not know it. Drops memory that NCCL has
/// not allocated.
pub(crate) fn reclaim(memory: Reclaim, inner: &Arc<Inner>) {
    let (freed, after_end) = match memory {
        Reclaim::WhenIdle(freed) => (freed, false),
        Reclaim::AfterEnd(freed) => (freed, true),
        Reclaim::Drop(memory) => return drop(memory),
    };
    let Freed { address, device, uses, lingers, .. } = freed;
    let (memory, linger) = (Memory::Freed(address, uses), lingers.then(Linger::default));
    add(Waiting { memory, device, inner: Some(Arc::clone(inner)), after_end, linger });
}

fn add(one: Waiting) {
    let mut queue = queue();
    queue.waiting.push(one);
    queue.fresh = true;
    CHANGED.notify_all();
}

/// Waits until the memory of one communicator is freed, apart from memory that stays until NCCL has
/// forgotten it. Returns false at the deadline.
pub(crate) fn drain(communicator: u64, deadline: &Deadline) -> bool {
    let holds = || {
        let queue = queue();
        let waits = |one: &Waiting| one.owner() == Some(communicator) && !one.stays();
        queue.waiting.iter().any(waits) || queue.in_hand.iter().any(|(id, _)| *id == Some(communicator))
    };
    // Memory that has stayed because of a communicator that has ended is freed now.
    wake();
    deadline.wait(|| !holds())
}

fn wake() {
    queue().fresh = true;
    CHANGED.notify_all();
}

/// Whether memory of `device` is about to be freed, of any communicator.
fn holds(device: Device) -> bool {
    let here: Vec<_> = {
        let queue = queue();
        if queue.in_hand.iter().any(|(_, other)| *other == device) {
            return true;
        }
        let here = queue.waiting.iter().filter(|one| one.device == device);
        here.map(|one| one.inner.clone().filter(|_| one.after_end || one.linger.is_some())).collect()
    };
    // Memory under the windows of a communicator, or of its graphs, may stay for ever while any rank
    // of this process has it.
    let stays = |rank: &Arc<Inner>| rank.is_alive() || rank.waits_for_sharers() || rank.graphs.are_stranded();
    here.iter().any(|inner| inner.as_ref().is_none_or(|inner| !inner.local_ranks.ranks().iter().any(stays)))
}

fn run() {
    loop {
        let mut kept = Vec::new();
        for mut one in take() {
            if one.is_lost() {
                one.lose();
                continue;
            }
            // On a device that is lost the memory is lost as well.
            match cuda::settle(one.device).and_then(|()| one.is_idle()) {
                Ok(true) => one.free(),
                Err(Error::DeviceLost { .. }) => one.lose(),
                Ok(false) | Err(_) => kept.push(one),
            }
        }
        let mut queue = queue();
        queue.in_hand.clear();
        queue.waiting.append(&mut kept);
    }
}

/// Takes the memory to look at: at once if some was added, else after a while.
fn take() -> Vec<Waiting> {
    let mut queue = queue();
    if !queue.waiting.is_empty() && !queue.fresh {
        let soon = queue.waiting.iter().any(|one| !one.stays());
        let interval = if soon { INTERVAL } else { LONG };
        queue = CHANGED.wait_timeout(queue, interval);
    }
    while queue.waiting.is_empty() {
        queue = CHANGED.wait(queue);
    }
    queue.fresh = false;
    queue.in_hand = queue.waiting.iter().map(|one| (one.owner(), one.device)).collect();
    std::mem::take(&mut queue.waiting)
}

impl Waiting {
    /// The number of the communicator that it belonged to.
    fn owner(&self) -> Option<u64> {
        self.inner.as_ref().map(|inner| inner.id)
    }

    /// Whether it stays for a while in any case: it was part of a graph, and the communicator has
    /// not ended.
    fn stays(&self) -> bool {
        self.linger.is_some() && self.inner.as_ref().is_some_and(|inner| !inner.are_all_freed())
    }

    /// Whether nothing uses the memory.
    fn is_idle(&mut self) -> Result<bool> {
        let inner = self.inner.as_ref().filter(|inner| !inner.are_all_freed());
        if self.after_end && inner.is_some() {
            return Ok(false);
        }
        let done = match &mut self.memory {
            Memory::Freed(_, uses) => uses.is_done()?,
            Memory::Kept(memory) => memory.is_idle()?,
        };
        Ok(done && self.linger.as_mut().zip(inner).is_none_or(|(linger, inner)| linger.is_over(inner)))
    }

    /// Whether it is never freed: another library has the communicator, of whose graphs it was
    /// part.
    fn is_lost(&self) -> bool {
        self.linger.is_some() && self.inner.as_ref().is_some_and(|inner| inner.graphs.are_given_away())
    }

    /// Leaks it.
    fn lose(self) {
        if let Memory::Kept(memory) = self.memory {
            std::mem::forget(memory);
        }
    }

    fn free(self) {
        match self.memory {
            Memory::Freed(address, _) => {
                // SAFETY: from `ncclMemAlloc`, and freed once, by the owner of its only `Waiting`.
                // Nothing uses it any more, no window lies over it, and NCCL has forgotten what it
                // has registered of it for graphs.
                let _ = unsafe { sys::ncclMemFree(address.ptr()) };
            }
            // On another thread: if this is the last handle, its owner may block.
            Memory::Kept(memory) => owners::drop_elsewhere(Box::new(memory), self.device),
        }
        scarce::freed();
    }
}

/// The memory that NCCL may have registered for the operations of one rank in a graph. Stays until
/// NCCL has forgotten it when this is dropped.
pub(crate) struct Registered {
    inner: Arc<Inner>,
    /// Memory that does not belong to the communicator. Its own memory knows itself that it has to
    /// stay.
    others: Vec<Hold>,
}

impl Registered {
    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        Self { inner, others: Vec::new() }
    }

    /// Adds memory that lives at least as long as this.
    pub(crate) fn add(&mut self, memory: &Allocation) {
        self.inner.graphs.set_registers();
        if memory.owner() == self.inner.id {
            memory.linger();
        } else if let Some(memory) = memory.hold()
            && !self.others.iter().any(|known| known.is_as(&memory))
        {
            self.others.push(memory);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.others.drain(..).for_each(|memory| keep(memory, &self.inner));
    }
}

/// The time, and the number of groups, since which memory of a graph that was destroyed is idle.
#[derive(Debug, Default)]
struct Linger(Option<(Instant, u64)>);

impl Linger {
    /// Whether NCCL has forgotten the memory. Called for the first time when all uses are done,
    /// including those by graphs.
    fn is_over(&mut self, inner: &Inner) -> bool {
        let groups = inner.graphs.groups();
        inner.graphs.has_forgotten(*self.0.get_or_insert_with(|| (Instant::now(), groups)))
    }

    /// Starts again: another graph with the memory was destroyed.
    fn begin_anew(&mut self) {
        self.0 = None;
    }
}
