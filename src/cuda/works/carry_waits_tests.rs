//! What waits for a stream tell, and how often.

use super::{Comm, copy, fail, operation};
use crate::cuda::works::carry::{self, Form};
use crate::cuda::works::history::History;
use crate::cuda::works::lineage::Lineage;
use crate::cuda::works::work::Origins;

/// A stream tells of a failure until it has, and a sound communicator has gone on.
#[test]
fn a_stream_tells_until_somebody_goes_on() {
    let history = History::default();
    let (mut bad, mut good) = (Comm::new(0), Comm::new(1));
    let wait = || {
        let origins = history.origins();
        origins.judge("a wait").inspect_err(|_| history.tell(&origins, false))
    };
    good.next(&history);
    bad.next(&history);
    wait().unwrap();
    good.next(&history);
    bad.next(&history);
    fail(&bad);
    good.next(&history);
    (0..10).for_each(|_| assert!(wait().is_err()));
    good.next(&history);
    (0..10).for_each(|_| wait().unwrap());
}

#[test]
fn a_wait_that_took_too_long_has_told() {
    let history = History::default();
    let (mut bad, mut good) = (Comm::new(0), Comm::new(1));
    bad.next(&history);
    history.tell(&history.origins(), true);
    fail(&bad);
    assert!(history.origins().judge("a wait").is_err());
    good.next(&history);
    history.origins().judge("a wait").unwrap();
}

/// That an earlier operation took too long says nothing of those that came later.
#[test]
fn what_was_told_of_earlier_operations_does_not_count() {
    let history = History::default();
    let (mut bad, mut good) = (Comm::new(0), Comm::new(1));
    bad.next(&history);
    history.tell(&history.origins(), true);
    bad.next(&history);
    fail(&bad);
    good.next(&history);
    assert!(history.origins().judge("a wait").is_err());
}

#[test]
fn what_is_accepted_is_told_no_more() {
    let history = History::default();
    let mut bad = Comm::new(0);
    bad.next(&history);
    fail(&bad);
    assert!(history.origins().judge("a wait").is_err());
    history.accept();
    history.origins().judge("a wait").unwrap();
}

/// Who works with a communicator that was made after a failure is told nothing of it, whatever its stream was made to follow.
#[test]
fn a_new_communicator_is_not_disturbed() {
    let (history, other) = (History::default(), History::default());
    let (mut bad, mut old) = (Comm::new(0), Comm::new(1));
    old.next(&history);
    bad.next(&history);
    bad.next(&other);
    fail(&bad);
    old.next(&history);
    assert!(history.origins().judge("a wait").is_err());
    let mut new = Comm::new(2);
    assert!(history.origins().judge("a wait").is_err());
    new.next(&history);
    history.origins().judge("a wait").unwrap();
    history.follow(&other.origins());
    history.origins().judge("a wait").unwrap();
    // But of what it has read, and of what fails later.
    history.cover(&other.origins());
    assert!(history.origins().judge("a wait").is_err());
    history.accept();
    old.next(&history);
    fail(&old);
    assert!(history.origins().judge("a wait").is_err());
    other.follow(&history.origins());
    assert!(other.origins().judge("a wait").is_err());
}

/// What is read of memory of which nothing is kept comes from all that its stream was given, and nothing is ever kept of it.
#[test]
fn what_nobody_knows_comes_from_the_whole_stream() {
    let history = History::default();
    let (mut bad, mut good) = (Comm::new(0), Comm::new(1));
    let (unknown, known) = (Lineage::unknown(), Lineage::new());
    let (work, number) = bad.next(&history);
    operation((&work, number), [None, None], Some(&unknown), &history, Form::Part);
    operation((&work, number), [Some(&unknown), None], Some(&unknown), &history, Form::InPlace);
    assert!(carry::reads(Some(&*work), &history, [Some(&unknown)]).is_none(), "its own failure is told anyway");
    let (other, later) = good.next(&history);
    operation((&other, later), [Some(&unknown), None], Some(&known), &history, Form::Whole);
    fail(&bad);
    assert!(known.origins().judge("a wait").is_err());
    assert!(carry::origins(&unknown, &history).judge("a wait").is_err());
    known.accept();
    copy(&unknown, &known, true, &history);
    assert!(known.origins().judge("a wait").is_err());
    copy(&known, &unknown, true, &history);
    unknown.overwrite();
    unknown.accept();
    assert!(unknown.is_unknown() && unknown.origins().is_empty());
    history.accept();
    carry::origins(&unknown, &history).judge("a wait").unwrap();
}

/// What a stream has only come beside, a later operation on it has only come beside, too.
#[test]
fn what_nobody_knows_follows_no_more_than_the_stream() {
    let (history, elsewhere) = (History::default(), History::default());
    let (mut first, mut second) = (Comm::new(0), Comm::new(1));
    let (work, number) = first.next(&elsewhere);
    let mut beside = Origins::new();
    beside.add(&work, number);
    beside.follow_nothing();
    history.cover(&beside);
    let (other, _) = second.next(&history);
    let read =
        carry::reads(Some(&*other), &history, [Some(&Lineage::unknown())]).expect("what the stream has come beside");
    read.judge("a wait").unwrap();
    assert!(!work.is_settled(number), "nobody has found it done");
    history.origins().judge("a wait").unwrap();
    assert!(!work.is_settled(number), "nobody has found it done");
    beside.add(&work, number);
    beside.judge("a wait").unwrap();
    assert!(work.is_settled(number));
}
