//! Graphs, and the communicators whose operations they have.

use super::replays::{CUDA_OK, SUM, U32, captured, cuda, launch, nccl};
use super::*;
use crate::report::expected::reported;

#[test]
fn a_group_is_captured_as_a_whole() {
    alone!();
    spmd(1, |rank| {
        let (buffer, captures) = (Buffer::new(&[1.0; 4]), stream());
        rank.connect();
        let mut graph = std::ptr::null_mut();
        let mode = cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
        cuda!(cudaStreamBeginCapture(captures, mode));
        assert_eq!(nccl!(ncclGroupStart()), OK);
        assert_eq!(nccl!(ncclSend(buffer.0, 2, U32, 0, rank.comm, captures)), OK);
        let live = nccl!(ncclRecv(buffer.at(2), 2, U32, 0, rank.comm, rank.stream));
        assert_eq!(live, ncclResult_t::ncclInvalidUsage);
        assert_eq!(nccl!(ncclGroupEnd()), ncclResult_t::ncclInvalidUsage);
        assert!(last_error().contains("captured into the same graph"), "{}", last_error());
        cuda!(cudaStreamEndCapture(captures, &mut graph));
        let mut nodes = 1;
        cuda!(cudaGraphGetNodes(graph, std::ptr::null_mut(), &mut nodes));
        assert_eq!(nodes, 0);
        cuda!(cudaGraphDestroy(graph));
    });
}

#[test]
fn a_rank_in_a_graph_meets_no_rank_that_is_not() {
    alone!();
    let ended = reported("of 4 elements of uint32, sum, in a graph", || {
        spmd(2, |rank| {
            rank.connect();
            let buffer = Buffer::new(&[1.0; 4]);
            let sum = || assert_eq!(nccl!(ncclAllReduce(buffer.0, buffer.0, 4, U32, SUM, rank.comm, rank.stream)), OK);
            let exec = captured(rank.stream, sum);
            if rank.rank == 0 {
                launch(exec, rank.stream)
            } else {
                sum()
            }
            rank.wait();
            cuda!(cudaGraphExecDestroy(exec));
            rank.state()
        })
    });
    assert_eq!(ended, [ncclResult_t::ncclInvalidUsage; 2]);
}

type End = unsafe fn(ncclComm_t) -> ncclResult_t;

/// Calls `end` on another thread: it is not over before `graph` is destroyed.
fn ends_after(exec: cudaGraphExec_t, comm: ncclComm_t, end: End) {
    let comm = comm.addr();
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: takes a handle, which is looked up.
        done.send(unsafe { end(std::ptr::without_provenance_mut(comm)) }).unwrap();
    });
    assert!(ended.recv_timeout(Duration::from_millis(100)).is_err(), "it is over while a graph has its operations");
    cuda!(cudaGraphExecDestroy(exec));
    assert_eq!(ended.recv(), Ok(OK));
    thread.join().unwrap();
}

#[test]
fn an_end_waits_for_graphs() {
    alone!();
    within_limit(|| {
        set_device(0);
        let ends: [(End, bool); 3] = [
            (|comm| nccl!(ncclCommFinalize(comm)), true),
            (|comm| nccl!(ncclCommDestroy(comm)), false),
            (|comm| nccl!(ncclCommAbort(comm)), false),
        ];
        for (end, lives) in ends {
            let (result, comm) = init(1, unique_id(), 0, config(true));
            assert_eq!(result, OK);
            let (rank, buffer) = (Rank::new(0, 1, comm), Buffer::new(&[1.0; 4]));
            let exec = captured(rank.stream, || assert_eq!(rank.to_itself(&buffer), OK));
            launch(exec, rank.stream);
            rank.wait();
            ends_after(exec, comm, end);
            if lives {
                assert_eq!(nccl!(ncclCommDestroy(comm)), OK);
            }
        }
    });
}

/// NCCL frees what the ranks of a process have when the last of them ends.
#[test]
fn the_last_rank_of_a_process_waits_for_the_graphs_of_all() {
    alone!();
    let gone = std::sync::Barrier::new(2);
    spmd(2, move |rank| {
        rank.connect();
        let buffer = Buffer::new(&[1.0; 4]);
        rank.aborted.set(true);
        if rank.rank == 1 {
            gone.wait();
            // That of the other rank.
            gone.wait();
            assert_eq!(nccl!(ncclCommDestroy(rank.comm)), OK);
            return;
        }
        let exec = captured(rank.stream, || assert_eq!(rank.all_reduce(&buffer), OK));
        assert_eq!(nccl!(ncclCommDestroy(rank.comm)), OK);
        gone.wait();
        // NCCL would run it, in memory that is free once the other rank has ended.
        let refused =
            reported("of a communicator of which rank 0 was destroyed", || nccl!(cudaGraphLaunch(exec, rank.stream)));
        assert_eq!(refused, cudaError::cudaErrorInvalidValue);
        gone.wait();
        std::thread::sleep(Duration::from_millis(50));
        cuda!(cudaGraphExecDestroy(exec));
    });
}

#[test]
fn no_graph_runs_after_a_revoke() {
    alone!();
    spmd(1, |rank| {
        let buffer = Buffer::new(&[1.0; 4]);
        let exec = captured(rank.stream, || assert_eq!(rank.to_itself(&buffer), OK));
        assert_eq!(nccl!(ncclCommRevoke(rank.comm, NCCL_REVOKE_DEFAULT as i32)), OK);
        let refused = reported("was finalized or revoked", || nccl!(cudaGraphLaunch(exec, rank.stream)));
        assert_eq!(refused, cudaError::cudaErrorInvalidValue);
        cuda!(cudaGraphExecDestroy(exec));
    });
}

/// A GPU may take an update in which a kernel of NCCL changes, and need not.
#[test]
fn an_update_changes_what_is_beside_nccl() {
    alone!();
    spmd(2, |rank| {
        rank.connect();
        let (one, two) = (Buffer::zeros(4), Buffer::zeros(4));
        let graph = |value: i32, summed: &Buffer, count: usize| {
            let (mut graph, mode) = (std::ptr::null_mut(), cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal);
            cuda!(cudaStreamBeginCapture(rank.stream, mode));
            cuda!(cudaMemsetAsync(one.0, value, 16, rank.stream));
            let sum = nccl!(ncclAllReduce(summed.0, summed.0, count, U32, SUM, rank.comm, rank.stream));
            assert_eq!(sum, OK);
            cuda!(cudaStreamEndCapture(rank.stream, &mut graph));
            graph
        };
        let first = graph(1, &one, 4);
        let mut exec = std::ptr::null_mut();
        cuda!(cudaGraphInstantiate(&mut exec, first, 0));
        cuda!(cudaGraphDestroy(first));
        let update = |graph: cudaGraph_t| {
            let (result, none) = (cudaGraphExecUpdateResult::cudaGraphExecUpdateError, std::ptr::null_mut());
            let mut info = cudaGraphExecUpdateResultInfo { result, errorNode: none, errorFromNode: none };
            let done = nccl!(cudaGraphExecUpdate(exec, graph, &mut info));
            cuda!(cudaGraphDestroy(graph));
            (done, info.result.0)
        };
        let failed = (cudaError::cudaErrorGraphExecUpdateFailure, 5);
        assert_eq!(update(graph(2, &two, 4)), failed);
        assert_eq!(update(graph(2, &one, 3)), failed);
        assert_eq!(update(graph(2, &one, 4)), (CUDA_OK, 0));
        for _ in 0..3 {
            launch(exec, rank.stream);
        }
        rank.wait();
        assert_eq!(one.values().iter().map(|value| value.to_bits()).collect::<Vec<_>>(), [0x0404_0404; 4]);
        cuda!(cudaGraphExecDestroy(exec));
    });
}
