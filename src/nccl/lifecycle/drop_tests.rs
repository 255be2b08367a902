//! What a drop waits for that somebody else has ended.

use std::sync::mpsc::channel;
use std::time::Instant;

use super::*;
use crate::nccl::clique::Clique;
use crate::nccl::lifecycle::last_device;
use crate::reduce_op::ReduceOp;

/// A thread stays inside NCCL, which keeps the rank from being stopped.
#[test]
fn a_short_timeout_stays_short() {
    let (_alone, device) = last_device();
    let clique = Clique::init_all(&[device]).unwrap();
    clique.rank(0).set_timeout(Duration::from_millis(200));
    let inner = clique.rank(0).inner();
    let members = [Arc::clone(inner)];
    let locked = inner.begin_call("test").unwrap();
    inner.begin_visit("test").unwrap();
    drop(locked);
    let begin = Instant::now();
    assert!(start_abort_by(
        AbortedBy::Call,
        &members,
        &Error::Aborted { operation: "test", reason: "the test aborts".into() }
    ));
    drop_all(&members);
    let took = begin.elapsed();
    assert!(!inner.has_left(), "there was nothing to wait for");
    drop_all(&members);
    let again = begin.elapsed() - took;
    inner.end_visit();
    assert!(took < ENDING, "{took:?}");
    assert!(again < took.min(STOPPING), "it was waited for before: {again:?}");
}

/// A timeout that is longer than [`GRACE`] makes a drop no longer: what is left of the time for drops
/// is what earlier ones of this thread have not spent.
#[test]
fn a_long_timeout_makes_a_drop_no_longer() {
    const LEFT: Duration = Duration::from_millis(300);
    let (_alone, device) = last_device();
    let clique = Clique::init_all(&[device]).unwrap();
    clique.rank(0).set_timeout(Duration::from_secs(60));
    let (stream, (open, opened)) = (Stream::new(device).unwrap(), channel::<()>());
    clique.rank(0).all_reduce_scalar(1u32, ReduceOp::Sum, &stream).unwrap();
    stream.launch_host(move || _ = opened.recv()).unwrap();
    clique.rank(0).barrier_on_stream(&stream).unwrap();
    timeouts::Wait { start: Instant::now(), spent: GRACE - LEFT }.record_timeout();
    let begin = Instant::now();
    drop(clique);
    let took = begin.elapsed();
    drop(open);
    assert!(took < GRACE, "{took:?}");
}

/// A drop that ends well does not make the thread forget what it has spent.
#[test]
fn a_drop_that_ends_well_keeps_what_was_spent() {
    let (_alone, device) = last_device();
    let well = Clique::init_all(&[device]).unwrap();
    let spent = GRACE / 2;
    timeouts::Wait { start: Instant::now(), spent }.record_timeout();
    drop(well);
    // Together longer than `AT_ONCE`: only the second wait keeps the time that was spent.
    let wait = timeouts::Wait::begin();
    std::thread::sleep(Duration::from_millis(150));
    wait.went_on();
    assert!(timeouts::spent() >= spent);
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(timeouts::spent(), Duration::ZERO, "another scope");
}
