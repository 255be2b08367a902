//! What communicators say of graphs: `graphUsageMode` and `graphStreamOrdering`, each test in a process of a version that has them.

use super::one_sided::since;
use super::replays::{CUDA_OK, SUM, U32, captured, cuda, launch, nccl, order};
use super::*;
use crate::report::expected::reported;

/// Two ranks whose communicators say so, with two streams each.
fn ranks(test: &str, usage: i32, ordering: Option<i32>, body: impl Fn(&Rank, cudaStream_t) + Send + Sync + 'static) {
    since(2_30_07, &format!("usage::{test}"), move || {
        within_limit(move || {
            let (id, body) = (unique_id(), &body);
            std::thread::scope(|scope| {
                for index in 0..2 {
                    scope.spawn(move || {
                        set_device(index);
                        let mut config = config(true);
                        config.graphUsageMode = usage;
                        config.graphStreamOrdering = ordering.unwrap_or(config.graphStreamOrdering);
                        let (result, comm) = init(2, id, index, config);
                        assert_eq!(result, OK, "{}", last_error());
                        let rank = Rank::new(index, 2, comm);
                        rank.connect();
                        let side = stream();
                        body(&rank, side);
                        [rank.stream, side].into_iter().for_each(wait);
                        rank.end();
                        cuda!(cudaStreamDestroy(side));
                    });
                }
            });
        });
    });
}

fn sum(rank: &Rank, buffer: &Buffer, stream: cudaStream_t) {
    assert_eq!(nccl!(ncclAllReduce(buffer.0, buffer.0, buffer.1, U32, SUM, rank.comm, stream)), OK);
}

#[test]
fn who_says_no_graphs_captures_nothing() {
    alone!();
    ranks("who_says_no_graphs_captures_nothing", 0, None, |rank, _| {
        let buffer = Buffer::zeros(3);
        sum(rank, &buffer, rank.stream);
        let make = || captured(rank.stream, || sum(rank, &buffer, rank.stream));
        let exec = reported("graphUsageMode is 0", make);
        // NCCL goes on all the same.
        rank.wait();
        launch(exec, rank.stream);
        rank.wait();
        cuda!(cudaGraphExecDestroy(exec));
    });
}

#[test]
fn without_mixing_the_host_waits_for_graphs() {
    alone!();
    ranks("without_mixing_the_host_waits_for_graphs", 1, None, |rank, _| {
        let (one, two) = (Buffer::zeros(3), Buffer::zeros(3));
        let exec = captured(rank.stream, || sum(rank, &one, rank.stream));
        for _ in 0..3 {
            // In the order of one stream, and seen between.
            sum(rank, &two, rank.stream);
            launch(exec, rank.stream);
            launch(exec, rank.stream);
            rank.wait();
        }
        launch(exec, rank.stream);
        reported("while a graph with operations of the communicator is on its way", || sum(rank, &two, rank.stream));
        rank.wait();
        cuda!(cudaGraphExecDestroy(exec));
    });
}

#[test]
fn without_mixing_the_program_orders_launches() {
    alone!();
    ranks("without_mixing_the_program_orders_launches", 1, None, |rank, side| {
        let (one, two) = (Buffer::zeros(3), Buffer::zeros(3));
        let graphs = [&one, &two].map(|buffer| captured(rank.stream, || sum(rank, buffer, rank.stream)));
        launch(graphs[0], rank.stream);
        order(rank.stream, side);
        launch(graphs[1], side);
        reported("has no order with a launch of another one", || launch(graphs[0], rank.stream));
        [rank.stream, side].into_iter().for_each(wait);
        sum(rank, &two, rank.stream);
        reported("has no order with what was launched on the communicator before", || launch(graphs[0], side));
        [rank.stream, side].into_iter().for_each(wait);
        graphs.into_iter().for_each(|exec| cuda!(cudaGraphExecDestroy(exec)));
    });
}

/// Where NCCL does not order what is in a graph, it orders the launches of graphs.
#[test]
fn who_orders_its_captures_need_not_order_launches() {
    alone!();
    ranks("who_orders_its_captures_need_not_order_launches", 1, Some(0), |rank, side| {
        let (one, two) = (Buffer::zeros(3), Buffer::zeros(3));
        let exec = captured(rank.stream, || {
            sum(rank, &one, rank.stream);
            order(rank.stream, side);
            sum(rank, &two, side);
            order(side, rank.stream);
        });
        let other = captured(side, || sum(rank, &one, side));
        launch(exec, rank.stream);
        launch(other, side);
        [rank.stream, side].into_iter().for_each(wait);
        let loose = captured(rank.stream, || {
            order(rank.stream, side);
            sum(rank, &one, rank.stream);
            reported("graphStreamOrdering is 0", || sum(rank, &two, side));
            order(side, rank.stream);
        });
        [exec, other, loose].into_iter().for_each(|exec| cuda!(cudaGraphExecDestroy(exec)));
    });
}

/// `graphStreamOrdering` 0 is taken for 1 where graphs are mixed, which they are if nothing is said.
#[test]
fn mixed_ones_are_in_order() {
    alone!();
    ranks("mixed_ones_are_in_order", 2, Some(0), |rank, side| {
        let (one, two) = (Buffer::zeros(3), Buffer::zeros(3));
        let exec = captured(rank.stream, || {
            order(rank.stream, side);
            sum(rank, &one, rank.stream);
            sum(rank, &two, side);
            order(side, rank.stream);
        });
        for _ in 0..5 {
            launch(exec, rank.stream);
            sum(rank, &two, side);
        }
        [rank.stream, side].into_iter().for_each(wait);
        cuda!(cudaGraphExecDestroy(exec));
    });
}

/// They call CUDA, which host functions must not.
#[test]
fn host_functions_must_not_call_nccl() {
    struct Calls {
        comm: ncclComm_t,
        stream: cudaStream_t,
        buffer: *mut c_void,
        results: Vec<ncclResult_t>,
    }
    unsafe extern "C" fn call(calls: *mut c_void) {
        // SAFETY: what the test gives, which looks at it when this is over.
        let Calls { comm, stream, buffer, results } = unsafe { &mut *calls.cast() };
        let (float, sum) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
        let (mut memory, mut child) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the pointers are valid.
        unsafe {
            results.push(ncclAllReduce(*buffer, *buffer, 4, float, sum, *comm, *stream));
            results.push(ncclMemAlloc(&mut memory, 4096));
            results.push(ncclCommSplit(*comm, 0, 0, &mut child, std::ptr::null_mut()));
            let mut state = ncclResult_t::ncclSuccess;
            assert_eq!(ncclCommGetAsyncError(*comm, &mut state), OK, "that calls nothing");
        }
    }
    alone!();
    within_limit(|| {
        set_device(0);
        let (result, comm) = init(1, unique_id(), 0, config(true));
        assert_eq!(result, OK);
        let (first, second) = (stream(), stream());
        let buffer = Buffer::zeros(4);
        let mut calls = Calls { comm, stream: second, buffer: buffer.0, results: Vec::new() };
        reported("was called inside a host function of a stream", || {
            // SAFETY: it stays until the stream is idle.
            let launched = unsafe { cudaLaunchHostFunc(first, Some(call), (&raw mut calls).cast()) };
            assert_eq!(launched, cudaError::cudaSuccess);
            wait(first);
        });
        wait(second);
        assert_eq!(calls.results, [ncclResult_t::ncclUnhandledCudaError; 3]);
        // SAFETY: nothing uses it.
        assert_eq!(unsafe { ncclCommDestroy(comm) }, OK);
    });
}
