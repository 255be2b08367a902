//! Puts and gets.

#![allow(clippy::undocumented_unsafe_blocks, reason = "each of these calls is as C asks for it")]

use super::*;

pub(super) const SCENES: &[(&str, Scene)] = &[("late", late), ("beside", beside)];

#[test]
fn without_a_quiet_old_values_are_seen_and_with_one_never() {
    // The seed of the faults decides what comes late, so each run is the same.
    let outputs = play_well("late", 2, &[]);
    for old in ["old element", "old memory"] {
        let count = |output: &Output| String::from_utf8_lossy(&output.stdout).matches(old).count();
        assert!(outputs.iter().map(count).sum::<usize>() > 0, "{old} came late in none of 100 puts");
    }
}

fn late(stage: &Stage) {
    let (target, source) = (stage.words(2, 0), stage.words(2, 0));
    let flag = stage.words(1, 0);
    for round in 1..=200 {
        // SAFETY: as C asks for it.
        unsafe {
            if stage.me == 0 {
                // Elements and memory take different ways to the other PE.
                if round % 2 == 0 {
                    nvshmem_uint64_p(target, round, 1);
                } else {
                    stage.fill(source, &[round]);
                    nvshmem_putmem(target.cast(), source.cast(), 8, 1);
                }
                nvshmemx_signal_op_on_stream(flag, round, NVSHMEM_SIGNAL_SET, 1, stage.stream);
                stage.sync();
            } else {
                nvshmemx_signal_wait_until_on_stream(flag, NVSHMEM_CMP_EQ, round, stage.stream);
                stage.sync();
                if nvshmem_uint64_g(target, 1) != round {
                    println!("old {}", if round % 2 == 0 { "element" } else { "memory" });
                }
            }
            stage.barrier();
            if stage.me == 1 {
                assert_eq!(nvshmem_uint64_g(target, 1), round);
            }
            stage.barrier();
        }
    }
}

#[test]
fn what_does_not_block_its_stream_is_put_in_order_by_a_quiet() {
    play_well("beside", 2, &[]);
}

fn beside(stage: &Stage) {
    let (target, source) = (stage.words(2, 0), stage.words(2, 3));
    let next = stage.next() as i32;
    let mode = cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
    // SAFETY: as C asks for it.
    unsafe {
        for joined in [false, true] {
            assert_eq!(cudaStreamBeginCapture(stage.stream, mode), cudaError::cudaSuccess);
            nvshmemx_putmem_nbi_on_stream(target.cast(), source.cast(), 8, next, stage.stream);
            if joined {
                nvshmemx_quiet_on_stream(stage.stream);
            }
            let mut graph = null_mut();
            let ended = cudaStreamEndCapture(stage.stream, &mut graph);
            if joined {
                assert_eq!((ended, cudaGraphDestroy(graph)), (cudaError::cudaSuccess, cudaError::cudaSuccess));
            } else {
                assert_eq!(ended, cudaError::cudaErrorStreamCaptureUnjoined);
            }
        }
        nvshmemx_putmem_nbi_on_stream(target.cast(), source.cast(), 8, next, stage.stream);
        nvshmem_quiet();
        stage.barrier();
        assert_eq!(stage.read(target, 2), [3, 0]);
    }
}
