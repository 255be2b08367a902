//! Waiting on a word of shared memory without burning a core.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The longest sleep: after it a waiter looks at abort flags, dead peers and the clock.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Sleeps until somebody wakes `word`, `timeout` is over, or at once if the word no longer holds `expected`.
pub(crate) fn sleep(word: &AtomicU32, expected: u32, timeout: Duration) {
    let timeout =
        libc::timespec { tv_sec: timeout.as_secs() as libc::time_t, tv_nsec: timeout.subsec_nanos() as libc::c_long };
    // SAFETY: the word is a valid, aligned u32 for the whole call, and the kernel only reads the timeout. The futex is
    // not private, because the word may lie in memory that other processes map.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const timeout);
    }
}

/// Wakes everybody who sleeps on `word`, in every process.
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

/// Looks at `done` for some microseconds, if there is a core to spare while `waiting` ranks wait.
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

/// A word that counts, and how many sleep on it, so that a wake without sleepers costs no system call.
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

    /// Changes the word and wakes its sleepers.
    pub(crate) fn ring(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            wake(&self.word);
        }
    }

    /// Sleeps for at most one slice, unless the bell has rung since `seen` was read.
    pub(crate) fn sleep(&self, seen: u32, timeout: Duration) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        sleep(&self.word, seen, timeout);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Set in [`Gate`]'s word when a rank gave up: nobody passes any more.
const POISON: u32 = 1 << 31;
const COUNT_BITS: u32 = 12;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;
const ROUND_MASK: u32 = (POISON - 1) >> COUNT_BITS;

/// A barrier for up to 4095 ranks that a waiter can leave: until the last one has come.
///
/// A rank that leaves poisons the gate, so the others can never believe that it is there.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU32,
    sleepers: AtomicU32,
    waiting: AtomicU32,
}

/// One rank's place at a [`Gate`]: which round it waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket(u32);

impl Gate {
    /// Comes to the gate. `None`: all `size` ranks are here now, and the others are awake.
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

    /// Whether everybody has come.
    pub(crate) fn open(&self, ticket: Ticket) -> bool {
        (self.word.load(Ordering::Acquire) >> COUNT_BITS) & ROUND_MASK != ticket.0
    }

    /// Waits a while for the others: spins if a core is free, then sleeps for at most `timeout`.
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

    /// Gives up. `false`: too late, everybody has come in the meantime.
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

    /// Gives up before having come.
    pub(crate) fn close(&self) {
        self.word.fetch_or(POISON, Ordering::SeqCst);
        wake(&self.word);
    }

    /// Makes every sleeper look again.
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
