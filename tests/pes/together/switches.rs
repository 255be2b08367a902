//! Teams for which switches add up and spread data (NVLS), as the emulator has them: what the library gets wrong there is refused, and nobody's data is read
//! before it is there.

use gpucomm::nvshmem::{Context, TeamPe, TeamReduce};
use gpucomm::{Backend, Error, ReduceOp, Result, Stream, f16};

use crate::support::{Seat, as_pes_with, errors, slower};

const NVLS: (&str, &str) = ("GPUCOMM_EMULATOR_NVLS", "1");

/// Runs `body` as each PE, where switches work.
fn with_switches<F: Fn(&Seat, &Context, &Stream)>(sizes: &[usize], environment: &[(&str, &str)], body: F) {
    if gpucomm::backend() == Backend::Emulator {
        let environment: Vec<_> = environment.iter().copied().chain([NVLS]).collect();
        crate::support::as_pes_of::<F>(sizes, &environment, |seat| {
            let ctx = seat.start().unwrap();
            let stream = Stream::new(seat.device).unwrap();
            body(seat, &ctx, &stream);
            assert!(ctx.close().unwrap().is_empty());
        });
    }
}

#[track_caller]
fn unsupported<T>(result: Result<T>, parts: &[&str]) {
    let Err(error @ Error::Unsupported { .. }) = result else { panic!("it was not refused") };
    errors::names(&error, parts);
}

/// Members whose source is written late, on another stream: nobody reads what it held before.
#[test]
fn nobody_reads_a_source_before_it_is_written() {
    as_pes_with(&[2, 3, 4], &[NVLS], |seat| {
        let ctx = seat.start().unwrap();
        let (stream, other) = (Stream::new(seat.device).unwrap(), Stream::new(seat.device).unwrap());
        let n = seat.n_pes;
        let mut world = ctx.world().unwrap();
        let mut source = ctx.alloc::<f32>(5 * n).unwrap();
        source.fill(&stream, 100.0).unwrap();
        let (mut all, mut part) = (ctx.alloc::<f32>(5 * n).unwrap(), ctx.alloc::<f32>(5).unwrap());
        stream.synchronize().unwrap();
        seat.meet();
        for round in 0..4 {
            let late = round % n == seat.pe;
            if late {
                other.launch_host(|| std::thread::sleep(slower(0.15))).unwrap();
            }
            source.fill(&other, (round + seat.pe + 1) as f32).unwrap();
            let sum: usize = (0..n).map(|pe| round + pe + 1).sum();
            if round % 2 == 0 {
                world.on(&stream).reduce(&mut all, &source, ReduceOp::Sum).unwrap();
                assert_eq!(all.to_vec(&stream).unwrap(), vec![sum as f32; 5 * n], "round {round}");
            } else {
                world.on(&stream).reduce_scatter(&mut part, &source, ReduceOp::Sum).unwrap();
                assert_eq!(part.to_vec(&stream).unwrap(), [sum as f32; 5], "round {round}");
            }
            // Nobody writes the next ones while a switch reads these.
            world.on(&stream).barrier().unwrap();
            stream.synchronize().unwrap();
        }
        drop((world, source, all, part));
        assert!(ctx.close().unwrap().is_empty());
    });
}

/// What the library has switches scatter, and gets wrong.
fn scatter<T: TeamReduce + PartialEq + std::fmt::Debug>(
    (seat, ctx, stream): (&Seat, &Context, &Stream),
    by: ReduceOp,
    value: T,
    expected: Option<T>,
) {
    let mut world = ctx.world().unwrap();
    let mut source = ctx.alloc::<T>(6 * seat.n_pes).unwrap();
    source.fill(stream, value).unwrap();
    stream.synchronize().unwrap();
    let mut dest = ctx.alloc::<T>(6).unwrap();
    let result = world.on(stream).reduce_scatter(&mut dest, &source, by);
    match expected {
        Some(expected) => {
            result.unwrap();
            assert_eq!(dest.to_vec(stream).unwrap(), vec![expected; 6]);
            world.on(stream).barrier().unwrap();
            stream.synchronize().unwrap();
        }
        None => unsupported(result, &["TeamOnStream::reduce_scatter", "NVSHMEM_DISABLE_NVLS"]),
    }
}

#[test]
fn integers_that_switches_take_for_something_else() {
    with_switches(&[2], &[], |seat, ctx, stream| {
        let here = (seat, ctx, stream);
        scatter(here, ReduceOp::Sum, 1i32, None);
        scatter(here, ReduceOp::Sum, 1u32, None);
        scatter(here, ReduceOp::Sum, 1i64, None);
        scatter(here, ReduceOp::Sum, 1u64, None);
        scatter(here, ReduceOp::Min, 1i32, None);
        scatter(here, ReduceOp::Max, 1u32, None);
        scatter(here, ReduceOp::Min, 7i64, Some(7));
        scatter(here, ReduceOp::Max, 7u64, Some(7));
        scatter(here, ReduceOp::And, 6u32, Some(6));
        scatter(here, ReduceOp::Sum, 3i8, Some(6));
        scatter(here, ReduceOp::Sum, 3u16, Some(6));
        scatter(here, ReduceOp::Prod, 3i32, Some(9));
        scatter(here, ReduceOp::Max, 3.0f32, Some(3.0));
        scatter(here, ReduceOp::Sum, 1.5f32, Some(3.0));
        scatter(here, ReduceOp::Sum, 1.5f64, Some(3.0));
        scatter(here, ReduceOp::Sum, f16::from_f32(1.5), Some(f16::from_f32(3.0)));
    });
}

#[test]
fn words_that_do_not_begin_at_multiples_of_four() {
    with_switches(&[2], &[], |_, ctx, stream| {
        let mut world = ctx.world().unwrap();
        let halves = ctx.alloc::<f16>(20).unwrap();
        let mut sums = ctx.alloc::<f16>(20).unwrap();
        let about = ["multiples of 4 bytes"];
        let result = world.on(stream).reduce_scatter(sums.symmetric_mut(1..5), halves.symmetric(..8), ReduceOp::Sum);
        unsupported(result, &about);
        let result = world.on(stream).reduce_scatter(sums.symmetric_mut(..4), halves.symmetric(1..9), ReduceOp::Sum);
        unsupported(result, &about);
        world.on(stream).reduce_scatter(sums.symmetric_mut(2..6), halves.symmetric(4..12), ReduceOp::Sum).unwrap();
        // An odd number the library adds itself.
        world.on(stream).reduce_scatter(sums.symmetric_mut(1..4), halves.symmetric(1..7), ReduceOp::Sum).unwrap();
        let result = world.on(stream).reduce(sums.symmetric_mut(1..5), halves.symmetric(..4), ReduceOp::Sum);
        unsupported(result, &about);
        let bytes = ctx.alloc::<u8>(40).unwrap();
        let mut all = ctx.alloc::<u8>(40).unwrap();
        let result = world.on(stream).fcollect(all.symmetric_mut(1..17), bytes.symmetric(..8));
        unsupported(result, &about);
        let result = world.on(stream).fcollect(all.symmetric_mut(..16), bytes.symmetric(3..11));
        unsupported(result, &about);
        world.on(stream).fcollect(all.symmetric_mut(1..15), bytes.symmetric(3..10)).unwrap();
        world.on(stream).fcollect(all.symmetric_mut(4..20), bytes.symmetric(8..16)).unwrap();
        stream.synchronize().unwrap();
    });
}

/// What no switch does, several blocks do at the same place.
#[test]
fn a_large_reducescatter_that_no_switch_does() {
    with_switches(&[2], &[("NVSHMEM_REDUCE_SCRATCH_SIZE", "8M")], |_, ctx, stream| {
        let mut world = ctx.world().unwrap();
        let source = ctx.alloc::<i32>(1 << 18).unwrap();
        let mut dest = ctx.alloc::<i32>(1 << 17).unwrap();
        let result = world.on(stream).reduce_scatter(&mut dest, &source, ReduceOp::Prod);
        unsupported(result, &["NVSHMEM_MAX_CTAS=1"]);
        let (dest, source) = (dest.symmetric_mut(..1000), source.symmetric(..2000));
        world.on(stream).reduce_scatter(dest, source, ReduceOp::Prod).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn copy_engines_and_graphs() {
    let environment = [("NVSHMEM_DISABLE_CE_COLLECTIVES", "0"), ("NVSHMEM_DISABLE_NCCL", "1")];
    with_switches(&[2], &environment, |_, ctx, stream| {
        let mut world = ctx.world().unwrap();
        let source = ctx.alloc::<u32>(4).unwrap();
        let mut dest = ctx.alloc::<u32>(4).unwrap();
        let (two, four) = (source.symmetric(..2), source.symmetric(..));
        let about = ["NVSHMEM_DISABLE_CE_COLLECTIVES=1"];
        unsupported(stream.capture(|stream| world.on(stream).fcollect(&mut dest, two)), &about);
        unsupported(stream.capture(|stream| world.on(stream).alltoall(&mut dest, four)), &about);
        unsupported(world.on(stream).broadcast(&mut dest, four, TeamPe(0)), &about);
        world.on(stream).fcollect(&mut dest, two).unwrap();
        world.on(stream).alltoall(&mut dest, four).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn graphs_without_copy_engines() {
    with_switches(&[2], &[], |_, ctx, stream| {
        let mut world = ctx.world().unwrap();
        let source = ctx.alloc::<u32>(2).unwrap();
        let mut dest = ctx.alloc::<u32>(4).unwrap();
        let graph = stream.capture(|stream| world.on(stream).fcollect(&mut dest, &source)).unwrap();
        graph.launch(stream).unwrap();
        stream.synchronize().unwrap();
    });
}
