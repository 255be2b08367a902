//! Abort: of work that hangs, of a parent whose resources a child shares.

use std::time::Instant;

use super::*;
use crate::report::expected::reported;

#[test]
fn an_abort_frees_a_stream_that_waits_for_a_rank_that_never_comes() {
    alone!();
    spmd(2, |rank| {
        rank.connect();
        let buffer = Buffer::new(&[1.0; 4]);
        if rank.rank == 0 {
            for _ in 0..10 {
                assert_eq!(rank.all_reduce(&buffer), OK);
            }
            std::thread::sleep(Duration::from_millis(50));
            assert!(!rank.idle());
            let begin = Instant::now();
            rank.abort();
            rank.wait();
            assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
            assert_eq!(buffer.values(), [GARBAGE, GARBAGE, 1.0, 1.0], "partly written");
            let used = reported("was destroyed or aborted", || rank.all_reduce(&buffer));
            assert_eq!(used, ncclResult_t::ncclInvalidArgument, "used after the abort");
            assert!(last_error().contains("aborted"), "{}", last_error());
        } else {
            std::thread::sleep(Duration::from_millis(200));
            rank.abort();
        }
    });
}

#[test]
fn a_rank_that_waits_for_an_aborted_one_goes_on_waiting() {
    alone!();
    spmd(2, |rank| {
        rank.connect();
        let buffer = Buffer::new(&[1.0; 4]);
        if rank.rank == 0 {
            rank.abort();
            return;
        }
        assert_eq!(rank.all_reduce(&buffer), OK);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!rank.idle(), "a GPU would wait too");
        rank.abort();
        rank.wait();
    });
}

#[test]
fn the_next_communicator_works_after_an_abort() {
    alone!();
    for _ in 0..3 {
        spmd(3, |rank| {
            rank.connect();
            let buffer = Buffer::new(&[1.0; 4]);
            if rank.rank != 1 {
                assert_eq!(rank.all_reduce(&buffer), OK);
            }
            rank.abort();
            rank.wait();
        });
        spmd(3, |rank| {
            let buffer = Buffer::new(&[1.0; 4]);
            assert_eq!(rank.all_reduce(&buffer), OK);
            rank.wait();
            assert_eq!(buffer.values(), [3.0; 4]);
        });
    }
}

#[test]
fn an_abort_of_the_parent_stops_a_child_that_shares_its_resources() {
    alone!();
    within_limit(|| {
        let id = unique_id();
        std::thread::scope(|scope| {
            for rank in 0..2 {
                scope.spawn(move || {
                    set_device(rank);
                    let (parent, child) = sharing(id, rank);
                    let child = Rank::new(rank, 2, child);
                    child.connect();
                    let buffer = Buffer::zeros(4);
                    if rank == 0 {
                        assert_eq!(child.all_reduce(&buffer), OK);
                        std::thread::sleep(Duration::from_millis(100));
                        // SAFETY: takes no pointers.
                        assert_eq!(unsafe { ncclCommAbort(parent) }, OK);
                        child.wait();
                        // SAFETY: takes no pointers.
                        assert_eq!(unsafe { ncclCommFinalize(child.comm) }, OK, "nothing is left to wait for");
                    } else {
                        std::thread::sleep(Duration::from_millis(300));
                        // SAFETY: takes no pointers.
                        assert_eq!(unsafe { ncclCommAbort(parent) }, OK);
                    }
                    child.abort();
                    // SAFETY: nothing is left to do on the stream.
                    assert_eq!(unsafe { cudaStreamDestroy(child.stream) }, cudaError::cudaSuccess);
                });
            }
        });
    });
}

/// A revoke may come from another thread at any time, an abort may not.
#[test]
fn revokes_at_random_moments_neither_hang_nor_corrupt() {
    alone!();
    for round in 0..30u64 {
        let id = unique_id();
        within_limit(move || {
            std::thread::scope(|scope| {
                for rank in 0..3 {
                    scope.spawn(move || {
                        set_device(rank);
                        let (result, comm) = init(3, id, rank, config(true));
                        assert_eq!(result, OK);
                        let rank = Rank::new(rank, 3, comm);
                        let buffer = Buffer::new(&vec![1.0; 20_000]);
                        let handle = comm.addr();
                        let delay = Duration::from_micros((round * 7919 + rank.rank as u64 * 104_729) % 3000);
                        let revoker = std::thread::spawn(move || {
                            std::thread::sleep(delay);
                            // SAFETY: takes no pointers.
                            assert_eq!(unsafe { ncclCommRevoke(std::ptr::without_provenance_mut(handle), 0) }, OK);
                        });
                        while rank.all_reduce(&buffer) == OK && !revoker.is_finished() {}
                        revoker.join().expect("the revoke succeeds");
                        rank.wait();
                        rank.abort();
                        // SAFETY: nothing is left to do on the stream.
                        assert_eq!(unsafe { cudaStreamDestroy(rank.stream) }, cudaError::cudaSuccess);
                    });
                }
            });
        });
    }
}

/// A revoke stops what is under way and forgets what had failed; nothing new can be issued, and every end is possible.
#[test]
fn a_revoked_communicator_takes_no_work_and_comes_to_its_end() {
    alone!();
    for destroyed in [false, true] {
        spmd(2, move |rank| {
            rank.connect();
            let buffer = Buffer::new(&[1.0; 4]);
            if rank.rank == 0 {
                assert_eq!(rank.all_reduce(&buffer), OK);
            }
            // SAFETY: take no pointers.
            unsafe {
                assert_eq!(ncclCommRevoke(rank.comm, 0), OK);
                rank.wait();
                assert_eq!(ncclCommRevoke(rank.comm, 0), ncclResult_t::ncclInvalidArgument);
                assert_eq!(ncclCommFinalize(rank.comm), ncclResult_t::ncclInvalidArgument);
            }
            assert_eq!(rank.state(), OK);
            assert_eq!(rank.all_reduce(&buffer), ncclResult_t::ncclInvalidUsage);
            assert!(last_error().contains("revoked"), "{}", last_error());
            if !destroyed {
                rank.abort();
            }
        });
    }
}

/// NCCL takes its flags back at the end of a revoke, and divides the communicator then. Here one rank was in an operation that no
/// other came to, one in a split, and one in nothing.
#[test]
fn a_revoked_communicator_can_be_divided() {
    alone!();
    spmd(3, |rank| {
        rank.connect();
        let (buffer, comm) = (Buffer::new(&[1.0; 4]), rank.comm.addr());
        let split = || {
            let mut child = std::ptr::null_mut();
            let parent = std::ptr::without_provenance_mut(comm);
            // SAFETY: the pointer is valid for a write.
            (unsafe { ncclCommSplit(parent, 0, 0, &mut child, std::ptr::null_mut()) }, child.addr())
        };
        // SAFETY: takes no pointers.
        let revoke = || assert_eq!(unsafe { ncclCommRevoke(std::ptr::without_provenance_mut(comm), 0) }, OK);
        match rank.rank {
            0 => {
                assert_eq!(rank.all_reduce(&buffer), OK);
                std::thread::sleep(Duration::from_millis(50));
                revoke();
            }
            1 => std::thread::scope(|scope| {
                scope.spawn(|| {
                    until_inside(comm);
                    revoke();
                });
                let (result, child) = split();
                assert_eq!(result, ncclResult_t::ncclInternalError, "the revoke ends it");
                // SAFETY: what a failed split leaves behind, and nobody else has.
                assert_eq!(unsafe { ncclCommAbort(std::ptr::without_provenance_mut(child)) }, OK);
            }),
            _ => revoke(),
        }
        rank.wait();
        if rank.rank == 0 {
            let half = buffer.values();
            assert!(half[..2].iter().all(|value| value.to_bits() == GARBAGE.to_bits()), "{half:?}");
        }
        let (result, child) = split();
        assert_eq!(result, OK, "{}", last_error());
        let child = Rank::new(rank.rank, 3, std::ptr::without_provenance_mut(child));
        let buffer = Buffer::new(&[2.0; 5]);
        assert_eq!(child.all_reduce(&buffer), OK);
        child.wait();
        assert_eq!(buffer.values(), [6.0; 5]);
        child.end();
        assert_eq!(rank.all_reduce(&buffer), ncclResult_t::ncclInvalidUsage, "the parent stays revoked");
    });
}

/// NCCL keeps why a split has failed in the communicator that it was to make, of which a rank without a part has none.
#[test]
fn a_split_that_fails_where_there_is_no_part_is_a_violation() {
    alone!();
    spmd(2, |rank| {
        if rank.rank == 0 {
            let comm = rank.comm.addr();
            let split = || {
                let (mut child, parent) = (std::ptr::null_mut(), std::ptr::without_provenance_mut(comm));
                // SAFETY: the pointer is valid for a write.
                unsafe { ncclCommSplit(parent, NCCL_SPLIT_NOCOLOR, 0, &mut child, std::ptr::null_mut()) }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    until_inside(comm);
                    // SAFETY: takes no pointers.
                    assert_eq!(unsafe { ncclCommRevoke(std::ptr::without_provenance_mut(comm), 0) }, OK);
                });
                assert_eq!(reported("asked for no part", split), ncclResult_t::ncclInternalError);
            });
        }
        rank.abort();
    });
}

/// Also for what has not begun, behind other work.
#[test]
fn a_revoke_waits_for_what_was_launched() {
    alone!();
    spmd(2, |rank| {
        rank.connect();
        let buffer = Buffer::new(&[1.0; 4]);
        let held = hold_up(rank.stream);
        assert_eq!(rank.all_reduce(&buffer), OK);
        let comm = rank.comm.addr();
        // SAFETY: takes no pointers.
        let revoke = move || unsafe { ncclCommRevoke(std::ptr::without_provenance_mut(comm), 0) };
        let revokes = std::thread::spawn(revoke);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!revokes.is_finished(), "rank {} does not wait", rank.rank);
        drop(held);
        assert_eq!(revokes.join().expect("no panic"), OK);
        // The revoke waits for NCCL's part of the stream. What comes after that on the stream may take a moment more.
        rank.wait();
        rank.abort();
    });
}
