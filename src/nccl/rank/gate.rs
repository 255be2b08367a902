//! The gate to NCCL: lets in one thread at a time, and none once a thread is about to free the
//! communicator.
//!
//! A call is made by the thread that holds the lock, and only during a visit. A thread that ends
//! the communicator shuts the gate. It does not take the lock: the holder may be in a driver call
//! that waits for the very kernels that the end would stop. From then on no thread enters. A thread
//! that is inside is waited for, or woken. One that holds the lock outside is refused when it tries
//! to enter.
//!
//! A question for asynchronous errors takes nanoseconds and may be asked beside any other call. So
//! it needs no lock, but is counted, and waited for as well.
//!
//! If the calls of several ranks wait for each other inside NCCL, either all of them enter or none:
//! each is promised its visit before the first begins. The gate promises nothing once it is shut. A
//! promise that was given is waited for like a visit, unless it is broken: a thread that has a promise and
//! stays outside for long waits for a store that does not answer.
//!
//! Communicators that share resources have one lock: one thread is inside any of them at a time.
//! Each has its own door and visits.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use smallvec::SmallVec;

use crate::lock::{Mutex, MutexGuard};
use crate::nccl::rank::name::{pack, unpack};

/// The bit of `door` that says that the gate is shut.
const SHUT: u32 = 1 << 31;

/// The bit that says that promises are broken. The other bits count promises.
const BROKEN: u32 = 1 << 30;

/// A lock that several gates share. It has a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Lock {
    locked: AtomicBool,
    /// Its place in the order in which locks are taken.
    pub(crate) order: u64,
    /// Taken by threads that end communicators that have this lock.
    turn: Mutex<()>,
}

impl Lock {
    pub(crate) fn new(order: u64) -> Arc<Self> {
        Arc::new(Self { locked: AtomicBool::new(false), order, turn: Mutex::default() })
    }

    /// The turn of the one thread that revokes a communicator with this lock: they have NCCL's flag
    /// in common.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }
}

/// A lock over `T`, and the gate that its holder passes. Fields that each call reads lie together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Gate<T> {
    /// Always true if the lock is shared: so a rank that shares nothing reads only this.
    locked: AtomicBool,
    door: AtomicU32,
    readers: AtomicU32,
    /// Odd during a visit. Written only by the holder of the lock.
    visits: AtomicU64,
    /// What the last visit is for, the name of a method, and when it began.
    what: AtomicU64,
    since: AtomicU64,
    shared: Option<Arc<Lock>>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through `Locked` only, of which there is one at a time: the lock
// sees to that.
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    /// A gate with a lock of its own, unless it shares one.
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

    /// Takes the lock, if no thread holds it. A holder that panics gives it back, and leaves
    /// nothing half done.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, T>> {
        if take(&self.locked) { Some(Locked { gate: self, lock: &self.locked }) } else { self.try_shared() }
    }

    #[cold]
    fn try_shared(&self) -> Option<Locked<'_, T>> {
        let lock = &self.shared.as_deref()?.locked;
        take(lock).then(|| Locked { gate: self, lock })
    }

    /// The lock that it shares with other gates, if it does.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&Arc<Lock>> {
        self.shared.as_ref()
    }

    /// Begins a visit for `operation`, at this time. Returns false if the gate is shut, unless the
    /// visit was promised. The caller holds the lock, and ends the visit if it has begun.
    #[inline]
    #[must_use]
    pub(crate) fn begin_visit(&self, operation: &'static str, since: u64) -> bool {
        let visit = self.visits.load(Ordering::Relaxed);
        // A thread that reads any of the following also sees that the visit before is over.
        fence(Ordering::Release);
        self.what.store(pack(operation), Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        // Sequentially consistent, as all accesses of `shut` and `is_empty` are: either this thread
        // sees that the gate is shut, or the thread that shuts it sees this visit.
        self.visits.swap(visit + 1, Ordering::SeqCst);
        let door = self.door.load(Ordering::SeqCst);
        if door & SHUT != 0 && (door & BROKEN != 0 || door == SHUT) {
            self.end_visit();
            return false;
        }
        true
    }

    /// Ends a visit.
    #[inline]
    pub(crate) fn end_visit(&self) {
        self.visits.store(self.visits.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Promises visits to the holder of the lock, until [`Gate::redeem`]. Returns false if the gate
    /// is shut.
    #[must_use]
    pub(crate) fn promise(&self) -> bool {
        let more = |door: u32| (door & SHUT == 0).then_some(door + 1);
        self.door.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Promises visits even if the gate is shut. The caller then makes sure that no thread that
    /// ends the communicator takes the gate for empty.
    pub(crate) fn promise_though_shut(&self) {
        self.door.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes a promise back: its visits are over, or will not be made.
    pub(crate) fn redeem(&self) {
        let less = |door: u32| match door - 1 {
            // The last one: promises that are given from now on hold.
            door if door & !(SHUT | BROKEN) == 0 => Some(door & SHUT),
            door => Some(door),
        };
        let _ = self.door.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    /// Breaks the promises that were given, if the gate is shut: visits that have not begun do not begin.
    pub(crate) fn break_promises(&self) {
        let broken = |door: u32| (door & SHUT != 0 && door != SHUT).then_some(door | BROKEN);
        let _ = self.door.fetch_update(Ordering::SeqCst, Ordering::SeqCst, broken);
    }

    /// Runs `ask` beside calls of other threads. `None` if the gate is shut. `ask` must neither
    /// block nor panic.
    #[inline]
    pub(crate) fn beside<R>(&self, ask: impl FnOnce() -> R) -> Option<R> {
        self.readers.fetch_add(1, Ordering::SeqCst);
        let answer = (self.door.load(Ordering::SeqCst) & SHUT == 0).then(ask);
        self.readers.fetch_sub(1, Ordering::Release);
        answer
    }

    /// Shuts the gate: no thread enters any more.
    pub(crate) fn shut(&self) {
        self.door.fetch_or(SHUT, Ordering::SeqCst);
    }

    /// Whether no thread is inside, nor was promised a visit. Stays so once the gate is shut.
    pub(crate) fn is_empty(&self) -> bool {
        let door = self.door.load(Ordering::SeqCst);
        let promised = door & BROKEN == 0 && door & !SHUT != 0;
        !promised && self.visits.load(Ordering::SeqCst).is_multiple_of(2) && self.readers.load(Ordering::SeqCst) == 0
    }

    /// A number that changes with each visit. Odd during one.
    pub(crate) fn visit(&self) -> u64 {
        self.visits.load(Ordering::Acquire)
    }

    /// What the visit that is under way is for, and since when.
    pub(crate) fn visitor(&self) -> Option<(&'static str, u64)> {
        let visit = self.visit();
        let (what, since) = (self.what.load(Ordering::Relaxed), self.since.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let goes_on = visit % 2 == 1 && self.visits.load(Ordering::Relaxed) == visit;
        // SAFETY: only what `pack` has made is stored there.
        goes_on.then(|| (unsafe { unpack(what) }, since))
    }
}

/// Takes a lock, if no thread holds it.
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
        // SAFETY: this thread holds the lock, and no other reaches the value without it.
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

/// Several gates whose locks one thread holds. It takes each lock once.
#[derive(Debug)]
pub(crate) struct LockedAll<'a, T> {
    gates: SmallVec<[&'a Gate<T>; 4]>,
    locks: SmallVec<[Locked<'a, T>; 4]>,
}

impl<'a, T> LockedAll<'a, T> {
    pub(crate) fn new() -> Self {
        Self { gates: SmallVec::new(), locks: SmallVec::new() }
    }

    /// Adds a gate whose lock was taken for it.
    #[inline]
    pub(crate) fn add(&mut self, locked: Locked<'a, T>) {
        self.gates.push(locked.gate);
        self.locks.push(locked);
    }

    /// Adds a gate that shares a lock that is held here, if it is not there already.
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

    /// The guarded values, in the order in which the gates were added.
    #[inline]
    pub(crate) fn values(&mut self) -> impl Iterator<Item = &mut T> {
        // SAFETY: this thread holds the lock of each as long as `self` lives, and no other reaches
        // the values without it. No gate is here twice: one that came with its lock was not locked
        // before, and one that has joined was not here. `self` is borrowed alone.
        self.gates.iter().map(|gate| unsafe { &mut *gate.value.get() })
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
