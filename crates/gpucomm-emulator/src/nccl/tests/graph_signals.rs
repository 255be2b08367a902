//! One-sided operations in graphs, each test in a process of a version that has them.

use super::one_sided::{Window, begin, newer_as, put, signal, since, wait_signals};
use super::replays::{CUDA_OK, captured, cuda, launch, nccl, order};
use super::*;
use crate::report::expected::reported;

const MODE: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;

fn newest(test: &str, body: impl FnOnce()) {
    since(2_30_07, &format!("graph_signals::{test}"), body);
}

/// Each rank puts to the next one, which has waited when the graph is done: two puts a launch, and a signal.
#[test]
fn replays_give_and_take_as_many_signals_as_were_captured() {
    alone!();
    newest("replays_give_and_take_as_many_signals_as_were_captured", || {
        for size in [1, 2, 4] {
            spmd(size, move |rank| {
                let me = rank.rank;
                let (next, last) = (((me + 1) % size) as i32, ((me + size - 1) % size) as i32);
                let (inbox, outbox) = (Window::new(rank, 1024), Window::new(rank, 1024));
                begin(rank);
                let side = stream();
                let exec = captured(rank.stream, || {
                    // Who waits for a second one has others wait for that, so the puts need not wait for the waits.
                    assert_eq!(put(rank, &outbox, 3, 5, next, &inbox, 4 * 7), OK, "{}", last_error());
                    assert_eq!(wait_signals(rank, &[(last, 1)]), OK);
                    assert_eq!(put(rank, &outbox, 8, 1, next, &inbox, 4 * 600), OK);
                    assert_eq!(wait_signals(rank, &[(last, 1)]), OK);
                    assert_eq!(signal(rank, next), OK);
                    order(rank.stream, side);
                    let wait = Rank { rank: me, size, comm: rank.comm, stream: side, aborted: Cell::new(true) };
                    assert_eq!(wait_signals(&wait, &[(last, 1)]), OK);
                    order(side, rank.stream);
                });
                // What is not captured counts by itself.
                assert_eq!(signal(rank, next), OK);
                for replay in 0..100u32 {
                    let sent: Vec<u32> = (0..6).map(|at| replay * 1000 + 10 * me as u32 + at).collect();
                    outbox.write(3, &sent);
                    launch(exec, rank.stream);
                    rank.wait();
                    let of_last = |at: u32| replay * 1000 + 10 * last as u32 + at;
                    let mut expected = vec![inbox.values()[0]; 1024];
                    expected[7..12].copy_from_slice(&[0, 1, 2, 3, 4].map(of_last));
                    expected[600] = of_last(5);
                    assert!(inbox.values() == expected, "{size} ranks, rank {me}, replay {replay}");
                    // The next one comes when all have looked.
                    let buffer = Buffer::zeros(1);
                    assert_eq!(rank.all_reduce(&buffer), OK);
                    rank.wait();
                }
                assert_eq!(wait_signals(rank, &[(last, 1)]), OK);
                rank.wait();
                cuda!(cudaGraphExecDestroy(exec));
                cuda!(cudaStreamDestroy(side));
                inbox.end();
                outbox.end();
            });
        }
    });
}

/// NCCL has one place for a signal that a graph gives: the second put waits until the first was waited for, and moves nothing before.
#[test]
fn one_signal_of_a_graph_is_on_its_way() {
    alone!();
    newest("one_signal_of_a_graph_is_on_its_way", || {
        let all = std::sync::Arc::new(std::sync::Barrier::new(2));
        spmd(2, move |rank| {
            let window = Window::new(rank, 1024);
            begin(rank);
            if rank.rank == 0 {
                window.write(0, &[5]);
                let exec = captured(rank.stream, || assert_eq!(put(rank, &window, 0, 1, 1, &window, 400), OK));
                launch(exec, rank.stream);
                rank.wait();
                window.write(0, &[6]);
                launch(exec, rank.stream);
                std::thread::sleep(Duration::from_millis(50));
                assert!(!rank.idle());
                all.wait();
                rank.wait();
                all.wait();
                cuda!(cudaGraphExecDestroy(exec));
            } else {
                let exec = captured(rank.stream, || assert_eq!(wait_signals(rank, &[(0, 1)]), OK));
                all.wait();
                assert_eq!(window.values()[100], 5);
                launch(exec, rank.stream);
                all.wait();
                launch(exec, rank.stream);
                rank.wait();
                assert_eq!(window.values()[100], 6);
                // A third one does not come, and an abort ends the wait.
                launch(exec, rank.stream);
                std::thread::sleep(Duration::from_millis(50));
                assert!(!rank.idle());
                cuda!(cudaGraphExecDestroy(exec));
            }
            rank.abort();
            rank.wait();
            all.wait();
            nccl!(ncclMemFree(window.place()));
        });
    });
}

#[test]
fn all_of_a_group_is_captured_or_none() {
    alone!();
    newest("all_of_a_group_is_captured_or_none", || {
        spmd(1, |rank| {
            begin(rank);
            let buffer = Buffer::zeros(2);
            assert_eq!(rank.to_itself(&buffer), OK);
            let (captures, mut graph) = (stream(), std::ptr::null_mut());
            cuda!(cudaStreamBeginCapture(captures, MODE));
            assert_eq!(nccl!(ncclGroupStart()), OK);
            assert_eq!(signal(rank, 0), OK);
            let there = nccl!(ncclSignal(0, 0, 0, 0, rank.comm, captures));
            assert_eq!(there, ncclResult_t::ncclInvalidUsage);
            assert_eq!(nccl!(ncclGroupEnd()), ncclResult_t::ncclInvalidUsage);
            cuda!(cudaStreamEndCapture(captures, &mut graph));
            cuda!(cudaGraphDestroy(graph));
            cuda!(cudaStreamDestroy(captures));
        });
    });
}

/// Before 2.30.3 the numbers of signals in a graph are those of the capture.
#[test]
fn older_versions_count_signals_once() {
    alone!();
    newer_as("2.29.7", "graph_signals::older_versions_count_signals_once", || {
        spmd(1, |rank| {
            begin(rank);
            let mut graph = std::ptr::null_mut();
            cuda!(cudaStreamBeginCapture(rank.stream, MODE));
            let refused = reported("before NCCL 2.30.3", || signal(rank, 0));
            assert_eq!(refused, ncclResult_t::ncclInvalidArgument);
            cuda!(cudaStreamEndCapture(rank.stream, &mut graph));
            cuda!(cudaGraphDestroy(graph));
        });
    });
}

/// The first one makes a window, which no capture allows.
#[test]
fn the_first_one_is_not_captured() {
    alone!();
    newest("the_first_one_is_not_captured", || {
        spmd(1, |rank| {
            let mut graph = std::ptr::null_mut();
            cuda!(cudaStreamBeginCapture(rank.stream, MODE));
            assert_eq!(signal(rank, 0), ncclResult_t::ncclUnhandledCudaError);
            let spoilt = nccl!(cudaStreamEndCapture(rank.stream, &mut graph));
            assert_eq!(spoilt, cudaError::cudaErrorStreamCaptureInvalidated);
            // It is the first one still.
            begin(rank);
        });
    });
}
