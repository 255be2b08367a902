//! Threads that meet inside a communicator.

use super::*;
use crate::report::expected::{expect, reported};

/// Has another thread call `first` on the communicator of rank 0, where it waits for rank 1, and `then` meanwhile on this one.
fn meanwhile(first: fn(ncclComm_t, usize, cudaStream_t) -> ncclResult_t, then: impl Fn(&Rank) + Send + Sync + 'static) {
    spmd(2, move |rank| {
        let buffer = Buffer::new(&[1.0; 4]);
        if rank.rank == 1 {
            std::thread::sleep(Duration::from_millis(500));
            return rank.abort();
        }
        let (comm, at, stream) = (rank.comm.addr(), buffer.0.addr(), rank.stream.addr());
        let other = std::thread::spawn(move || {
            let (comm, stream) = (std::ptr::without_provenance_mut(comm), std::ptr::without_provenance_mut(stream));
            first(comm, at, stream)
        });
        until_inside(comm);
        then(rank);
        // SAFETY: takes no pointers. It frees the other thread.
        let revoked = unsafe { ncclCommRevoke(rank.comm, 0) };
        assert_eq!(revoked, if rank.aborted.get() { ncclResult_t::ncclInvalidArgument } else { OK });
        assert_ne!(other.join().expect("the other thread returns"), OK);
        if !rank.aborted.get() {
            rank.abort();
        }
    });
}

fn all_reduce(comm: ncclComm_t, at: usize, stream: cudaStream_t) -> ncclResult_t {
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the buffer is checked by the function, and stays until the communicator is gone.
    unsafe { ncclAllReduce(at, at, 4, ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum, comm, stream) }
}

#[test]
fn two_threads_inside_one_communicator_are_a_violation() {
    alone!();
    meanwhile(all_reduce, |rank| {
        let met = "while another thread is inside ncclAllReduce";
        // SAFETY: the pointer is valid for a write.
        assert_eq!(reported(met, || unsafe { ncclCommCount(rank.comm, &mut 0) }), OK);
    });
}

#[test]
fn whoever_asks_for_errors_or_revokes_may_meet_others() {
    alone!();
    meanwhile(all_reduce, |rank| {
        assert_eq!(rank.state(), OK);
        assert_eq!(rank.error(), last_error());
    });
}

#[test]
fn an_abort_must_meet_nobody() {
    alone!();
    let stale = expect("was destroyed or aborted");
    meanwhile(all_reduce, |rank| {
        let met = "ncclCommAbort of rank 0 while another thread is inside ncclAllReduce of the same communicator; NCCL";
        reported(met, || rank.abort());
    });
    assert!(stale.count() > 0, "the revoke came too late");
}

/// A thread is inside from the first call of a group to the end of the group.
#[test]
fn an_open_group_counts() {
    alone!();
    spmd(1, |rank| {
        let buffer = Buffer::new(&[1.0; 4]);
        let count = || {
            let comm = rank.comm.addr();
            let other = std::thread::spawn(move || {
                // SAFETY: the pointer is valid for a write.
                unsafe { ncclCommCount(std::ptr::without_provenance_mut(comm), &mut 0) }
            });
            assert_eq!(other.join().expect("the count"), OK);
        };
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { ncclGroupStart() }, OK);
        count();
        assert_eq!(rank.to_itself(&buffer), OK);
        reported("ncclCommCount of rank 0 while another thread is inside ncclSend", count);
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { ncclGroupEnd() }, OK);
        count();
        rank.wait();
    });
}

/// As [`strangers`], where each has met the other.
fn sharers(body: impl Fn(&Rank, &Rank) + Send + Sync) {
    strangers(|parent, child| {
        parent.connect();
        child.connect();
        body(parent, child);
    });
}

/// Runs `body` as each of two ranks, with a communicator and one that was split off from it and shares its resources.
fn strangers(body: impl Fn(&Rank, &Rank) + Send + Sync) {
    let id = unique_id();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let body = &body;
            scope.spawn(move || {
                set_device(rank);
                let (parent, child) = sharing(id, rank);
                let (parent, child) = (Rank::new(rank, 2, parent), Rank::new(rank, 2, child));
                body(&parent, &child);
                for one in [child, parent] {
                    one.abort();
                    // SAFETY: nothing is left to do on the stream.
                    assert_eq!(unsafe { cudaStreamDestroy(one.stream) }, cudaError::cudaSuccess);
                }
            });
        }
    });
}

#[test]
fn sharers_count_as_one() {
    alone!();
    within_limit(|| {
        sharers(|parent, child| {
            let buffer = Buffer::new(&[1.0; 4]);
            let in_a_group = |call: &(dyn Fn() + Sync)| {
                // SAFETY: takes no pointers.
                assert_eq!(unsafe { ncclGroupStart() }, OK);
                assert_eq!(parent.all_reduce(&buffer), OK);
                std::thread::scope(|scope| drop(scope.spawn(call)));
                // SAFETY: takes no pointers.
                assert_eq!(unsafe { ncclGroupEnd() }, OK);
            };
            let comm = child.comm.addr();
            let comm = move || std::ptr::without_provenance_mut(comm);
            let met = "while another thread is inside ncclAllReduce of one that shares its resources";
            // SAFETY: the pointer is valid for a write.
            in_a_group(&|| assert_eq!(reported(met, || unsafe { ncclCommCount(comm(), &mut 0) }), OK));
            // Who asks for errors is nobody.
            in_a_group(&|| {
                let mut state = OK;
                // SAFETY: the pointer is valid for a write.
                assert_eq!(unsafe { ncclCommGetAsyncError(comm(), &mut state) }, OK);
            });
            parent.wait();
        });
    });
}

/// NCCL connects them on a thread each.
#[test]
fn sharers_connect_one_after_the_other() {
    alone!();
    let told = expect("one group has first messages of communicators that share the resources of a rank");
    within_limit(|| {
        strangers(|parent, child| {
            let buffers = [Buffer::new(&[1.0; 4]), Buffer::new(&[1.0; 4])];
            // SAFETY: takes no pointers.
            assert_eq!(unsafe { ncclGroupStart() }, OK);
            for (comm, buffer) in [parent, child].into_iter().zip(&buffers) {
                let (at, peer) = (buffer.0, 1 - comm.rank as i32);
                // SAFETY: the buffer is checked by the function, and stays until the communicator is gone.
                let called = unsafe { ncclSend(at, 4, ncclDataType_t::ncclFloat32, peer, comm.comm, comm.stream) };
                assert_eq!(called, OK);
            }
            // SAFETY: takes no pointers.
            assert_eq!(unsafe { ncclGroupEnd() }, ncclResult_t::ncclInvalidArgument);
        });
    });
    assert_eq!(told.count(), 2);
}

/// Each rank begins with another one: on a GPU each takes what belongs to the other.
#[test]
fn sharers_are_used_in_one_order() {
    alone!();
    let told = expect("use communicators that share their resources in different orders");
    within_limit(|| {
        sharers(|parent, child| {
            let buffers = [Buffer::new(&[1.0; 4]), Buffer::new(&[1.0; 4])];
            let order = if parent.rank == 0 { [parent, child] } else { [child, parent] };
            for (comm, buffer) in order.iter().zip(&buffers) {
                assert_eq!(comm.all_reduce(buffer), OK);
            }
            std::thread::sleep(Duration::from_millis(300));
            // Both hang: this ends them, and the memory is used no more.
            // SAFETY: takes no pointers.
            assert_eq!(unsafe { ncclCommRevoke(child.comm, 0) }, OK);
            parent.wait();
            child.wait();
        });
    });
    assert!(told.count() > 0);
}
