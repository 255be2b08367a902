//! The way into NCCL: one thread at a time, and none once somebody is about to free the communicator.
//!
//! A call is made by the thread that holds the lock, and only during a visit. Who ends the communicator shuts the gate, and
//! does not ask for the lock: its holder may be in a driver call that waits for the very kernels that the end would stop.
//! From then on nobody comes in; who is inside is waited for, or woken, and who holds the lock outside is refused when it
//! tries. Asking for asynchronous errors takes nanoseconds and may happen beside any other call, so it needs no lock: it is
//! counted, and waited for as well.
//!
//! Where the calls of several ranks wait for each other inside NCCL, either all of them come in or none: each is promised its visit
//! before the first begins it. A promise is not given once the gate is shut; one that was given is waited for like a visit.
//!
//! Communicators that share what NCCL has for them share the lock too: one thread is inside any of them at a time. Their doors and visits
//! are their own.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::nccl::agree::name::{pack, unpack};

/// The gate is shut; beside it, in the same word, how many promises there are.
const SHUT: u32 = 1 << 31;

/// A lock that several gates have. Its line is its own: they do not lie together.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Lock {
    locked: AtomicBool,
    /// Its place in the order in which locks are taken.
    pub(crate) order: u64,
    /// For the threads that end those that have it.
    turn: Mutex<()>,
}

impl Lock {
    pub(crate) fn new(order: u64) -> Arc<Self> {
        Arc::new(Self { locked: AtomicBool::new(false), order, turn: Mutex::default() })
    }

    /// For the one thread that stops one of those that have this lock: they have a flag in common.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock over `T`, and the gate that its holder passes through. What each call looks at lies together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Gate<T> {
    /// Where the lock is shared, it seems to be held for ever: so who shares nothing looks at nothing else.
    locked: AtomicBool,
    door: AtomicU32,
    readers: AtomicU32,
    /// Odd during a visit. Only the holder of the lock writes it.
    visits: AtomicU64,
    /// What the last one is for, and since when: the name of a method, and a time.
    what: AtomicU64,
    since: AtomicU64,
    shared: Option<Arc<Lock>>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through `Locked` only, of which there is one at a time: `locked` sees to that.
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    /// With a lock of its own, unless it shares one.
    pub(crate) fn new(value: T, shared: Option<Arc<Lock>>) -> Self {
        Self {
            locked: AtomicBool::new(shared.is_some()),
            shared,
            door: AtomicU32::new(0),
            readers: AtomicU32::new(0),
            visits: AtomicU64::new(0),
            what: AtomicU64::new(0),
            since: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// The lock, if nobody holds it. Given back also by a holder that panics: it leaves nothing half done.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, T>> {
        if take(&self.locked) { Some(Locked { gate: self, lock: &self.locked }) } else { self.try_shared() }
    }

    #[cold]
    fn try_shared(&self) -> Option<Locked<'_, T>> {
        let lock = &self.shared.as_deref()?.locked;
        take(lock).then(|| Locked { gate: self, lock })
    }

    /// The lock that it shares with others, if it does.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&Arc<Lock>> {
        self.shared.as_ref()
    }

    /// Begins a visit for `operation`, at this time; false where the gate is shut, unless the visit was promised. The caller holds the lock,
    /// and ends the visit if it has begun.
    #[inline]
    #[must_use]
    pub(crate) fn enter(&self, operation: &'static str, since: u64) -> bool {
        let visit = self.visits.load(Ordering::Relaxed);
        // Who reads any of what follows finds the visit before it over.
        fence(Ordering::Release);
        self.what.store(pack(operation), Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        // Sequentially consistent, as everything is that `shut` and `is_empty` do: either this thread sees that the gate is
        // shut, or who shuts it sees this visit.
        self.visits.swap(visit + 1, Ordering::SeqCst);
        if self.door.load(Ordering::SeqCst) == SHUT {
            self.leave();
            return false;
        }
        true
    }

    /// Ends a visit.
    #[inline]
    pub(crate) fn leave(&self) {
        self.visits.store(self.visits.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Promises visits to who holds the lock, until [`Gate::redeem`]; false where the gate is shut.
    #[must_use]
    pub(crate) fn promise(&self) -> bool {
        let more = |door: u32| (door & SHUT == 0).then_some(door + 1);
        self.door.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// The same where the gate may be shut. The caller sees to it, afterwards, that nobody takes it for empty who ends what lies behind.
    pub(crate) fn promise_though_shut(&self) {
        self.door.fetch_add(1, Ordering::SeqCst);
    }

    /// The visits that were promised are over, or will not be made.
    pub(crate) fn redeem(&self) {
        self.door.fetch_sub(1, Ordering::SeqCst);
    }

    /// Runs `ask` beside whatever else happens inside; `None` where the gate is shut. `ask` must not block, nor panic.
    #[inline]
    pub(crate) fn beside<R>(&self, ask: impl FnOnce() -> R) -> Option<R> {
        self.readers.fetch_add(1, Ordering::SeqCst);
        let answer = (self.door.load(Ordering::SeqCst) & SHUT == 0).then(ask);
        self.readers.fetch_sub(1, Ordering::Release);
        answer
    }

    /// Lets nobody in any more.
    pub(crate) fn shut(&self) {
        self.door.fetch_or(SHUT, Ordering::SeqCst);
    }

    /// Whether nobody is inside or about to be, as was promised: of a gate that is shut for good, for good.
    pub(crate) fn is_empty(&self) -> bool {
        let promised = self.door.load(Ordering::SeqCst) & !SHUT != 0;
        !promised && self.visits.load(Ordering::SeqCst).is_multiple_of(2) && self.readers.load(Ordering::SeqCst) == 0
    }

    /// A number that changes with each visit; odd during one.
    pub(crate) fn visit(&self) -> u64 {
        self.visits.load(Ordering::Acquire)
    }

    /// What the visit that goes on is for, and since when it does.
    pub(crate) fn visitor(&self) -> Option<(&'static str, u64)> {
        let visit = self.visit();
        let (what, since) = (self.what.load(Ordering::Relaxed), self.since.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let goes_on = visit % 2 == 1 && self.visits.load(Ordering::Relaxed) == visit;
        // SAFETY: only what `pack` has made is stored there.
        goes_on.then(|| (unsafe { unpack(what) }, since))
    }
}

/// Takes a lock, if nobody holds it.
#[inline]
fn take(lock: &AtomicBool) -> bool {
    lock.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// The lock, held.
#[derive(Debug)]
pub(crate) struct Locked<'a, T> {
    gate: &'a Gate<T>,
    lock: &'a AtomicBool,
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock, and nobody else reaches the value without it.
        unsafe { &*self.gate.value.get() }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { &mut *self.gate.value.get() }
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.store(false, Ordering::Release);
    }
}

/// Gates whose locks one thread holds, each lock once.
#[derive(Debug)]
pub(crate) struct LockedAll<'a, T> {
    gates: SmallVec<[&'a Gate<T>; 4]>,
    locks: SmallVec<[Locked<'a, T>; 4]>,
}

impl<'a, T> LockedAll<'a, T> {
    pub(crate) fn new() -> Self {
        Self { gates: SmallVec::new(), locks: SmallVec::new() }
    }

    /// One more, whose lock was taken for it.
    #[inline]
    pub(crate) fn add(&mut self, locked: Locked<'a, T>) {
        self.gates.push(locked.gate);
        self.locks.push(locked);
    }

    /// One more, if it shares a lock that is held here, and is not among them.
    #[inline]
    pub(crate) fn join(&mut self, gate: &'a Gate<T>) -> bool {
        gate.shared.as_deref().is_some_and(|shared| self.join_shared(gate, &shared.locked))
    }

    #[cold]
    fn join_shared(&mut self, gate: &'a Gate<T>, shared: &AtomicBool) -> bool {
        let holds = self.locks.iter().any(|locked| ptr::eq(locked.lock, shared));
        let joins = holds && !self.gates.iter().any(|other| ptr::eq(*other, gate));
        if joins {
            self.gates.push(gate);
        }
        joins
    }

    /// What they guard, in the order in which they came.
    #[inline]
    pub(crate) fn values(&mut self) -> impl Iterator<Item = &mut T> {
        // SAFETY: this thread holds the lock of each as long as `self` lives, and nobody else reaches the values without it. No gate is
        // here twice: one that came with its lock was not locked before, and one that has joined was not here. `self` is borrowed alone.
        self.gates.iter().map(|gate| unsafe { &mut *gate.value.get() })
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
