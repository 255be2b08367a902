//! Memory of NCCL that was dropped, freed by a thread that nobody waits for.
//!
//! `ncclMemFree` does not wait for the uses of the memory, and may wait for everything else on the device: for a collective
//! that spins until its peers come, or until somebody aborts it. So neither a destructor calls it nor the watchdog.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::linger::Linger;
use crate::cuda::scarce;
use crate::cuda::{self, Address, Device, Freed, Hold, Uses, owners};
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::nccl::state::helper;
use crate::nccl::state::inner::Inner;
use crate::nccl::state::windows::Burial;
use crate::sys;

/// How often it looks at memory that is still in use.
const INTERVAL: Duration = Duration::from_millis(20);

/// The same, where nothing is but what stays for a while in any case.
const LONG: Duration = Duration::from_millis(250);

/// Memory to be freed.
struct Remains {
    memory: Memory,
    device: Device,
    /// Whose it was, if it was anybody's.
    inner: Option<Arc<Inner>>,
    /// Whether NCCL may know the memory until it has let go of the communicator.
    after_the_end: bool,
    /// Where NCCL may have registered it for a graph, and know it as long as this.
    linger: Option<Linger>,
}

enum Memory {
    /// Of NCCL, with the uses that may not be done.
    Freed(Address, Uses),
    /// Somebody else's, kept alive.
    Kept(Hold),
}

/// All remains.
struct Yard {
    waiting: Vec<Remains>,
    /// The communicators and devices of those that the reaper has in hand.
    in_hand: Vec<(Option<u64>, Device)>,
    /// Whether something has come since the reaper looked.
    fresh: bool,
    running: bool,
}

static YARD: Mutex<Yard> = Mutex::new(Yard { waiting: Vec::new(), in_hand: Vec::new(), fresh: false, running: false });
static CHANGED: Condvar = Condvar::new();

fn yard() -> MutexGuard<'static, Yard> {
    YARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the reaper, unless it runs: before there is anything to bury.
pub(crate) fn start(operation: &'static str) -> Result<()> {
    let mut yard = yard();
    if !yard.running {
        let spawned = thread::Builder::new().name("gpucomm-reaper".into()).spawn(run);
        spawned.map_err(|error| helper::cannot_start(operation, &error))?;
        scarce::set_holder(holds);
        yard.running = true;
    }
    Ok(())
}

/// Frees memory that is no window, as soon as nothing uses it any more.
pub(crate) fn bury(freed: Freed, inner: &Arc<Inner>) {
    receive(Burial::Soon(freed), inner);
}

/// Frees memory that belongs to no communicator, as soon as nothing uses it any more.
pub(crate) fn bury_alone(Freed { address, device, uses, .. }: Freed) {
    let memory = Memory::Freed(address, uses);
    add(Remains { memory, device, inner: None, after_the_end: false, linger: None });
}

/// Keeps memory alive that NCCL may have registered for a graph of `inner`, which is gone, until NCCL has forgotten it.
pub(crate) fn keep(memory: Hold, inner: &Arc<Inner>) {
    let mut yard = yard();
    let is_it = |one: &&mut Remains| {
        one.owner() == Some(inner.id) && matches!(&one.memory, Memory::Kept(known) if known.is_as(&memory))
    };
    if let Some(known) = yard.waiting.iter_mut().find(is_it) {
        return known.linger.iter_mut().for_each(Linger::begin_anew);
    }
    drop(yard);
    let (device, inner, linger) = (memory.device(), Some(Arc::clone(inner)), Some(Linger::default()));
    add(Remains { memory: Memory::Kept(memory), device, inner, after_the_end: false, linger });
}

/// Frees memory as soon as nothing uses it any more, and NCCL does not know it; lets go of what is not NCCL's.
pub(crate) fn receive(burial: Burial, inner: &Arc<Inner>) {
    let (freed, after_the_end) = match burial {
        Burial::Soon(freed) => (freed, false),
        Burial::AfterTheEnd(freed) => (freed, true),
        Burial::LetGo(memory) => return drop(memory),
    };
    let Freed { address, device, uses, lingers, .. } = freed;
    let (memory, linger) = (Memory::Freed(address, uses), lingers.then(Linger::default));
    add(Remains { memory, device, inner: Some(Arc::clone(inner)), after_the_end, linger });
}

fn add(one: Remains) {
    let mut yard = yard();
    yard.waiting.push(one);
    yard.fresh = true;
    CHANGED.notify_all();
}

/// Waits until no memory of one communicator is on its way here, but what stays until NCCL has forgotten it; whether that happens before the
/// deadline.
pub(crate) fn drain(communicator: u64, deadline: &Deadline) -> bool {
    let holds = || {
        let yard = yard();
        let waits = |one: &Remains| one.owner() == Some(communicator) && !one.stays();
        yard.waiting.iter().any(waits) || yard.in_hand.iter().any(|(id, _)| *id == Some(communicator))
    };
    // What has stayed because of a communicator that has ended goes now.
    wake();
    let mut round = 0;
    while holds() {
        if deadline.expired() {
            return false;
        }
        backoff(round);
        round += 1;
    }
    true
}

fn wake() {
    yard().fresh = true;
    CHANGED.notify_all();
}

/// Whether memory of `device` is about to be freed, of whatever communicator.
fn holds(device: Device) -> bool {
    // What lies under the windows of a communicator that goes on, or was part of its graphs, may stay for ever.
    let stays = |inner: &Arc<Inner>| inner.is_active() || inner.is_revoked() || inner.is_suspended() || inner.rests();
    let may_stay = |one: &Remains| one.after_the_end || one.linger.is_some();
    let comes = |one: &Remains| one.device == device && !(may_stay(one) && one.inner.as_ref().is_some_and(stays));
    let yard = yard();
    yard.in_hand.iter().any(|(_, other)| *other == device) || yard.waiting.iter().any(comes)
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
        let mut yard = yard();
        yard.in_hand.clear();
        yard.waiting.append(&mut kept);
    }
}

/// What is to be looked at, at once where something has come, else after a while.
fn take() -> Vec<Remains> {
    let mut yard = yard();
    if !yard.waiting.is_empty() && !yard.fresh {
        let soon = yard.waiting.iter().any(|one| !one.stays());
        let interval = if soon { INTERVAL } else { LONG };
        yard = CHANGED.wait_timeout(yard, interval).unwrap_or_else(PoisonError::into_inner).0;
    }
    while yard.waiting.is_empty() {
        yard = CHANGED.wait(yard).unwrap_or_else(PoisonError::into_inner);
    }
    yard.fresh = false;
    yard.in_hand = yard.waiting.iter().map(|one| (one.owner(), one.device)).collect();
    std::mem::take(&mut yard.waiting)
}

impl Remains {
    /// The number of the communicator whose it was.
    fn owner(&self) -> Option<u64> {
        self.inner.as_ref().map(|inner| inner.id)
    }

    /// Whether it stays for a while in any case: a graph had it of a communicator that has not ended.
    fn stays(&self) -> bool {
        self.linger.is_some() && self.inner.as_ref().is_some_and(|inner| !inner.is_gone())
    }

    /// Whether nothing uses the memory.
    fn is_idle(&mut self) -> Result<bool> {
        let inner = self.inner.as_ref().filter(|inner| !inner.is_gone());
        if self.after_the_end && inner.is_some() {
            return Ok(false);
        }
        let done = match &mut self.memory {
            Memory::Freed(_, uses) => uses.is_done()?,
            Memory::Kept(memory) => memory.is_idle()?,
        };
        Ok(done && self.linger.as_mut().zip(inner).is_none_or(|(linger, inner)| linger.is_over(inner)))
    }

    /// Whether it stays for good: the communicator was given away of whose graphs it was.
    fn is_lost(&self) -> bool {
        self.linger.is_some() && self.inner.as_ref().is_some_and(|inner| inner.graphs.are_given_away())
    }

    /// It is never freed.
    fn lose(self) {
        if let Memory::Kept(memory) = self.memory {
            std::mem::forget(memory);
        }
    }

    fn free(self) {
        match self.memory {
            Memory::Freed(address, _) => {
                // SAFETY: from `ncclMemAlloc`, freed once, by whoever holds the only `Remains` of it; nothing uses it any more, no window
                // lies over it, and NCCL has forgotten what it has registered of it for graphs.
                let _ = unsafe { sys::ncclMemFree(address.ptr()) };
            }
            // Where this is the last handle: what its owner does here holds up nobody.
            Memory::Kept(memory) => owners::drop_elsewhere(Box::new(memory), self.device),
        }
        scarce::freed();
    }
}
