//! What NCCL registers for graphs by itself.

use super::replays::{CUDA_OK, SUM, U32, captured, cuda, launch, nccl};
use super::*;
use crate::report::expected::{expect, reported};

const BYTES: usize = 8192;

fn allocate() -> *mut c_void {
    let mut at = std::ptr::null_mut();
    assert_eq!(nccl!(ncclMemAlloc(&mut at, BYTES)), OK, "{}", last_error());
    at
}

fn free(at: *mut c_void) {
    assert_eq!(nccl!(ncclMemFree(at)), OK, "{}", last_error());
}

/// Sums as many elements as `BYTES` are.
fn sum(rank: &Rank, send: *mut c_void, recv: *mut c_void) -> ncclResult_t {
    nccl!(ncclAllReduce(send, recv, BYTES / 4, U32, SUM, rank.comm, rank.stream))
}

fn graph(rank: &Rank, send: *mut c_void, recv: *mut c_void) -> cudaGraphExec_t {
    captured(rank.stream, || assert_eq!(sum(rank, send, recv), OK, "{}", last_error()))
}

fn destroy(exec: cudaGraphExec_t) {
    cuda!(cudaGraphExecDestroy(exec));
}

#[test]
fn ranks_whose_memory_differs_are_reported() {
    alone!();
    // In which buffers rank 1 differs, and whether it is in place.
    for (different, in_place) in
        [([true, true], false), ([true, false], false), ([false, true], false), ([false; 2], true)]
    {
        spmd(2, move |rank| {
            rank.connect();
            let plain = Buffer::zeros(BYTES / 4);
            let (send, recv) = (allocate(), allocate());
            let is = |at: usize| different[at] && rank.rank == 1;
            let from = if in_place && rank.rank == 1 {
                recv
            } else if is(0) {
                plain.0
            } else {
                send
            };
            let other = Buffer::zeros(BYTES / 4);
            let exec = graph(rank, from, if is(1) { other.0 } else { recv });
            let expected = expect("registered memory");
            launch(exec, rank.stream);
            while rank.state() == OK {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(expected.count() > 0);
            destroy(exec);
            rank.abort();
            rank.wait();
            [send, recv].into_iter().for_each(free);
        });
    }
}

#[test]
fn memory_is_found_by_its_address_for_a_while() {
    alone!();
    spmd(2, |rank| {
        let other = Buffer::zeros(BYTES / 4);
        let groups = |count: usize| (0..count).for_each(|_| assert_eq!(sum(rank, other.0, other.0), OK));
        rank.connect();
        for round in 0..3 {
            let first = allocate();
            let exec = graph(rank, first, first);
            launch(exec, rank.stream);
            rank.wait();
            // As often as one likes.
            let again = graph(rank, first, first);
            destroy(exec);
            groups(12);
            rank.wait();
            destroy(again);
            rank.wait();
            free(first);
            let second = allocate();
            assert_eq!(first, second, "the emulator hands out the same addresses");
            if round < 2 {
                let tries: fn(&Rank, *mut c_void) -> ncclResult_t = if round == 0 { register } else { captures };
                let refused = reported("NCCL knows other memory there", || tries(rank, second));
                assert_eq!(refused, ncclResult_t::ncclInvalidUsage);
            }
            // At the latest now it looks.
            groups(11);
            rank.wait();
            let exec = graph(rank, second, second);
            launch(exec, rank.stream);
            rank.wait();
            destroy(exec);
            groups(12);
            rank.wait();
            free(second);
        }
    });
}

fn register(rank: &Rank, at: *mut c_void) -> ncclResult_t {
    let mut handle = std::ptr::null_mut();
    nccl!(ncclCommRegister(rank.comm, at, BYTES, &mut handle))
}

/// Tries to capture, which fails.
fn captures(rank: &Rank, at: *mut c_void) -> ncclResult_t {
    let mut graph = std::ptr::null_mut();
    cuda!(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal));
    let result = sum(rank, at, at);
    cuda!(cudaStreamEndCapture(rank.stream, &mut graph));
    cuda!(cudaGraphDestroy(graph));
    result
}
