//! Knows which ranks of a clique have left and take part in nothing more, and which thread drives each rank.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::lock::{Mutex, MutexGuard};

/// Why a rank comes to nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// Its communicator is being closed or dropped, and has no work of its own left, or work to
    /// which others do not come.
    Closed,
    /// Its program has returned. Once those of all ranks have, there may be another.
    Returned,
}

/// How `rank` has left, in place of what it should have issued, after so many collectives.
pub(crate) fn gone(rank: usize, how: Departure, passed: u64, last: Option<String>) -> String {
    let how = match how {
        Departure::Closed => "has closed its communicator",
        Departure::Returned => "has left, as its program has returned",
    };
    let last = last.map(|last| format!(", the last of them {last}")).unwrap_or_default();
    let s = if passed == 1 { "" } else { "s" };
    format!("nothing: rank {rank} {how}, after {passed} collective{s}{last}")
}

/// Written where ranks come and go; read by those who wait.
#[derive(Debug)]
pub(crate) struct Presence {
    states: Box<[RankState]>,
    /// Together: who looks while one run ends and another begins must not take parts of either for
    /// the state of one.
    programs: Mutex<Programs>,
    /// Whether any rank has ever closed.
    any_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct RankState {
    closed: AtomicBool,
    /// Whether all that the rank had issued when it closed is done.
    idle: AtomicBool,
    /// The thread that was seen last with this rank; 0 where that is not known.
    driver: AtomicU64,
}

#[derive(Debug)]
struct Programs {
    /// For each rank, those that have not returned.
    going_on: Box<[u32]>,
}

thread_local! {
    /// Where this thread runs the program of a rank, by address.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl Presence {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            states: (0..size).map(|_| RankState::default()).collect(),
            programs: Mutex::new(Programs { going_on: vec![0; size].into() }),
            any_closed: AtomicBool::new(false),
        }
    }

    /// `rank` comes to nothing more, for good.
    pub(crate) fn close(&self, rank: usize) {
        self.states[rank].closed.store(true, Ordering::Release);
        self.any_closed.store(true, Ordering::Release);
    }

    /// All that `rank`, which closes its communicator, has issued is done.
    pub(crate) fn set_idle(&self, rank: usize) {
        self.states[rank].idle.store(true, Ordering::Release);
    }

    /// Whether that is so.
    pub(crate) fn is_idle(&self, rank: usize) -> bool {
        self.states[rank].idle.load(Ordering::Acquire)
    }

    /// Whether any rank comes to nothing more, for good.
    pub(crate) fn any_closed(&self) -> bool {
        self.any_closed.load(Ordering::Acquire)
    }

    /// Returns why `rank` issues nothing more that this thread can wait for, also through operations of
    /// other ranks. The caller then sees all that `rank` had issued before.
    pub(crate) fn departure(&self, rank: usize) -> Option<Departure> {
        if self.states[rank].closed.load(Ordering::Acquire) {
            return Some(Departure::Closed);
        }
        // While a program goes on, which is what this thread runs, no later one begins that `rank` may come in. Threads outside may
        // wait for what a later run brings.
        let gone = self.runs_here() && self.programs().going_on[rank] == 0;
        gone.then_some(Departure::Returned)
    }

    /// Whether this thread runs the program of a rank.
    fn runs_here(&self) -> bool {
        let this = ptr::from_ref(self).addr();
        // A thread whose thread-locals are gone runs no program.
        RUNNING.try_with(|running| running.borrow().contains(&this)).unwrap_or(false)
    }

    fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock()
    }

    /// This thread makes calls as `rank`.
    pub(crate) fn drive(&self, rank: usize) {
        self.states[rank].driver.store(this_thread(), Ordering::Relaxed);
    }

    /// Whether another thread than this one is known to drive `rank`.
    pub(crate) fn is_driven_elsewhere(&self, rank: usize) -> bool {
        ![0, this_thread()].contains(&self.states[rank].driver.load(Ordering::Relaxed))
    }
}

/// A number for each thread.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// One run of a program on every rank.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    presence: &'a Presence,
    returned: Box<[AtomicBool]>,
}

impl<'a> Run<'a> {
    pub(crate) fn begin(presence: &'a Presence) -> Self {
        let mut programs = presence.programs();
        programs.going_on.iter_mut().for_each(|going_on| *going_on += 1);
        drop(programs);
        Self { presence, returned: presence.states.iter().map(|_| AtomicBool::new(false)).collect() }
    }

    /// Marks this thread as the one that runs the program of `rank`, until the mark is dropped.
    pub(crate) fn here(&self, rank: usize) -> Here<'a> {
        self.presence.drive(rank);
        let this = ptr::from_ref(self.presence).addr();
        let _ = RUNNING.try_with(|running| running.borrow_mut().push(this));
        Here(self.presence)
    }

    /// Records that the program of `rank` has returned without an error. An error ends the other ranks in another way.
    pub(crate) fn returns(&self, rank: usize) {
        self.returns_in(&mut self.presence.programs(), rank);
    }

    fn returns_in(&self, programs: &mut Programs, rank: usize) {
        if !self.returned[rank].swap(true, Ordering::Relaxed) {
            programs.going_on[rank] -= 1;
        }
    }
}

/// A mark that the thread which made it runs the program of a rank.
#[derive(Debug)]
pub(crate) struct Here<'a>(&'a Presence);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        let this = ptr::from_ref(self.0).addr();
        let _ = RUNNING.try_with(|running| {
            let mut running = running.borrow_mut();
            if let Some(last) = running.iter().rposition(|one| *one == this) {
                running.remove(last);
            }
        });
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut programs = self.presence.programs();
        for (rank, state) in self.presence.states.iter().enumerate() {
            self.returns_in(&mut programs, rank);
            state.driver.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_closed_is_gone_for_good() {
        let presence = Presence::new(3);
        assert_eq!((presence.any_closed(), presence.departure(1)), (false, None));
        presence.close(1);
        assert_eq!((presence.any_closed(), presence.departure(1)), (true, Some(Departure::Closed)));
        assert_eq!(presence.departure(2), None);
    }

    #[test]
    fn who_has_returned_is_gone_for_those_whose_program_goes_on() {
        let presence = Presence::new(3);
        let (run, other) = (Run::begin(&presence), Run::begin(&presence));
        let here = run.here(0);
        run.returns(1);
        assert_eq!(presence.departure(1), None, "it has another program");
        drop(other);
        assert_eq!((presence.departure(1), presence.departure(2)), (Some(Departure::Returned), None));
        // Whose operation it is that this thread waits for does not matter.
        run.returns(2);
        assert_eq!(presence.departure(2), Some(Departure::Returned));
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(presence.departure(1), None)).join().unwrap());
        drop(here);
        assert_eq!(presence.departure(1), None, "this thread runs no program");
        drop(run);
        let run = Run::begin(&presence);
        let _here = run.here(0);
        assert_eq!(presence.departure(1), None);
    }

    /// Somebody outside of the programs waits for rank 0, which returns first in every run.
    #[test]
    fn who_looks_between_runs_takes_nobody_for_gone() {
        let presence = Presence::new(2);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut looks = 0u64;
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(presence.departure(1), None, "after {looks} looks");
                    looks += 1;
                }
            });
            for _ in 0..100_000 {
                let run = Run::begin(&presence);
                run.returns(0);
                run.returns(1);
            }
            over.store(true, Ordering::Relaxed);
            looks.join().unwrap();
        });
    }

    #[test]
    fn threads_are_told_apart() {
        let presence = Presence::new(2);
        assert!(!presence.is_driven_elsewhere(0), "it is not known");
        presence.drive(0);
        assert!(!presence.is_driven_elsewhere(0));
        std::thread::scope(|scope| scope.spawn(|| assert!(presence.is_driven_elsewhere(0))).join().unwrap());
        std::thread::scope(|scope| scope.spawn(|| presence.drive(0)).join().unwrap());
        assert!(presence.is_driven_elsewhere(0));
    }
}
