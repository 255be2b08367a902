//! Groups: deferred launch, nesting, failures inside, threads that forget to end them.

use super::*;
use crate::report::expected::{expect, reported};

fn start() {
    // SAFETY: takes no pointers.
    assert_eq!(unsafe { ncclGroupStart() }, OK);
}

fn end() -> ncclResult_t {
    // SAFETY: takes no pointers.
    unsafe { ncclGroupEnd() }
}

#[test]
fn one_thread_drives_all_ranks() {
    alone!();
    within_limit(|| {
        let id = unique_id();
        let mut comms = [std::ptr::null_mut(); 3];
        start();
        for (rank, comm) in comms.iter_mut().enumerate() {
            set_device(rank);
            // SAFETY: the pointer stays valid until the group has ended.
            assert_eq!(unsafe { ncclCommInitRankConfig(comm, 3, id, rank as i32, std::ptr::null_mut()) }, OK);
        }
        assert_eq!(end(), OK, "{}", last_error());
        let ranks: Vec<(Rank, Buffer)> = comms
            .into_iter()
            .enumerate()
            .map(|(rank, comm)| {
                set_device(rank);
                (Rank::new(rank, 3, comm), Buffer::new(&[rank as f32 + 1.0; 10]))
            })
            .collect();
        start();
        start();
        for (rank, buffer) in &ranks {
            assert_eq!(rank.all_reduce(buffer), OK);
        }
        assert_eq!(end(), OK);
        std::thread::sleep(Duration::from_millis(20));
        for (rank, buffer) in &ranks {
            assert!(rank.idle(), "nothing is launched before the outermost end");
            assert_eq!(buffer.values(), [rank.rank as f32 + 1.0; 10]);
        }
        assert_eq!(end(), OK);
        for (rank, buffer) in &ranks {
            rank.wait();
            assert_eq!(buffer.values(), [6.0; 10]);
        }
        for (rank, _) in &ranks {
            rank.end();
        }
    });
}

#[test]
fn a_failure_inside_launches_nothing_and_the_next_group_works() {
    alone!();
    spmd(2, |rank| {
        let buffer = Buffer::new(&[1.0; 4]);
        start();
        assert_eq!(rank.all_reduce(&buffer), OK);
        // SAFETY: refused.
        let refused = unsafe { ncclSend(buffer.0, 4, ncclDataType_t::ncclFloat32, 7, rank.comm, rank.stream) };
        assert_eq!(refused, ncclResult_t::ncclInvalidArgument);
        assert_eq!(rank.all_reduce(&buffer), OK);
        assert_eq!(end(), ncclResult_t::ncclInvalidArgument);
        rank.wait();
        assert_eq!(buffer.values(), [1.0; 4]);
        assert_eq!(rank.all_reduce(&buffer), OK);
        rank.wait();
        assert_eq!(buffer.values(), [2.0; 4]);
        assert_eq!(end(), ncclResult_t::ncclInvalidUsage, "not inside a group");
    });
}

/// NCCL notes what it has to connect when a message is issued, and does not look whether that was done.
#[test]
fn first_messages_of_a_group_that_fails_are_never_connected() {
    alone!();
    spmd(2, |rank| {
        let (buffer, peer) = (Buffer::zeros(4), 1 - rank.rank as i32);
        // SAFETY: the buffer stays until the communicator is aborted.
        let message = |peer| unsafe {
            let float = ncclDataType_t::ncclFloat32;
            match rank.rank {
                0 => ncclSend(buffer.0, 4, float, peer, rank.comm, rank.stream),
                _ => ncclRecv(buffer.0, 4, float, peer, rank.comm, rank.stream),
            }
        };
        start();
        assert_eq!((message(peer), message(7)), (OK, ncclResult_t::ncclInvalidArgument));
        assert_eq!(end(), ncclResult_t::ncclInvalidArgument);
        assert_eq!(message(peer), ncclResult_t::ncclInternalError);
        assert!(last_error().contains("no transport"), "{}", last_error());
        rank.abort();
    });
}

#[test]
fn collectives_and_messages_share_a_group() {
    alone!();
    spmd(2, |rank| {
        let (sum, other) = (Buffer::new(&[1.0; 4]), Buffer::new(&[2.0; 4]));
        let (out, inn) = (Buffer::new(&[rank.rank as f32; 4]), Buffer::zeros(4));
        let (peer, float) = (1 - rank.rank as i32, ncclDataType_t::ncclFloat32);
        start();
        // SAFETY: the buffers stay until the stream is idle.
        unsafe {
            assert_eq!(ncclRecv(inn.0, 4, float, peer, rank.comm, rank.stream), OK);
            assert_eq!(rank.all_reduce(&sum), OK);
            assert_eq!(ncclSend(out.0, 4, float, peer, rank.comm, rank.stream), OK);
            assert_eq!(rank.all_reduce(&other), OK);
        }
        assert_eq!(end(), OK);
        rank.wait();
        assert_eq!([sum.values(), other.values()], [[2.0; 4], [4.0; 4]]);
        assert_eq!(inn.values(), [peer as f32; 4]);
    });
}

/// Two collectives in one group here, one after the other there: on GPUs the data is wrong, or nothing ends.
#[test]
fn groups_that_differ_between_ranks_are_reported_and_give_garbage() {
    alone!();
    let expected = expect("ranks group their collectives differently");
    let named = expect(
        "rank 1 has [AllReduce of 4 elements of float32, sum] in one group, expected [AllReduce of 4 elements \
                        of float32, sum; AllReduce of 3 elements of float32, sum] in one group, as rank 0",
    );
    spmd(2, |rank| {
        rank.connect();
        let (four, three) = (Buffer::new(&[1.0; 4]), Buffer::new(&[1.0; 3]));
        if rank.rank == 0 {
            start();
        }
        assert_eq!((rank.all_reduce(&four), rank.all_reduce(&three)), (OK, OK));
        if rank.rank == 0 {
            assert_eq!(end(), OK, "{}", last_error());
        }
        rank.wait();
        assert_eq!(rank.state(), OK, "nobody notices");
        assert_eq!(four.values()[..2], [GARBAGE; 2]);
        assert_eq!(three.values()[..1], [GARBAGE]);
        assert_eq!(rank.all_reduce(&four), OK);
        rank.wait();
    });
    assert!(expected.count() > 0 && named.count() > 0);
}

/// The report names the first collectives of a group, but all of them are compared.
#[test]
fn large_groups_that_differ_in_their_last_collective_are_reported() {
    alone!();
    let expected = expect("ranks group their collectives differently");
    let _disagree = expect("ranks disagree at collective");
    spmd(2, |rank| {
        rank.connect();
        let buffers: Vec<_> = (0..10).map(|_| Buffer::new(&[1.0; 4])).collect();
        let last = Buffer::new(&vec![1.0; 3 + rank.rank]);
        start();
        buffers.iter().for_each(|buffer| assert_eq!(rank.all_reduce(buffer), OK));
        assert_eq!(rank.all_reduce(&last), OK);
        assert_eq!(end(), OK, "{}", last_error());
        rank.wait();
        assert_eq!(buffers[0].values()[..2], [GARBAGE; 2]);
    });
    assert!(expected.count() > 0);
}

/// What is no collective to NCCL may be grouped otherwise: messages, nothing, and what it makes of messages.
#[test]
fn messages_and_empty_collectives_may_be_grouped_differently() {
    alone!();
    spmd(2, |rank| {
        rank.connect();
        let (none, out) = (Buffer::zeros(0), Buffer::new(&[rank.rank as f32; 2]));
        let (inn, message) = (Buffer::zeros(2), Buffer::new(&[9.0; 2]));
        let grouped = |yes: bool, number: u32| {
            if yes {
                // SAFETY: takes no pointers.
                assert_eq!(unsafe { [ncclGroupStart, ncclGroupEnd][number as usize]() }, OK, "{}", last_error());
            }
        };
        for odd in [0, 1] {
            grouped(rank.rank == odd, 0);
            let float = ncclDataType_t::ncclFloat32;
            let peer = 1 - rank.rank as i32;
            // SAFETY: the buffers stay until the stream is idle.
            unsafe {
                assert_eq!(ncclAlltoAll(out.0, inn.0, 1, float, rank.comm, rank.stream), OK);
                assert_eq!(rank.all_reduce(&none), OK);
                match rank.rank {
                    0 => assert_eq!(ncclSend(out.0, 2, float, peer, rank.comm, rank.stream), OK),
                    _ => assert_eq!(ncclRecv(message.0, 2, float, peer, rank.comm, rank.stream), OK),
                }
            }
            grouped(rank.rank == odd, 1);
        }
        rank.wait();
        assert_eq!(inn.values(), [0.0, 1.0]);
        assert_eq!(message.values(), if rank.rank == 0 { [9.0; 2] } else { [0.0; 2] });
    });
}

/// The messages that NCCL makes of an exchange come behind the collectives of its group: who issues both one by one has them the other way
/// round, and each waits for the other.
#[test]
fn an_exchange_comes_behind_the_collectives_of_its_group() {
    alone!();
    spmd(2, |rank| {
        rank.connect();
        let (sum, out, inn) = (Buffer::new(&[1.0; 4]), Buffer::new(&[rank.rank as f32; 2]), Buffer::zeros(2));
        let float = ncclDataType_t::ncclFloat32;
        // SAFETY: the buffers stay until the stream is idle.
        let exchange = || unsafe { ncclAlltoAll(out.0, inn.0, 1, float, rank.comm, rank.stream) };
        assert_eq!(exchange(), OK);
        rank.wait();
        if rank.rank == 0 {
            start();
        }
        assert_eq!([exchange(), rank.all_reduce(&sum)], [OK; 2]);
        if rank.rank == 0 {
            assert_eq!(end(), OK);
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(!rank.idle());
        rank.abort();
        rank.wait();
    });
}

/// The last one says how the group is launched. Other jobs than windows must be of the same sort.
#[test]
fn blocking_and_non_blocking_mix_as_in_nccl() {
    alone!();
    within_limit(|| {
        set_device(0);
        let (result, one) = init(1, unique_id(), 0, config(true));
        assert_eq!(result, OK);
        let (result, two) = init(1, unique_id(), 0, config(false));
        assert_eq!(result, ncclResult_t::ncclInProgress);
        let ranks = [one, two].map(|comm| Rank::new(0, 1, comm));
        while ranks[1].state() == ncclResult_t::ncclInProgress {}
        let (from, all) = (Buffer::new(&[1.0]), [1; 2].map(Buffer::zeros));
        let message = |at: usize| {
            let (float, Rank { comm, stream, .. }, to) = (ncclDataType_t::ncclFloat32, &ranks[at], &all[at]);
            let (comm, stream) = (*comm, *stream);
            // SAFETY: the buffers stay until the stream is idle.
            unsafe { [ncclSend(from.0, 1, float, 0, comm, stream), ncclRecv(to.0, 1, float, 0, comm, stream)] }
        };
        for (order, ended) in [([0, 1], ncclResult_t::ncclInProgress), ([1, 0], OK)] {
            start();
            order.iter().for_each(|&at| assert_eq!(message(at), [OK; 2]));
            assert_eq!(end(), ended);
            ranks.iter().for_each(|rank| while rank.state() == ncclResult_t::ncclInProgress {});
            ranks.iter().for_each(Rank::wait);
        }
        all.iter().for_each(|to| assert_eq!(to.values(), [1.0]));
        start();
        assert_eq!(message(1), [OK; 2]);
        let mut child = std::ptr::null_mut();
        // SAFETY: refused.
        let refused = unsafe { ncclCommSplit(ranks[0].comm, 0, 0, &mut child, std::ptr::null_mut()) };
        assert_eq!(refused, ncclResult_t::ncclInvalidArgument);
        assert_eq!(end(), ncclResult_t::ncclInvalidArgument);
        assert!(last_error().contains("non-blocking"), "{}", last_error());
        ranks.iter().for_each(Rank::end);
    });
}

/// A call that is refused leaves a blocking communicator well. Any other has failed with it, and so have those in the same group.
#[test]
fn a_refused_call_is_the_error_of_communicators_that_do_not_block() {
    alone!();
    within_limit(|| {
        set_device(0);
        let blocking = [true, false, false];
        let ranks = blocking.map(|blocking| Rank::new(0, 1, init(1, unique_id(), 0, config(blocking)).1));
        ranks.iter().for_each(|rank| while rank.state() == ncclResult_t::ncclInProgress {});
        let (buffer, float, argument) =
            (Buffer::new(&[1.0, 0.0]), ncclDataType_t::ncclFloat32, ncclResult_t::ncclInvalidArgument);
        let hold = hold_up(ranks[1].stream);
        assert_eq!(ranks[1].to_itself(&buffer), ncclResult_t::ncclInProgress);
        while ranks[1].state() == ncclResult_t::ncclInProgress {}
        // SAFETY: refused.
        let refused = |rank: &Rank| unsafe { ncclSend(buffer.0, 1, float, 7, rank.comm, rank.stream) };
        assert_eq!([0, 1].map(|at| refused(&ranks[at])), [argument; 2]);
        assert_eq!(ranks.each_ref().map(Rank::state), [OK, argument, OK]);
        drop(hold);
        ranks[1].wait();
        assert_eq!(buffer.values(), [1.0, 1.0], "what was enqueued before goes on");
        start();
        assert_eq!(ranks[2].to_itself(&buffer), OK);
        assert_eq!(refused(&ranks[0]), argument);
        assert_eq!(end(), argument);
        assert_eq!(ranks.each_ref().map(Rank::state), [OK, argument, argument]);
        ranks.iter().for_each(Rank::end);
    });
}

#[test]
fn a_thread_that_ends_inside_a_group_is_reported() {
    alone!();
    let expected = expect("a thread ended inside a group");
    within_limit(start);
    // The report comes from the thread's end, which may come after its result.
    for _ in 0..500 {
        if expected.count() > 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing was reported");
}

#[test]
fn destroying_a_failed_communicator_leaves_the_thread_in_a_group() {
    alone!();
    let _disagree = expect("ranks disagree at collective #1");
    spmd(2, |rank| {
        let (send, recv) = (Buffer::zeros(8), Buffer::zeros(8));
        let (datatype, op) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
        // SAFETY: the buffers stay until the stream is idle.
        let issued = unsafe { ncclAllReduce(send.0, recv.0, 8 - rank.rank, datatype, op, rank.comm, rank.stream) };
        assert_eq!(issued, OK);
        rank.wait();
        // SAFETY: takes no pointers.
        let destroyed = reported("ncclCommDestroy returned early", || unsafe { ncclCommDestroy(rank.comm) });
        assert_eq!(destroyed, ncclResult_t::ncclInvalidUsage);
        assert_eq!(end(), OK, "the thread was one group deeper");
        assert_eq!(end(), ncclResult_t::ncclInvalidUsage);
    });
}

#[test]
fn groups_over_shared_streams_in_opposite_order_do_not_wait_for_each_other() {
    alone!();
    within_limit(|| {
        set_device(0);
        let streams = [stream(), stream()].map(|stream| stream.expose_provenance());
        std::thread::scope(|scope| {
            for order in [[0, 1], [1, 0]] {
                scope.spawn(move || {
                    set_device(0);
                    let (result, comm) = init(1, unique_id(), 0, config(true));
                    assert_eq!(result, OK, "{}", last_error());
                    let buffers = [Buffer::new(&[1.0; 4]), Buffer::new(&[1.0; 4])];
                    for _ in 0..300 {
                        start();
                        for (at, buffer) in order.into_iter().zip(&buffers) {
                            let stream = std::ptr::with_exposed_provenance_mut(streams[at]);
                            assert_eq!(Rank { stream, ..Rank::new(0, 1, comm) }.all_reduce(buffer), OK);
                        }
                        assert_eq!(end(), OK);
                    }
                    for stream in streams {
                        wait(std::ptr::with_exposed_provenance_mut(stream));
                    }
                    // SAFETY: takes no pointers.
                    assert_eq!(unsafe { ncclCommDestroy(comm) }, OK);
                });
            }
        });
    });
}

/// NCCL runs each on a thread of its own, and both talk to the other ranks by the same connections.
#[test]
fn a_communicator_has_one_job_in_a_group() {
    alone!();
    spmd(2, |rank| {
        let mut parts = [std::ptr::null_mut(); 2];
        let [one, other] = &mut parts;
        // SAFETY: the places stay until the group has ended.
        unsafe {
            let split = |part| ncclCommSplit(rank.comm, 0, 0, part, std::ptr::null_mut());
            assert_eq!((ncclGroupStart(), split(one)), (OK, OK));
            let text = format!("ncclCommSplit and ncclCommSplit of rank {} are in one group", rank.rank);
            assert_eq!(reported(&text, || split(other)), OK);
            assert_eq!(ncclGroupEnd(), OK, "{}", last_error());
            assert_eq!(parts.map(|part| ncclCommAbort(part)), [OK; 2]);
        }
    });
}
