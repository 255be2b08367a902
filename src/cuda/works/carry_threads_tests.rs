//! Two threads at parts of one allocation: no operation is lost, and nobody finds well what he did not come after.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Comm, History, Lineage, fail, operation};
use crate::cuda::works::carry::{Form, Source, operation as after, reads};

/// Halves of one allocation, written by two threads with works of their own: no operation is lost.
#[test]
fn two_threads() {
    const OPERATIONS: u64 = 8;
    let lineages: Vec<_> = (0..4000).map(|_| Lineage::new()).collect();
    // On a busy machine the two seldom run at once, and fewer rounds have to do.
    let (arrived, end, begin) = (AtomicUsize::new(0), AtomicUsize::new(lineages.len()), Instant::now());
    std::thread::scope(|scope| {
        for at in 0..2 {
            let (lineages, arrived, end) = (&lineages, &arrived, &end);
            scope.spawn(move || {
                let (mut comm, history) = (Comm::new(at), History::default());
                for (round, lineage) in lineages.iter().enumerate() {
                    if at == 0 && begin.elapsed() > Duration::from_secs(5) {
                        end.store(round, Ordering::Release);
                    }
                    arrived.fetch_add(1, Ordering::AcqRel);
                    while arrived.load(Ordering::Acquire) < 2 * (round + 1) {
                        std::thread::yield_now();
                    }
                    if round >= end.load(Ordering::Acquire) {
                        break;
                    }
                    // The second one comes into the middle of what the first one does past the mutex.
                    let count = if at == 0 { OPERATIONS } else { 1 };
                    for _ in 0..count {
                        let (work, number) = comm.next(&history);
                        operation((&work, number), [None, None], Some(lineage), &history, Form::Part);
                    }
                }
            });
        }
    });
    for (round, lineage) in lineages[..end.into_inner()].iter().enumerate() {
        let mut numbers: Vec<_> = lineage.origins().iter().map(|one| one.number).collect();
        numbers.sort_unstable();
        let round = round as u64 + 1;
        let mut want = [round, OPERATIONS * round];
        want.sort_unstable();
        assert_eq!(numbers, want, "round {round}");
    }
}

/// Between the two steps another thread writes other parts of what is read: nobody who waits for the reader's stream finds that
/// well, though what is read does not change.
#[test]
fn who_comes_in_between_is_not_found_well() {
    for kind in 0..4 {
        let (history, theirs) = (History::default(), History::default());
        let (mut ours, mut other) = (Comm::new(0), Comm::new(1));
        let (from, to) = (Lineage::new(), Lineage::new());
        // Half of the kinds go past the mutex.
        if kind % 2 == 0 {
            let (work, number) = ours.next(&history);
            operation((&work, number), [None, None], Some(&from), &history, Form::Part);
            operation((&work, number), [None, None], Some(&to), &history, Form::Part);
        }
        let mut come_in = || {
            let (work, number) = other.next(&theirs);
            operation((&work, number), [None, None], Some(&from), &theirs, Form::Part);
        };
        if kind < 2 {
            let source = Source::of(&from, &history);
            come_in();
            source.carry(&from, &to, kind == 1, &history);
        } else {
            let (work, number) = ours.next(&history);
            let read = reads(Some(&*work), &history, [Some(&from)]);
            come_in();
            after((&work, number), read.as_ref(), Some(&to), &history, || Form::Part);
        }
        to.origins().judge("a wait").unwrap();
        history.origins().judge("a wait").unwrap();
        fail(&other);
        assert!(from.origins().judge("a wait").is_err(), "kind {kind}");
        assert!(theirs.origins().judge("a wait").is_err(), "kind {kind}");
        to.origins().judge("a wait").unwrap();
        history.origins().judge("a wait").unwrap();
    }
}

/// The same on one stream, where numbers of one work say how far a copy has read.
#[test]
fn what_its_own_stream_does_next_is_not_what_a_copy_has_read() {
    for target_is_own in [false, true] {
        let history = History::default();
        let mut comm = Comm::new(0);
        let (from, to) = (Lineage::new(), Lineage::new());
        let (work, first) = comm.next(&history);
        operation((&work, first), [None, None], Some(&from), &history, Form::Part);
        if target_is_own {
            operation((&work, first), [None, None], Some(&to), &history, Form::Part);
        }
        let source = Source::of(&from, &history);
        let (work, second) = comm.next(&history);
        operation((&work, second), [None, None], Some(&from), &history, Form::Part);
        source.carry(&from, &to, true, &history);
        assert_eq!(to.origins().iter().map(|one| one.number).collect::<Vec<_>>(), [first]);
    }
}
