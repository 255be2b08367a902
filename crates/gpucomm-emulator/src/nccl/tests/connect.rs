//! First meetings: calls that wait inside for their peers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use super::messages::{group, recv, send};
use super::*;
use crate::report::expected::expect;

/// A handle on its way to another thread.
#[derive(Clone, Copy)]
struct Handle(usize);

impl Handle {
    fn of(rank: &Rank) -> Self {
        Self(rank.comm.addr())
    }

    fn revoke(self) -> ncclResult_t {
        // SAFETY: takes no pointers.
        unsafe { ncclCommRevoke(std::ptr::without_provenance_mut(self.0), 0) }
    }
}

/// Runs `call`, which waits for a peer that never comes, until a revoke from another thread ends it.
fn stays_inside(rank: &Rank, call: impl FnOnce() -> ncclResult_t) {
    let (handle, inside) = (Handle::of(rank), Arc::new(AtomicBool::new(true)));
    let seen = inside.clone();
    let revoker = std::thread::spawn(move || {
        until_inside(handle.0);
        std::thread::sleep(Duration::from_millis(150));
        assert!(seen.load(Ordering::SeqCst), "the call did not wait for its peer");
        assert_eq!(handle.revoke(), OK);
    });
    let result = call();
    inside.store(false, Ordering::SeqCst);
    assert_eq!(result, ncclResult_t::ncclInternalError);
    assert!(last_error().contains("inside the call"), "{}", last_error());
    revoker.join().expect("the call was still inside");
    assert!(rank.idle(), "nothing was launched");
}

#[test]
fn the_first_collective_waits_inside_the_call() {
    alone!();
    spmd(2, |rank| {
        let buffer = Buffer::new(&[1.0; 4]);
        if rank.rank == 0 {
            stays_inside(rank, || rank.all_reduce(&buffer));
            assert_eq!(buffer.values(), [1.0; 4]);
        } else {
            std::thread::sleep(Duration::from_millis(300));
        }
        rank.abort();
    });
}

#[test]
fn the_first_message_waits_inside_the_call_for_its_peer_only() {
    alone!();
    spmd(3, |rank| {
        let buffer = Buffer::new(&[rank.rank as f32; 4]);
        match rank.rank {
            0 => assert_eq!(send(rank, &buffer, 1), OK, "{}", last_error()),
            1 => {
                assert_eq!(recv(rank, &buffer, 0), OK, "{}", last_error());
                rank.wait();
                assert_eq!(buffer.values(), [0.0; 4]);
            }
            _ => stays_inside(rank, || recv(rank, &buffer, 0)),
        }
        rank.wait();
        rank.abort();
    });
}

#[test]
fn one_thread_that_calls_one_rank_after_the_other_stays_in_the_first_call() {
    alone!();
    within_limit(|| {
        let id = unique_id();
        let mut comms = [std::ptr::null_mut(); 2];
        let made = group(|| {
            for (rank, comm) in comms.iter_mut().enumerate() {
                set_device(rank);
                // SAFETY: the pointer stays valid until the group has ended.
                assert_eq!(unsafe { ncclCommInitRankConfig(comm, 2, id, rank as i32, std::ptr::null_mut()) }, OK);
            }
        });
        assert_eq!(made, OK, "{}", last_error());
        let ranks = [0, 1].map(|rank| {
            set_device(rank);
            Rank::new(rank, 2, comms[rank])
        });
        let buffers = [0, 1].map(|rank| {
            set_device(rank);
            Buffer::new(&[1.0; 4])
        });
        stays_inside(&ranks[0], || ranks[0].all_reduce(&buffers[0]));
        for rank in ranks {
            // SAFETY: nothing runs on them any more.
            unsafe {
                assert_eq!(ncclCommAbort(rank.comm), OK);
                assert_eq!(cudaStreamDestroy(rank.stream), cudaError::cudaSuccess);
            }
        }
    });
}

#[test]
fn in_a_group_one_thread_connects_all_ranks_and_then_needs_no_group() {
    alone!();
    within_limit(|| {
        let id = unique_id();
        let mut comms = [std::ptr::null_mut(); 3];
        let made = group(|| {
            for (rank, comm) in comms.iter_mut().enumerate() {
                set_device(rank);
                // SAFETY: the pointer stays valid until the group has ended.
                assert_eq!(unsafe { ncclCommInitRankConfig(comm, 3, id, rank as i32, std::ptr::null_mut()) }, OK);
            }
        });
        assert_eq!(made, OK, "{}", last_error());
        let ranks: Vec<(Rank, Buffer)> = (0..3)
            .map(|rank| {
                set_device(rank);
                (Rank::new(rank, 3, comms[rank]), Buffer::new(&[1.0; 4]))
            })
            .collect();
        let all = || ranks.iter().for_each(|(rank, buffer)| assert_eq!(rank.all_reduce(buffer), OK));
        assert_eq!(group(all), OK, "{}", last_error());
        all();
        for (rank, buffer) in &ranks {
            rank.wait();
            assert_eq!(buffer.values(), [9.0; 4]);
        }
        ranks.iter().for_each(|(rank, _)| rank.end());
    });
}

/// Another operation or another size is another algorithm, perhaps; the same one is connected already.
#[test]
fn each_operation_and_class_of_sizes_meets_once() {
    alone!();
    let passed = Barrier::new(2);
    spmd(2, move |rank| {
        let come = |count: usize| {
            let buffer = Buffer::zeros(count);
            assert_eq!(rank.all_reduce(&buffer), OK, "{}", last_error());
            rank.wait();
        };
        rank.connect();
        if rank.rank == 1 {
            // A connected operation waits for nobody inside the call.
            passed.wait();
            come(8);
            return;
        }
        let (small, large) = (Buffer::zeros(8), Buffer::zeros(100_000));
        assert_eq!(rank.all_reduce(&small), OK);
        passed.wait();
        rank.wait();
        stays_inside(rank, || rank.all_reduce(&large));
        rank.abort();
    });
}

/// A rank leaves its first messages only when each of its peers has met all of its own.
#[test]
fn a_chain_of_first_messages_waits_for_its_last_link() {
    alone!();
    static LEFT: AtomicUsize = AtomicUsize::new(0);
    let late = Arc::new(Barrier::new(3));
    spmd(3, move |rank| {
        let buffers = [Buffer::zeros(1), Buffer::zeros(1)];
        match rank.rank {
            0 => {
                assert_eq!(send(rank, &buffers[0], 1), OK);
                assert_eq!(LEFT.load(Ordering::SeqCst), 1, "rank 1 was not through");
            }
            1 => {
                let ended = group(|| {
                    assert_eq!(recv(rank, &buffers[0], 0), OK);
                    assert_eq!(send(rank, &buffers[1], 2), OK);
                });
                assert_eq!(ended, OK, "{}", last_error());
            }
            _ => {
                std::thread::sleep(Duration::from_millis(200));
                LEFT.store(1, Ordering::SeqCst);
                assert_eq!(recv(rank, &buffers[0], 1), OK);
            }
        }
        rank.wait();
        late.wait();
    });
}

/// Two ranks connect both directions in one exchange, if the call has messages both ways; so both calls must.
#[test]
fn first_messages_of_opposite_ranks_go_both_ways_on_both_or_on_none() {
    alone!();
    let expected = expect("NCCL, which connects both ways at once here");
    let refused = Barrier::new(2);
    spmd(2, move |rank| {
        let buffers = [Buffer::zeros(1), Buffer::zeros(1)];
        if rank.rank == 0 {
            assert_eq!(send(rank, &buffers[0], 1), ncclResult_t::ncclInternalError);
            refused.wait();
        } else {
            let (handle, refused) = (Handle::of(rank), &refused);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    refused.wait();
                    handle.revoke()
                });
                let ended = group(|| {
                    assert_eq!(recv(rank, &buffers[0], 0), OK);
                    assert_eq!(send(rank, &buffers[1], 0), OK);
                });
                assert_eq!(ended, ncclResult_t::ncclInternalError);
            });
        }
        rank.abort();
    });
    assert!(expected.count() > 0);
}
