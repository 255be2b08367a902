//! Collectives of one rank, and those of nothing: no rank meets another there.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

const F32: ncclDataType_t = ncclDataType_t::ncclFloat32;

/// NCCL copies at once where there is one rank, whatever becomes of the group.
#[test]
fn one_rank_does_not_wait_for_the_end_of_a_group() {
    alone!();
    spmd(1, |rank| {
        let (send, recv) = (Buffer::new(&[1.0, 2.0]), Buffer::zeros(2));
        // SAFETY: the buffers stay until the stream is idle; the last call is refused.
        unsafe {
            assert_eq!(ncclGroupStart(), OK);
            assert_eq!(ncclAllGather(send.0, recv.0, 2, F32, rank.comm, rank.stream), OK);
            rank.wait();
            assert_eq!(recv.values(), [1.0, 2.0]);
            assert_eq!(ncclSend(send.0, 2, F32, 7, rank.comm, rank.stream), ncclResult_t::ncclInvalidArgument);
            assert_eq!(ncclGroupEnd(), ncclResult_t::ncclInvalidArgument);
        }
    });
}

/// Nor for what the communicator has on another stream, and no end of it waits for that.
#[test]
fn one_rank_keeps_no_order_but_that_of_its_streams() {
    alone!();
    spmd(1, |rank| {
        let other = Rank::new(0, 1, rank.comm);
        let [slow, quick] = [(); 2].map(|()| Buffer::new(&[1.0; 4]));
        let hold = hold_up(rank.stream);
        assert_eq!((rank.all_reduce(&slow), other.all_reduce(&quick)), (OK, OK));
        other.wait();
        assert!(!rank.idle());
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { ncclCommFinalize(rank.comm) }, OK);
        drop(hold);
        rank.wait();
        // SAFETY: nothing is left to do on the stream.
        assert_eq!(unsafe { cudaStreamDestroy(other.stream) }, cudaError::cudaSuccess);
    });
}

#[test]
fn a_collective_of_nothing_meets_nobody() {
    alone!();
    spmd(2, |rank| {
        let none = Buffer::zeros(0);
        if rank.rank == 0 {
            let null = std::ptr::null_mut();
            for _ in 0..3 {
                assert_eq!(rank.all_reduce(&none), OK);
                // SAFETY: nothing is read or written.
                let others = unsafe {
                    [
                        ncclAlltoAll(null, null, 0, F32, rank.comm, rank.stream),
                        ncclBroadcast(null, null, 0, F32, 1, rank.comm, rank.stream),
                        ncclReduceScatter(null, null, 0, F32, ncclRedOp_t::ncclAvg, rank.comm, rank.stream),
                    ]
                };
                assert_eq!(others, [OK; 3]);
            }
            rank.wait();
        }
        // The other rank is at the same collective.
        assert_eq!(rank.all_reduce(&Buffer::zeros(1)), OK);
        rank.wait();
    });
}

/// AlltoAll, Gather and Scatter are messages: who has its own need not wait for others, and theirs may be asked for one by one.
#[test]
fn what_is_made_of_messages_is_no_meeting() {
    alone!();
    let through = AtomicBool::new(false);
    spmd(3, move |rank| {
        rank.connect();
        let (one, three) = (Buffer::new(&[rank.rank as f32]), Buffer::zeros(3));
        let (late, told) = (hold_up(rank.stream), Rank { stream: stream(), ..Rank::new(rank.rank, 3, rank.comm) });
        // Rank 2 is held up; rank 1 does not wait for it.
        let own = if rank.rank == 2 { rank } else { &told };
        // SAFETY: the buffers stay until the streams are idle.
        unsafe {
            assert_eq!(ncclGather(one.0, three.0, 1, F32, 0, rank.comm, own.stream), OK);
            match rank.rank {
                1 => {
                    told.wait();
                    through.store(true, Ordering::Release);
                }
                2 => {
                    while !through.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                }
                _ => {}
            }
            drop(late);
            own.wait();
            rank.wait();
            assert_eq!(three.values(), if rank.rank == 0 { [0.0, 1.0, 2.0] } else { [0.0; 3] });
            let (out, inn) = (Buffer::new(&[0.0, 1.0, 2.0].map(|to| to + 10.0 * rank.rank as f32)), Buffer::zeros(3));
            if rank.rank == 1 {
                assert_eq!(ncclGroupStart(), OK);
                for peer in 0..3 {
                    assert_eq!(ncclSend(out.at(peer), 1, F32, peer as i32, rank.comm, rank.stream), OK);
                    assert_eq!(ncclRecv(inn.at(peer), 1, F32, peer as i32, rank.comm, rank.stream), OK);
                }
                assert_eq!(ncclGroupEnd(), OK);
            } else {
                assert_eq!(ncclAlltoAll(out.0, inn.0, 1, F32, rank.comm, rank.stream), OK);
            }
            rank.wait();
            assert_eq!(inn.values(), [0.0, 10.0, 20.0].map(|from| from + rank.rank as f32));
            assert_eq!(cudaStreamDestroy(told.stream), cudaError::cudaSuccess);
        }
    });
}
