//! Children by `fork`: the threads of ranks are not there, and a request is refused that nobody would answer.

use std::time::{Duration, Instant};

use gpucomm::Error;
use gpucomm::world::{Answer, Reason, WorldOptions, requests};

use crate::support::world;

/// What the end of a world would wait for at most.
const LONG: Duration = Duration::from_secs(8);

fn is_refused(answer: Answer<()>) -> bool {
    let Ok(Err(failed)) = answer.wait_timeout(Duration::from_secs(20)) else { return false };
    failed.reason == Reason::Refused && matches!(failed.error, Error::InvalidUsage { .. })
}

#[test]
fn a_child_is_told_so() {
    let world = world(2, WorldOptions::default());
    world.barrier().wait().unwrap();
    let rank = world.rank(0).unwrap();
    // Rank 1 comes when the child has ended.
    let (before, after) = (rank.submit(requests::barrier()), world.rank(1).unwrap());
    // SAFETY: the child takes no lock but those that are tested, and ends without running anything else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let told = is_refused(rank.submit(requests::barrier()))
            && world.barrier().wait_timeout(Duration::from_secs(20)).is_ok()
            && before.wait().is_err_and(|failed| matches!(failed.error, Error::InvalidUsage { .. }));
        // SAFETY: it ends the child, whatever else is there.
        unsafe { libc::_exit(if told { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: the status is valid for a write.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was not told");
    after.submit(requests::barrier()).wait().unwrap();
    before.wait().unwrap();
    world.barrier().wait().unwrap();
}

/// The threads that it would wait for are not there.
#[test]
fn the_end_of_a_world_in_a_child_waits_for_nothing() {
    for drops in [true, false] {
        let world = world(2, WorldOptions::default());
        world.barrier().wait().unwrap();
        // SAFETY: the child takes no lock but those that are tested, and ends without running anything else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let begin = Instant::now();
            let told = if drops {
                drop(world);
                true
            } else {
                matches!(world.close_timeout(LONG), Err(Error::InvalidUsage { .. }))
            };
            // SAFETY: it ends the child, whatever else is there.
            unsafe { libc::_exit(i32::from(!told || begin.elapsed() > LONG / 2)) };
        }
        let mut status = -1;
        // SAFETY: the status is valid for a write.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child has waited, or was not told");
        world.barrier().wait().unwrap();
    }
}
