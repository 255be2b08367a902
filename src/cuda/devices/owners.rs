//! What keeps memory and streams of others alive: dropped when the device is done with them.
//!
//! Where that is so already when the last buffer goes, the thread that drops it drops the owner as well. Else a thread of this crate
//! sees to it later: it is made with the first such memory or stream, as a destructor could not say that there is none to be had.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use super::device::Device;
use super::settle::settle;
use super::thread::is_forked;
use crate::callbacks;
use crate::error::{Error, Result};
use crate::lock::{Condvar, Mutex, MutexGuard};
use crate::panicked;

/// How often it looks at memory that is still in use.
const INTERVAL: Duration = Duration::from_millis(5);

/// An owner of what may still be used.
struct Lent {
    owner: Box<dyn Send>,
    device: Device,
    /// Whether that is over.
    done: Done,
}

/// Whether what an owner keeps is used no more. Does not wait.
pub(crate) type Done = Box<dyn FnMut() -> Result<bool> + Send>;

struct Keeper {
    waiting: Vec<Lent>,
    /// Whether something has come since the thread looked.
    fresh: bool,
    running: bool,
}

static KEEPER: Mutex<Keeper> = Mutex::new(Keeper { waiting: Vec::new(), fresh: false, running: false });
static CHANGED: Condvar = Condvar::new();

fn keeper() -> MutexGuard<'static, Keeper> {
    KEEPER.lock()
}

/// Starts the thread that drops owners, unless it runs: before there is one.
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

/// Drops `owner`, at once where it is `done` on `device`, else later.
pub(crate) fn drop_when(owner: Box<dyn Send>, device: Device, done: Done) {
    if let Some(left) = (Lent { owner, device, done }).settled() {
        hand_over(left);
    }
}

/// As [`drop_when`], on a thread of this crate even where it is done already: where dropping it may take long.
pub(crate) fn drop_later(owner: Box<dyn Send>, device: Device, done: Done) {
    hand_over(Lent { owner, device, done });
}

/// Has a thread of this crate drop `owner`: not where locks may be held.
pub(crate) fn drop_elsewhere(owner: Box<dyn Send>, device: Device) {
    hand_over(Lent { owner, device, done: Box::new(|| Ok(true)) });
}

fn hand_over(one: Lent) {
    if is_forked() {
        // There is no such thread, and its lock may be taken.
        return std::mem::forget(one);
    }
    let mut keeper = keeper();
    keeper.waiting.push(one);
    keeper.fresh = true;
    CHANGED.notify_all();
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
        keeper = CHANGED.wait_timeout(keeper, INTERVAL);
    }
    while keeper.waiting.is_empty() {
        keeper = CHANGED.wait(keeper);
    }
    keeper.fresh = false;
    std::mem::take(&mut keeper.waiting)
}

impl Lent {
    /// As [`Lent::settled`], on the thread of this crate. It has another thread drop the owner: the destructor may be the user's, and block.
    fn look(mut self) -> Option<Self> {
        let (done, device) = (settle(self.device).and_then(|()| (self.done)()), self.device);
        self.settle_for(done, |owner| {
            callbacks::run(move || {
                // Where this fails, the destructor finds the device itself.
                let _ = settle(device);
                drop_quietly(owner);
            });
        })
    }

    /// Drops the owner, unless something still uses the memory.
    fn settled(mut self) -> Option<Self> {
        let done = (self.done)();
        self.settle_for(done, drop_quietly)
    }

    /// On a device that is lost nobody knows what is used, so the owner is lost as well.
    fn settle_for(self, done: Result<bool>, drop: impl FnOnce(Box<dyn Send>)) -> Option<Self> {
        match done {
            Ok(true) => drop(self.owner),
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
    let _ = panicked::caught(|| drop(owner));
}
