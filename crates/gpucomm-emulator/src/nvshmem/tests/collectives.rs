//! What members of a team do together with memory.

use super::*;

pub(super) const SCENES: &[(&str, Scene)] = &[("collectives", collectives), ("reductions", reductions)];

#[test]
fn members_give_each_other_bytes() {
    for size in 1..=4 {
        play_well("collectives", size, &[]);
    }
}

fn collectives(stage: &Stage) {
    const MOST: usize = 300;
    let size = stage.size;
    let (target, source) = (stage.words(MOST * size, 0), stage.words(MOST * size, 0));
    let of = |pe: usize, count: usize| (0..count).map(|at| (1 + pe * 100_000 + at) as u64).collect::<Vec<_>>();
    for count in [0, 1, 7, MOST] {
        for on_stream in [false, true] {
            stage.fill(source, &of(stage.me, MOST * size));
            stage.fill(target, &vec![5; MOST * size]);
            stage.barrier();
            let (bytes, stream) = (8 * count, stage.stream);
            let (to, from) = (target.cast::<c_void>(), source.cast::<c_void>());
            let check = |status: i32, want: Vec<u64>| {
                assert_eq!(status, 0);
                stage.sync();
                let mut all = want;
                all.resize(MOST * size, 5);
                assert_eq!(stage.read(target, MOST * size), all);
                stage.fill(target, &vec![5; MOST * size]);
                stage.barrier();
            };
            // SAFETY: as C asks for it.
            unsafe {
                let root = size as i32 - 1;
                let status = if on_stream {
                    nvshmemx_broadcastmem_on_stream(0, to, from, bytes, root, stream)
                } else {
                    nvshmem_broadcastmem(0, to, from, bytes, root)
                };
                check(status, of(size - 1, count));
                let status = if on_stream {
                    nvshmemx_fcollectmem_on_stream(0, to, from, bytes, stream)
                } else {
                    nvshmem_fcollectmem(0, to, from, bytes)
                };
                check(status, (0..size).flat_map(|pe| of(pe, count)).collect());
                let status = if on_stream {
                    nvshmemx_alltoallmem_on_stream(0, to, from, bytes, stream)
                } else {
                    nvshmem_alltoallmem(0, to, from, bytes)
                };
                let share = |pe: usize| of(pe, MOST * size)[stage.me * count..][..count].to_vec();
                check(status, (0..size).flat_map(share).collect());
            }
        }
    }
}

#[test]
fn members_reduce() {
    for size in 1..=3 {
        play_well("reductions", size, &[]);
    }
}

fn reductions(stage: &Stage) {
    let (size, stream) = (stage.size, stage.stream);
    let (target, source) = (stage.words(9 * size, 0), stage.words(9 * size, 0));
    let of = |pe: usize, at: usize| (3 + pe as u64 * 7) ^ (at as u64 * 5);
    let words: Vec<u64> = (0..9 * size).map(|at| of(stage.me, at)).collect();
    type Call = unsafe extern "C" fn(i32, *mut u64, *const u64, usize, cudaStream_t) -> i32;
    type Combine = fn(u64, u64) -> u64;
    let all: [(Call, Call, Combine); 7] = [
        (nvshmemx_uint64_sum_reduce_on_stream, nvshmemx_uint64_sum_reducescatter_on_stream, u64::wrapping_add),
        (nvshmemx_uint64_prod_reduce_on_stream, nvshmemx_uint64_prod_reducescatter_on_stream, u64::wrapping_mul),
        (nvshmemx_uint64_min_reduce_on_stream, nvshmemx_uint64_min_reducescatter_on_stream, u64::min),
        (nvshmemx_uint64_max_reduce_on_stream, nvshmemx_uint64_max_reducescatter_on_stream, u64::max),
        (nvshmemx_uint64_and_reduce_on_stream, nvshmemx_uint64_and_reducescatter_on_stream, |a, b| a & b),
        (nvshmemx_uint64_or_reduce_on_stream, nvshmemx_uint64_or_reducescatter_on_stream, |a, b| a | b),
        (nvshmemx_uint64_xor_reduce_on_stream, nvshmemx_uint64_xor_reducescatter_on_stream, |a, b| a ^ b),
    ];
    for (reduce, scatter, combine) in all {
        let want = |at: usize| (1..size).fold(of(0, at), |sum, pe| combine(sum, of(pe, at)));
        stage.fill(source, &words);
        stage.barrier();
        // SAFETY: as C asks for it.
        unsafe {
            assert_eq!(reduce(0, target, source, 9, stream), 0);
            assert_eq!(stage.read(target, 9), (0..9).map(want).collect::<Vec<_>>());
            assert_eq!(scatter(0, target, source, 9, stream), 0);
            assert_eq!(stage.read(target, 9), (0..9).map(|at| want(stage.me * 9 + at)).collect::<Vec<_>>());
            assert_eq!(reduce(0, source, source, 9 * size, stream), 0);
            assert_eq!(stage.read(source, 9 * size), (0..9 * size).map(want).collect::<Vec<_>>());
        }
        stage.barrier();
    }
    // Halves, four to a word.
    let halves = |values: [f32; 4]| {
        values.iter().rev().fold(0, |word, value| word << 16 | u64::from(::half::f16::from_f32(*value).to_bits()))
    };
    stage.fill(source, &[halves([1.0 + stage.me as f32, 0.5, -2.0, 0.0])]);
    stage.barrier();
    // SAFETY: as C asks for it.
    unsafe {
        assert_eq!(nvshmemx_half_sum_reduce_on_stream(0, target.cast(), source.cast(), 4, stream), 0);
        assert_eq!(nvshmemx_float_max_reduce_on_stream(0, target.add(1).cast(), source.add(1).cast(), 1, stream), 0);
    }
    let (n, ones) = (size as f32, (1..=size).sum::<usize>() as f32);
    assert_eq!(stage.read(target, 1), [halves([ones, 0.5 * n, -2.0 * n, 0.0])]);
    stage.barrier();
}
