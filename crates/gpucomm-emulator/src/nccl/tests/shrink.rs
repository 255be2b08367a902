//! Communicators without some of the ranks of another.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use super::*;
use crate::report::expected::reported;

/// `ncclCommShrink` without these.
fn shrink(rank: &Rank, excluded: &[i32], flags: u32) -> (ncclResult_t, ncclComm_t) {
    let (mut excluded, mut rest) = (excluded.to_vec(), ptr::null_mut());
    let count = excluded.len() as i32;
    // SAFETY: the pointers are valid, and the list is so long.
    let result =
        unsafe { ncclCommShrink(rank.comm, excluded.as_mut_ptr(), count, &mut rest, ptr::null_mut(), flags as i32) };
    (result, rest)
}

/// The communicator that is left, as this place of so many; it sums what it should.
fn works(comm: ncclComm_t, place: usize, size: usize) {
    let (mut known, mut own) = (0, 0);
    // SAFETY: the pointers are valid for writes.
    unsafe {
        assert_eq!(ncclCommCount(comm, &mut known), OK);
        assert_eq!(ncclCommUserRank(comm, &mut own), OK);
    }
    assert_eq!((known, own), (size as i32, place as i32));
    let rest = Rank::new(place, size, comm);
    let buffer = Buffer::new(&[1.0 + place as f32; 3]);
    assert_eq!(rest.all_reduce(&buffer), OK);
    rest.wait();
    assert_eq!(buffer.values(), vec![(size * (size + 1) / 2) as f32; 3]);
    rest.end();
}

#[test]
fn who_is_left_out_need_not_come() {
    alone!();
    let all = Arc::new(Barrier::new(4));
    spmd(4, move |rank| {
        if rank.rank != 1 {
            let (result, rest) = shrink(rank, &[1], NCCL_SHRINK_DEFAULT);
            assert_eq!(result, OK, "{}", last_error());
            works(rest, [0, 9, 1, 2][rank.rank], 3);
        }
        all.wait();
        // What it came from goes on.
        let buffer = Buffer::new(&[1.0; 3]);
        assert_eq!(rank.all_reduce(&buffer), OK);
        rank.wait();
        assert_eq!(buffer.values(), [4.0; 3]);
        if rank.rank == 2 {
            let (result, rest) = shrink(rank, &[3, 0, 1], NCCL_SHRINK_DEFAULT);
            assert_eq!(result, OK, "{}", last_error());
            works(rest, 0, 1);
        }
    });
}

#[test]
fn what_hangs_is_stopped_on_request() {
    alone!();
    spmd(3, |rank| {
        rank.connect();
        if rank.rank == 2 {
            return;
        }
        let hung = Buffer::new(&[1.0; 8]);
        assert_eq!(rank.all_reduce(&hung), OK);
        assert!(!rank.idle());
        let (result, rest) = shrink(rank, &[2], NCCL_SHRINK_ABORT);
        assert_eq!(result, OK, "{}", last_error());
        // What was stopped leaves its stream when its thread has seen that.
        rank.wait();
        assert!(hung.values() != [3.0; 8]);
        works(rest, rank.rank, 2);
    });
}

#[test]
fn a_revoked_one_shrinks() {
    alone!();
    spmd(3, |rank| {
        rank.connect();
        if rank.rank == 0 {
            return;
        }
        let hung = Buffer::new(&[1.0; 8]);
        assert_eq!(rank.all_reduce(&hung), OK);
        // SAFETY: takes a handle.
        assert_eq!(unsafe { ncclCommRevoke(rank.comm, NCCL_REVOKE_DEFAULT as i32) }, OK);
        let (result, rest) = shrink(rank, &[0], NCCL_SHRINK_DEFAULT);
        assert_eq!(result, OK, "{}", last_error());
        works(rest, rank.rank - 1, 2);
    });
}

#[test]
fn lists_that_are_wrong() {
    alone!();
    spmd(2, |rank| {
        let own = rank.rank as i32;
        for excluded in [&[][..], &[own]] {
            assert_eq!(shrink(rank, excluded, 0).0, ncclResult_t::ncclInvalidArgument, "{excluded:?}");
        }
        for excluded in [[7, 7], [1 - own, -1]] {
            let refused = reported("NCCL counts wrong", || shrink(rank, &excluded, 0).0);
            assert_eq!(refused, ncclResult_t::ncclInvalidArgument, "{excluded:?}");
        }
        let nowhere = ptr::null_mut();
        // SAFETY: null is refused.
        unsafe {
            let (list, config) = (ptr::null_mut(), ptr::null_mut());
            let refused = ncclCommShrink(rank.comm, list, 1, nowhere, config, 0);
            assert_eq!(refused, ncclResult_t::ncclInvalidArgument);
            let mut other = 1 - own;
            let refused = ncclCommShrink(rank.comm, &mut other, 1, nowhere, config, 0);
            assert_eq!(refused, ncclResult_t::ncclInvalidArgument);
        }
    });
}

#[test]
fn what_is_shared_is_stopped_with_what_shares_it() {
    alone!();
    let id = unique_id();
    within_limit(move || {
        std::thread::scope(|scope| {
            for rank in 0..2 {
                scope.spawn(move || {
                    set_device(rank);
                    let mut shared = config(true);
                    shared.shrinkShare = 1;
                    let rank = Rank::new(rank, 3, init(3, id, rank, shared).1);
                    let (result, rest) = shrink(&rank, &[2], NCCL_SHRINK_DEFAULT);
                    assert_eq!(result, OK, "{}", last_error());
                    let rest = Rank::new(rank.rank, 2, rest);
                    rest.connect();
                    rank.abort();
                    let buffer = Buffer::new(&[1.0; 3]);
                    let used = reported("shares its resources was aborted", || rest.all_reduce(&buffer));
                    assert_eq!(used, ncclResult_t::ncclInvalidUsage);
                    rest.abort();
                });
            }
            scope.spawn(move || {
                set_device(2);
                Rank::new(2, 3, init(3, id, 2, config(true)).1).abort();
            });
        });
    });
}

#[test]
fn those_that_are_left_wait_for_each_other() {
    alone!();
    static LATE: AtomicBool = AtomicBool::new(false);
    spmd(3, |rank| {
        if rank.rank == 2 {
            return;
        }
        if rank.rank == 1 {
            std::thread::sleep(Duration::from_millis(50));
            LATE.store(true, Ordering::SeqCst);
        }
        let (result, rest) = shrink(rank, &[2], NCCL_SHRINK_DEFAULT);
        assert_eq!(result, OK, "{}", last_error());
        assert!(LATE.load(Ordering::SeqCst), "rank 0 went on alone");
        works(rest, rank.rank, 2);
    });
}

#[test]
fn nothing_is_shared_with_what_was_revoked() {
    alone!();
    let id = unique_id();
    within_limit(move || {
        std::thread::scope(|scope| {
            for me in 0..3 {
                scope.spawn(move || {
                    set_device(me);
                    let mut shared = config(true);
                    shared.shrinkShare = 1;
                    let rank = Rank::new(me, 3, init(3, id, me, shared).1);
                    rank.connect();
                    if me < 2 {
                        // SAFETY: takes a handle.
                        assert_eq!(unsafe { ncclCommRevoke(rank.comm, NCCL_REVOKE_DEFAULT as i32) }, OK);
                        let (result, rest) = shrink(&rank, &[2], NCCL_SHRINK_DEFAULT);
                        assert_eq!(result, OK, "{}", last_error());
                        rank.abort();
                        works(rest, me, 2);
                    } else {
                        rank.abort();
                    }
                    rank.end();
                });
            }
        });
    });
}

/// What is left, and parts, take the configuration that they are given, or that of what they come from; their ranks have it alike.
#[test]
fn what_is_left_is_configured_alike() {
    alone!();
    for own in [false, true] {
        spmd(3, move |rank| {
            if rank.rank == 2 {
                return;
            }
            let (mut excluded, mut rest, mut other) = (2, ptr::null_mut(), config(true));
            other.maxCTAs = 4;
            // The default, said or not.
            other.maxCTAs <<= 4 * i32::from(own && rank.rank == 1);
            let given = if own || rank.rank == 0 { &raw mut other } else { ptr::null_mut() };
            let shrunk = reported("is configured with maxCTAs", || {
                // SAFETY: the pointers are valid, and the list has one rank.
                unsafe { ncclCommShrink(rank.comm, &mut excluded, 1, &mut rest, given, 0) }
            });
            assert_eq!(shrunk, ncclResult_t::ncclInvalidArgument, "{}", last_error());
            // SAFETY: what a failed start leaves, and nobody else has.
            assert_eq!(unsafe { ncclCommAbort(rest) }, OK);
        });
    }
}
