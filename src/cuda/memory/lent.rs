//! What keeps memory of others alive: dropped when the device is done with that memory.
//!
//! Where that is so already when the last buffer goes, the thread that drops it drops the owner as well. Else a thread of this crate
//! does, later: it is made with the first such memory, as a destructor could not say that there is none to be had.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::allocation::{FreeHook, Freed, Known};
use crate::cuda::devices::device::Device;
use crate::cuda::devices::settle::settle;
use crate::cuda::order::lanes::Uses;
use crate::error::{Error, Result};

/// How often it looks at memory that is still in use.
const INTERVAL: Duration = Duration::from_millis(5);

/// An owner whose memory may still be used.
struct Lent {
    owner: Box<dyn Send>,
    device: Device,
    behind: Behind,
}

/// What is to be done before an owner is dropped.
enum Behind {
    Uses(Uses),
    /// The uses of memory that others may show.
    Known(Arc<Known>),
}

impl Behind {
    fn is_done(&mut self) -> Result<bool> {
        match self {
            Self::Uses(uses) => uses.is_done(),
            Self::Known(known) => known.is_idle(),
        }
    }
}

struct Keeper {
    waiting: Vec<Lent>,
    /// Whether something has come since the thread looked.
    fresh: bool,
    running: bool,
}

static KEEPER: Mutex<Keeper> = Mutex::new(Keeper { waiting: Vec::new(), fresh: false, running: false });
static CHANGED: Condvar = Condvar::new();

fn keeper() -> MutexGuard<'static, Keeper> {
    KEEPER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sees to it that there is the thread that drops owners, for `operation`.
pub(crate) fn start(operation: &'static str) -> Result<()> {
    let mut keeper = keeper();
    if !keeper.running {
        let spawned = thread::Builder::new().name("gpucomm-owners".into()).spawn(run);
        spawned.map_err(|error| Error::InvalidUsage {
            operation,
            reason: format!("a thread cannot be started: {error}"),
        })?;
        keeper.running = true;
    }
    Ok(())
}

/// What drops `owner` when memory that it keeps alive is not used any more.
pub(crate) fn hook(operation: &'static str, owner: impl Send + 'static) -> Result<FreeHook> {
    start(operation)?;
    // A hook is Sync, and an owner need not be: nobody refers to it.
    let owner = Mutex::new(Box::new(owner));
    Ok(Box::new(move |Freed { device, uses, .. }| {
        let owner: Box<dyn Send> = owner.into_inner().unwrap_or_else(PoisonError::into_inner);
        wait(Lent { owner, device, behind: Behind::Uses(uses) });
    }))
}

/// Drops `owner` when all of which is known that it uses its memory on `device` is done. The thread was [started](start).
pub(crate) fn keep(owner: impl Send + 'static, device: Device, known: Arc<Known>) {
    wait(Lent { owner: Box::new(owner), device, behind: Behind::Known(known) });
}

fn wait(lent: Lent) {
    if let Some(left) = lent.settled() {
        let mut keeper = keeper();
        keeper.waiting.push(left);
        keeper.fresh = true;
        CHANGED.notify_all();
    }
}

fn run() {
    loop {
        let left: Vec<_> = take().into_iter().filter_map(Lent::look).collect();
        keeper().waiting.extend(left);
    }
}

/// What is to be looked at, at once where something has come, else after a while.
fn take() -> Vec<Lent> {
    let mut keeper = keeper();
    if !keeper.waiting.is_empty() && !keeper.fresh {
        keeper = CHANGED.wait_timeout(keeper, INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
    }
    while keeper.waiting.is_empty() {
        keeper = CHANGED.wait(keeper).unwrap_or_else(PoisonError::into_inner);
    }
    keeper.fresh = false;
    std::mem::take(&mut keeper.waiting)
}

impl Lent {
    /// As [`Lent::settled`], on the thread of this crate.
    fn look(mut self) -> Option<Self> {
        let done = settle(self.device).and_then(|()| self.behind.is_done());
        self.settle_for(done)
    }

    /// Drops the owner, unless something still uses the memory.
    fn settled(mut self) -> Option<Self> {
        let done = self.behind.is_done();
        self.settle_for(done)
    }

    /// On a device that is lost nobody knows what is used, so the owner is lost as well.
    fn settle_for(self, done: Result<bool>) -> Option<Self> {
        match done {
            Ok(true) => drop_quietly(self.owner),
            Err(Error::DeviceLost { .. }) => std::mem::forget(self.owner),
            Ok(false) | Err(_) => return Some(self),
        }
        None
    }
}

thread_local! {
    /// While this thread drops an owner: those that have come to their end meanwhile.
    static NEXT: RefCell<Option<Vec<Box<dyn Send>>>> = const { RefCell::new(None) };
}

/// Drops an owner. What it owned in turn, however long that chain is, goes after it and takes no more of the stack.
fn drop_quietly(owner: Box<dyn Send>) {
    let mut owner = Some(owner);
    // A thread that ends has no list any more, and does without.
    let first = NEXT.try_with(|next| match &mut *next.borrow_mut() {
        Some(waiting) => {
            waiting.extend(owner.take());
            false
        }
        none => {
            *none = Some(Vec::new());
            true
        }
    });
    while let Some(one) = owner.take() {
        drop_one(one);
        if first == Ok(true) {
            owner = NEXT.with(|next| {
                let mut next = next.borrow_mut();
                let one = next.as_mut().and_then(Vec::pop);
                if one.is_none() {
                    *next = None;
                }
                one
            });
        }
    }
}

/// A destructor of ours does not panic, nor must the thread.
fn drop_one(owner: Box<dyn Send>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(owner))) {
        // What was thrown may itself panic when it is dropped.
        std::mem::forget(payload);
    }
}
