//! Puts and gets.

#![allow(clippy::undocumented_unsafe_blocks, reason = "each of these calls is as C asks for it")]

use super::*;

pub(super) const SCENES: &[(&str, Scene)] = &[("rma", rma), ("late", late), ("graph", graph), ("beside", beside)];

/// A put or get of bytes: to, from, how many, which PE.
type Move = fn(*mut u64, *const u64, usize, i32, cudaStream_t);

#[test]
fn bytes_go_to_others_and_come_from_them() {
    for size in 1..=3 {
        play_well("rma", size, &[]);
    }
}

fn rma(stage: &Stage) {
    const COUNT: usize = 1001;
    let (target, source) = (stage.words(COUNT, 0), stage.words(COUNT, 0));
    let (next, previous) = (stage.next() as i32, stage.previous() as u64);
    let of =
        |pe: u64, round: u64| (0..COUNT as u64).map(|at| 1 << 40 | round << 32 | pe << 16 | at).collect::<Vec<_>>();
    let me = stage.me as u64;
    let bytes = 8 * COUNT;
    let puts: [Move; 5] = [
        |to, from, bytes, pe, _| unsafe { nvshmem_putmem(to.cast(), from.cast(), bytes, pe) },
        |to, from, bytes, pe, _| unsafe { nvshmem_putmem_nbi(to.cast(), from.cast(), bytes, pe) },
        |to, from, bytes, pe, stream| unsafe { nvshmemx_putmem_on_stream(to.cast(), from.cast(), bytes, pe, stream) },
        |to, from, bytes, pe, stream| unsafe {
            nvshmemx_putmem_nbi_on_stream(to.cast(), from.cast(), bytes, pe, stream)
        },
        |to, from, bytes, pe, _| unsafe { nvshmem_iput64(to.cast(), from.cast(), 1, 1, bytes / 8, pe) },
    ];
    for (round, put) in puts.into_iter().enumerate() {
        stage.fill(source, &of(me, round as u64));
        put(target, source, bytes, next, stage.stream);
        // SAFETY: as C asks for it.
        unsafe { nvshmemx_barrier_all_on_stream(stage.stream) };
        assert_eq!(stage.read(target, COUNT), of(previous, round as u64), "{round}");
        stage.barrier();
    }
    let gets: [Move; 4] = [
        |to, from, bytes, pe, _| unsafe { nvshmem_getmem(to.cast(), from.cast(), bytes, pe) },
        |to, from, bytes, pe, _| unsafe { nvshmem_getmem_nbi(to.cast(), from.cast(), bytes, pe) },
        |to, from, bytes, pe, stream| unsafe { nvshmemx_getmem_on_stream(to.cast(), from.cast(), bytes, pe, stream) },
        |to, from, bytes, pe, stream| unsafe {
            nvshmemx_getmem_nbi_on_stream(to.cast(), from.cast(), bytes, pe, stream)
        },
    ];
    for (round, get) in gets.into_iter().enumerate() {
        stage.fill(source, &of(me, round as u64));
        stage.fill(target, &[7; COUNT]);
        stage.barrier();
        get(target, source, bytes - 8, next, stage.stream);
        // SAFETY: as C asks for it.
        unsafe { nvshmemx_quiet_on_stream(stage.stream) };
        let mut want = of(next as u64, round as u64);
        want[COUNT - 1] = 7;
        assert_eq!(stage.read(target, COUNT), want, "{round}");
        stage.barrier();
    }
    // SAFETY: as C asks for it.
    unsafe {
        stage.fill(target, &[7; COUNT]);
        stage.barrier();
        nvshmem_iput64(target.cast(), source.cast(), 3, 2, 4, next);
        nvshmemx_uint64_p_on_stream(target.add(1), 99, next, stage.stream);
        nvshmemx_barrier_all_on_stream(stage.stream);
        let theirs = of(previous, 3);
        let want = [theirs[0], 99, 7, theirs[2], 7, 7, theirs[4], 7, 7, theirs[6], 7];
        assert_eq!(stage.read(target, 11), want);
        assert_eq!(nvshmem_uint64_g(source.add(5), next), of(next as u64, 3)[5]);
        nvshmem_iget64(target.cast(), source.cast(), 2, 5, 3, next);
        let far = of(next as u64, 3);
        assert_eq!(stage.read(target, 5), [far[0], 99, far[5], theirs[2], far[10]]);
        nvshmem_putmem(target.cast(), null_mut(), 0, next);
    }
    stage.barrier();
}

#[test]
fn without_a_quiet_old_values_are_seen_and_with_one_never() {
    let outputs = play_well("late", 2, &[]);
    let old: usize =
        outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout).matches("old value").count()).sum();
    assert!(old > 0, "nothing came late in 200 puts");
    let again = play_well("late", 2, &[]);
    let count = |outputs: &[Output]| {
        outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout).matches("old value").count()).sum::<usize>()
    };
    assert!(count(&again) > 0);
}

fn late(stage: &Stage) {
    let target = stage.words(2, 0);
    let flag = stage.words(1, 0);
    for round in 1..=100 {
        // SAFETY: as C asks for it.
        unsafe {
            if stage.me == 0 {
                nvshmem_uint64_p(target, round, 1);
                nvshmemx_signal_op_on_stream(flag, round, NVSHMEM_SIGNAL_SET, 1, stage.stream);
                stage.sync();
            } else {
                nvshmemx_signal_wait_until_on_stream(flag, NVSHMEM_CMP_EQ, round, stage.stream);
                stage.sync();
                if nvshmem_uint64_g(target, 1) != round {
                    println!("old value");
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
fn a_graph_holds_puts_and_barriers() {
    play_well("graph", 2, &[]);
}

fn graph(stage: &Stage) {
    let (target, source) = (stage.words(1, 0), stage.words(1, 3));
    // SAFETY: as C asks for it.
    unsafe {
        let mode = cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
        assert_eq!(cudaStreamBeginCapture(stage.stream, mode), cudaError::cudaSuccess);
        nvshmemx_putmem_on_stream(target.cast(), source.cast(), 8, stage.next() as i32, stage.stream);
        nvshmemx_barrier_all_on_stream(stage.stream);
        let (mut graph, mut run) = (null_mut(), null_mut());
        assert_eq!(cudaStreamEndCapture(stage.stream, &mut graph), cudaError::cudaSuccess);
        assert_eq!(cudaGraphInstantiate(&mut run, graph, 0), cudaError::cudaSuccess);
        for round in 0..5 {
            stage.fill(source, &[round * 10 + stage.me as u64]);
            assert_eq!(cudaGraphLaunch(run, stage.stream), cudaError::cudaSuccess);
            assert_eq!(stage.read(target, 1), [round * 10 + stage.previous() as u64]);
            stage.barrier();
        }
        assert_eq!(cudaGraphExecDestroy(run), cudaError::cudaSuccess);
        assert_eq!(cudaGraphDestroy(graph), cudaError::cudaSuccess);
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
