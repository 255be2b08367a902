//! Waiting until a word of shared memory changes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The longest sleep. A waiter then checks for aborts, dead peers and timeouts.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Sleeps until [`wake`] is called on `word` or `timeout` passes. Returns immediately if `word` does not
/// hold `expected`.
pub(crate) fn sleep(word: &AtomicU32, expected: u32, timeout: Duration) {
    let timeout =
        libc::timespec { tv_sec: timeout.as_secs() as libc::time_t, tv_nsec: timeout.subsec_nanos() as libc::c_long };
    // SAFETY: the word is a valid, aligned u32 for the whole call, and the kernel only reads the timeout. The futex is
    // not private, because the word may lie in memory that other processes map.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const timeout);
    }
}

/// Wakes all threads, of every process, that sleep on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: waking reads no memory; the address only names the queue.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

fn cores() -> u32 {
    static CORES: OnceLock<u32> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32))
}

/// Calls `done` repeatedly for some microseconds, until it returns true. Calls it only once if `waiting`
/// ranks already occupy all cores.
pub(crate) fn spin(waiting: u32, mut done: impl FnMut() -> bool) -> bool {
    if waiting >= cores() {
        return done();
    }
    for _ in 0..SPINS {
        if done() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

/// Rounds of [`spin`]; a pause instruction takes 10 to 40 ns.
const SPINS: u32 = 400;

/// A counter that threads wait on. It also counts the sleepers, so that [`ring`](Self::ring) makes no
/// system call if there are none.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Bell {
    word: AtomicU32,
    sleepers: AtomicU32,
}

impl Bell {
    pub(crate) fn read(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    /// Increments the counter and wakes the sleepers.
    pub(crate) fn ring(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            wake(&self.word);
        }
    }

    /// Sleeps until the next ring, for `timeout` at most. Returns immediately if the bell has rung since
    /// `seen` was read.
    pub(crate) fn sleep(&self, seen: u32, timeout: Duration) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        sleep(&self.word, seen, timeout);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The bit of [`Gate`]'s word that says that a rank has given up. The gate then never opens again.
const POISON: u32 = 1 << 31;
const COUNT_BITS: u32 = 12;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;
const ROUND_MASK: u32 = (POISON - 1) >> COUNT_BITS;

/// A barrier for up to 4095 ranks. A rank that waits can leave until the last one has arrived.
///
/// A rank that leaves poisons the gate: it never opens again, so no rank passes without the one that
/// left.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU32,
    sleepers: AtomicU32,
    waiting: AtomicU32,
}

/// The round of a [`Gate`] that a rank waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket(u32);

impl Gate {
    /// Arrives at the gate. Returns `None`, and wakes the other ranks, if this is the last of `size` ranks.
    pub(crate) fn arrive(&self, size: usize) -> Option<Ticket> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let round = (word >> COUNT_BITS) & ROUND_MASK;
            let count = (word & COUNT_MASK) + 1;
            let last = count as usize == size && word & POISON == 0;
            let next = if last {
                ((round + 1) & ROUND_MASK) << COUNT_BITS
            } else {
                (word & POISON) | (round << COUNT_BITS) | (count & COUNT_MASK)
            };
            match self.word.compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) if last => {
                    if self.sleepers.load(Ordering::SeqCst) != 0 {
                        wake(&self.word);
                    }
                    return None;
                }
                Ok(_) => return Some(Ticket(round)),
                Err(now) => word = now,
            }
        }
    }

    /// Whether all ranks have arrived.
    pub(crate) fn open(&self, ticket: Ticket) -> bool {
        (self.word.load(Ordering::Acquire) >> COUNT_BITS) & ROUND_MASK != ticket.0
    }

    /// Waits for the other ranks: spins if a core is free, then sleeps for `timeout` at most. Returns
    /// whether all have arrived.
    pub(crate) fn wait(&self, ticket: Ticket, timeout: Duration) -> bool {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        if !spin(waiting, || self.open(ticket)) {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            let word = self.word.load(Ordering::SeqCst);
            if (word >> COUNT_BITS) & ROUND_MASK == ticket.0 {
                sleep(&self.word, word, timeout);
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.open(ticket)
    }

    /// Gives up waiting and poisons the gate. Returns false, and does nothing, if all ranks have arrived.
    pub(crate) fn leave(&self, ticket: Ticket) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if (word >> COUNT_BITS) & ROUND_MASK != ticket.0 {
                return false;
            }
            match self.word.compare_exchange_weak(word, word | POISON, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => {
                    wake(&self.word);
                    return true;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Poisons the gate for a rank that has not arrived.
    pub(crate) fn close(&self) {
        self.word.fetch_or(POISON, Ordering::SeqCst);
        wake(&self.word);
    }

    /// Wakes the sleepers, so that they check their conditions again.
    pub(crate) fn nudge(&self) {
        wake(&self.word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        Gate { word: AtomicU32::new(0), sleepers: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    #[test]
    fn the_last_rank_opens_the_gate() {
        let gate = gate();
        let ticket = gate.arrive(2).expect("the first waits");
        assert!(!gate.open(ticket));
        assert!(gate.arrive(2).is_none());
        assert!(gate.open(ticket));
    }

    #[test]
    fn a_gate_that_somebody_left_never_opens() {
        let gate = gate();
        let ticket = gate.arrive(2).expect("the first waits");
        assert!(gate.leave(ticket));
        let other = gate.arrive(2).expect("nobody opens a poisoned gate");
        assert!(!gate.open(other));
    }

    #[test]
    fn leaving_an_open_gate_is_too_late() {
        let gate = gate();
        let ticket = gate.arrive(2).expect("the first waits");
        assert!(gate.arrive(2).is_none());
        assert!(!gate.leave(ticket));
    }

    #[test]
    fn threads_pass_many_rounds_together() {
        let gate = gate();
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=2000u32 {
                        inside.fetch_add(1, Ordering::SeqCst);
                        if let Some(ticket) = gate.arrive(3) {
                            while !gate.wait(ticket, SLICE) {}
                        }
                        assert!(inside.load(Ordering::SeqCst) >= 3 * round);
                        if let Some(ticket) = gate.arrive(3) {
                            while !gate.wait(ticket, SLICE) {}
                        }
                    }
                });
            }
        });
    }
}
