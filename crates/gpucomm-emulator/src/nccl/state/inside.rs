//! Who is inside a communicator.
//!
//! NCCL's calls on one communicator must come one at a time, and while it is being aborted or destroyed none may be under way:
//! it would go on in memory that is free. Only `ncclCommRevoke` and `ncclCommGetAsyncError` may come beside others, and even they
//! not beside its end. Communicators that share their resources count as one, but for those two: these may come beside the end of another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::report;

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
        let mut visits = lock(&self.0);
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
        lock(&self.0).iter().any(|visit| visit.manner == Manner::Alone)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut visits = lock(&self.visits);
        if let Some(last) = visits.iter().rposition(|visit| visit.thread == self.thread) {
            visits.swap_remove(last);
        }
    }
}
