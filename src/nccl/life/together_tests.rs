//! Who is inside NCCL is woken where it blocks, and only there.

use std::thread;

use super::*;
use crate::Error;
use crate::cuda::Device;
use crate::nccl::clique::Clique;

fn condemned(clique: &Clique) -> Vec<&Arc<Inner>> {
    let all: Vec<_> = clique.ranks().iter().map(|comm| comm.inner()).collect();
    let cause = Error::Aborted { operation: "test", reason: "the test aborts".into() };
    assert!(all.iter().all(|inner| inner.condemn(cause.clone())));
    all.iter().for_each(|inner| doom(inner));
    all
}

fn clique(ranks: usize) -> Clique {
    Clique::init_all(&Device::all().unwrap()[..ranks]).unwrap()
}

fn ready(inner: &Arc<Inner>) -> bool {
    get_ready(inner, inner.household.together()).0
}

/// Whether a rank is revoked that is aborted while a call is inside, which lasts so much longer.
fn is_revoked_beside_a_call(is_stuck: bool, lasts: Duration) -> bool {
    let clique = clique(1);
    let inner = clique.rank(0).inner();
    let (_locked, _) = inner.enter("test").unwrap();
    inner.begin_visit("test").unwrap();
    if is_stuck {
        inner.set_stuck(inner.visit());
    }
    condemned(&clique);
    let revoked = thread::scope(|scope| {
        let revoked = scope.spawn(|| ready(inner));
        thread::sleep(lasts);
        inner.end_visit();
        revoked.join().unwrap()
    });
    free(slice::from_ref(inner), revoked);
    revoked
}

/// A call in which the driver is slow is none that waits for a peer.
#[test]
fn a_slow_call_is_not_interrupted() {
    assert!(!is_revoked_beside_a_call(false, Duration::from_millis(1500)));
}

/// Who aborts what has been blocked for long does not wait for as long again.
#[test]
fn a_blocked_call_is_interrupted_at_once() {
    assert_eq!(is_revoked_beside_a_call(true, Duration::from_millis(500)), interrupt::IS_POSSIBLE);
}

/// Those in whom nobody is are stopped, since who is inside may wait for them, and are freed when that has left.
#[test]
fn who_is_clear_is_stopped_beside_a_slow_call() {
    let clique = clique(2);
    let first = clique.rank(0).inner();
    let (locked, _) = first.enter("test").unwrap();
    first.begin_visit("test").unwrap();
    let all = condemned(&clique);
    thread::scope(|scope| {
        let ranks: Vec<_> = all.iter().map(|inner| scope.spawn(|| ready(inner))).collect();
        thread::sleep(Duration::from_millis(1200));
        let together = first.household.together();
        assert_eq!(together.revokes(first), interrupt::IS_POSSIBLE);
        assert!(together.are_clear(|rank| rank.rank == 1) && !together.are_clear(|rank| rank.rank == 0));
        assert!(!together.are_quiet());
        first.end_visit();
        drop(locked);
        for rank in ranks {
            assert_eq!(rank.join().unwrap(), interrupt::IS_POSSIBLE);
        }
    });
    all.into_iter().for_each(|inner| free(slice::from_ref(inner), true));
}
