//! Who is inside NCCL is woken where it blocks, and only there.

use super::*;
use crate::Error;
use crate::cuda::Device;
use crate::nccl::clique::Clique;
use crate::nccl::life::abort::tear_down;

/// A call in which the driver is slow is none that waits for a peer.
#[test]
fn a_slow_call_is_not_interrupted() {
    let clique = Clique::init_all(&[Device::new(0).unwrap()]).unwrap();
    let inner = clique.rank(0).inner();
    let (_locked, _) = inner.enter("test").unwrap();
    inner.begin_visit("test").unwrap();
    assert!(inner.condemn(Error::Aborted { operation: "test", reason: "the test aborts".into() }));
    std::thread::scope(|scope| {
        let revoked = scope.spawn(|| clear(std::slice::from_ref(inner)));
        std::thread::sleep(Duration::from_millis(1500));
        inner.end_visit();
        assert!(revoked.join().unwrap().is_empty());
    });
    tear_down(inner);
}

/// Who aborts what has been blocked for long does not wait for as long again.
#[test]
fn a_blocked_call_is_interrupted_at_once() {
    let clique = Clique::init_all(&[Device::new(0).unwrap()]).unwrap();
    let inner = clique.rank(0).inner();
    let (_locked, _) = inner.enter("test").unwrap();
    inner.begin_visit("test").unwrap();
    inner.set_stuck(inner.visit());
    assert!(inner.condemn(Error::Aborted { operation: "test", reason: "the test aborts".into() }));
    std::thread::scope(|scope| {
        let revoked = scope.spawn(|| clear(std::slice::from_ref(inner)));
        std::thread::sleep(Duration::from_millis(500));
        inner.end_visit();
        assert_eq!(revoked.join().unwrap().contains(&inner.id), cfg!(nccl_ge_2_28_7));
    });
    tear_down(inner);
}
