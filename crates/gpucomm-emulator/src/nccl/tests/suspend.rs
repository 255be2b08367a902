//! Communicators that give memory back and take it again.

use std::ptr;

use super::one_sided::since;
use super::*;

fn newest(test: &str, body: impl FnOnce()) {
    since(2_30_00, &format!("suspend::{test}"), body);
}

/// Also for work that is not NCCL's.
#[test]
fn a_suspend_waits_for_all_work_of_the_device() {
    alone!();
    newest("a_suspend_waits_for_all_work_of_the_device", || {
        spmd(2, |rank| {
            rank.connect();
            let other = stream();
            let held = hold_up(other);
            let (device, comm) = (rank.rank, rank.comm.addr());
            let suspends = std::thread::spawn(move || {
                set_device(device);
                // SAFETY: a live communicator, of which no other call is made until this one returns.
                unsafe { ncclCommSuspend(ptr::without_provenance_mut(comm), NCCL_SUSPEND_MEM.cast_signed()) }
            });
            std::thread::sleep(Duration::from_millis(100));
            assert!(!suspends.is_finished(), "rank {} does not wait", rank.rank);
            drop(held);
            assert_eq!(suspends.join().expect("no panic"), OK);
            // SAFETY: takes no pointers; the stream is used no more.
            unsafe {
                assert_eq!(ncclCommResume(rank.comm), OK, "{}", last_error());
                assert_eq!(cudaStreamDestroy(other), cudaError::cudaSuccess);
            }
        });
    });
}

#[test]
fn what_is_not_suspended_does_not_resume() {
    alone!();
    newest("what_is_not_suspended_does_not_resume", || {
        spmd(2, |rank| {
            // SAFETY: takes no pointers.
            let resumed = unsafe { ncclCommResume(rank.comm) };
            assert_eq!(resumed, ncclResult_t::ncclInvalidUsage);
            assert!(last_error().contains(&format!("rank {} is not suspended", rank.rank)), "{}", last_error());
        });
    });
}
