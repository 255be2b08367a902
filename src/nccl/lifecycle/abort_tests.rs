//! A thread inside NCCL is woken if it blocks there, and only then.
//!
//! A rank is revoked, too, while another communicator of the process is locked on its device. So
//! these tests run one after the other, on devices that other unit tests do not use meanwhile.

use std::thread;

use super::interrupt::BLOCKED;
use super::*;
use crate::cuda::Device;
use crate::nccl::clique::Clique;
use crate::nccl::lifecycle::last_device;

fn aborted(clique: &Clique) -> Vec<&Arc<Inner>> {
    let all: Vec<_> = clique.ranks().iter().map(|comm| comm.inner()).collect();
    let cause = Error::Aborted { operation: "test", reason: "the test aborts".into() };
    assert!(all.iter().all(|inner| inner.mark_aborted(cause.clone(), AbortedBy::Call)));
    all.iter().for_each(|inner| add_to_teardown(inner));
    all
}

/// On the last devices. The first three are those of other unit tests.
fn clique(ranks: usize) -> Clique {
    let devices = Device::all().unwrap();
    Clique::init_all(&devices[devices.len() - ranks..]).unwrap()
}

fn ready(inner: &Arc<Inner>) -> bool {
    get_ready(inner).0
}

/// Aborts a rank during a call that lasts so much longer. Returns whether the rank was revoked.
fn is_revoked_beside_a_call(is_stuck: bool, lasts: Duration) -> bool {
    let _alone = last_device();
    let clique = clique(1);
    let inner = clique.rank(0).inner();
    let (_locked, _) = inner.begin_call("test").unwrap();
    inner.begin_visit("test").unwrap();
    if is_stuck {
        inner.set_stuck(inner.visit());
    }
    aborted(&clique);
    let revoked = thread::scope(|scope| {
        let revoked = scope.spawn(|| ready(inner));
        thread::sleep(lasts);
        inner.end_visit();
        revoked.join().unwrap()
    });
    free(slice::from_ref(inner), revoked);
    revoked
}

/// A call in which the driver is slow does not wait for a peer.
#[test]
fn a_slow_call_is_not_interrupted() {
    assert!(!is_revoked_beside_a_call(false, SOON * 3));
}

/// A call that has blocked for long is not waited for as long again.
#[test]
fn a_blocked_call_is_interrupted_at_once() {
    assert_eq!(is_revoked_beside_a_call(true, Duration::from_millis(500)), interrupt::IS_POSSIBLE);
}

/// A thread that was promised a visit, and waits for something else before, is not inside NCCL. It does not enter later.
#[test]
fn a_promise_that_is_not_used_is_broken() {
    let _alone = last_device();
    let clique = clique(1);
    let inner = clique.rank(0).inner();
    assert!(inner.promise());
    assert!(inner.promise_division());
    aborted(&clique);
    let begin = std::time::Instant::now();
    let revoked = ready(inner);
    assert!(!revoked && begin.elapsed() >= BLOCKED, "{:?}", begin.elapsed());
    inner.begin_visit("test").expect_err("the promise is broken");
    inner.redeem();
    inner.begin_visit("test").expect_err("the promise is broken");
    inner.redeem();
    free(slice::from_ref(inner), revoked);
}

/// A rank on which no thread is inside NCCL is revoked: a thread inside another rank may wait for
/// it. It is freed when that thread has left.
#[test]
fn an_idle_rank_is_revoked_beside_a_slow_call() {
    let _alone = last_device();
    let clique = clique(2);
    let first = clique.rank(0).inner();
    let (locked, _) = first.begin_call("test").unwrap();
    first.begin_visit("test").unwrap();
    let all = aborted(&clique);
    thread::scope(|scope| {
        let ranks: Vec<_> = all.iter().map(|inner| scope.spawn(|| ready(inner))).collect();
        let teardown = first.local_ranks.teardown();
        let is_left = || teardown.are_left(|rank| rank.rank == 1);
        let is_seen = || is_left() && teardown.must_revoke(first) == interrupt::IS_POSSIBLE;
        assert!(Deadline::after(BLOCKED).wait(is_seen));
        assert!(!teardown.are_left(|rank| rank.rank == 0));
        assert!(!teardown.are_ready());
        first.end_visit();
        drop(locked);
        for rank in ranks {
            assert_eq!(rank.join().unwrap(), interrupt::IS_POSSIBLE);
        }
    });
    all.into_iter().for_each(|inner| free(slice::from_ref(inner), true));
}
