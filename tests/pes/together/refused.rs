//! What collectives do not take.

use gpucomm::nvshmem::{TeamPe, TeamReduce};
use gpucomm::{Device, Error, ReduceOp, Stream, bf16, f16};

use crate::support::{Here, errors, with_context};

#[test]
fn lengths_that_do_not_belong_together() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let (ctx, stream, n) = (here.ctx, here.stream, here.n_pes());
        let mut world = ctx.world().unwrap();
        let source = ctx.alloc::<u32>(4 * n).unwrap();
        let mut dest = ctx.alloc::<u32>(4 * n + 1).unwrap();
        let (long, right) = (4 * n + 1, 4 * n);
        let exactly = format!("{right} elements");
        let got = long.to_string();
        let result = world.on(stream).broadcast(&mut dest, &source, TeamPe(0));
        errors::argument(result, "TeamOnStream::broadcast", &exactly, &got);
        let result = world.on(stream).fcollect(&mut dest, source.symmetric(..4));
        errors::argument(result, "TeamOnStream::fcollect", &format!("{exactly}, those of source for each"), &got);
        let result = world.fcollect(dest.symmetric_mut(..right - 1), source.symmetric(..4));
        errors::argument(result, "Team::fcollect", &exactly, &(right - 1).to_string());
        let result = world.on(stream).alltoall(&mut dest, &source);
        errors::argument(result, "TeamOnStream::alltoall", &format!("{long} elements, as in dest"), &right.to_string());
        if n > 1 {
            let result = world.alltoall(dest.symmetric_mut(..right - 1), source.symmetric(..right - 1));
            errors::argument(result, "Team::alltoall", "as many for each member", &(right - 1).to_string());
        }
        let result = world.on(stream).reduce(&mut dest, &source, ReduceOp::Sum);
        errors::argument(result, "TeamOnStream::reduce", &format!("{long} elements, as in dest"), &right.to_string());
        let result = world.on(stream).reduce_scatter(dest.symmetric_mut(..5), &source, ReduceOp::Sum);
        errors::argument(result, "TeamOnStream::reduce_scatter", "those of dest for each member", &right.to_string());
        let result = world.broadcast(dest.symmetric_mut(..right), &source, TeamPe(n));
        errors::argument(result, "Team::broadcast", &format!("a member below {n}"), &n.to_string());
        // Nothing was enqueued, and all go on.
        world.barrier().unwrap();
        world.fcollect(dest.symmetric_mut(..right), source.symmetric(..4)).unwrap();
    });
}

/// Averages, and bits of floats.
#[test]
fn reductions_that_nvshmem_does_not_have() {
    fn refused<T: TeamReduce>(here: &Here<'_>, has: &str, ops: &[ReduceOp]) {
        let (ctx, stream) = (here.ctx, here.stream);
        let mut world = ctx.world().unwrap();
        let source = ctx.alloc::<T>(here.n_pes()).unwrap();
        let mut dest = ctx.alloc::<T>(here.n_pes()).unwrap();
        for op in ops {
            let got = format!("{op:?}");
            let one = dest.symmetric_mut(..1);
            errors::argument(world.reduce_scatter(one, &source, *op), "Team::reduce_scatter", has, &got);
            let one = dest.symmetric_mut(..1);
            let result = world.on(stream).reduce_scatter(one, &source, *op);
            errors::argument(result, "TeamOnStream::reduce_scatter", has, &got);
            errors::argument(world.reduce(&mut dest, &source, *op), "Team::reduce", has, &got);
            let result = world.on(stream).reduce(&mut dest, &source, *op);
            errors::argument(result, "TeamOnStream::reduce", has, &got);
        }
        // Nothing was enqueued, and all go on.
        world.reduce(&mut dest, &source, ReduceOp::Sum).unwrap();
    }

    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let integers = "Sum, Prod, Min, Max, And, Or or Xor, which NVSHMEM has for";
        refused::<u16>(here, &format!("{integers} u16"), &[ReduceOp::Avg]);
        refused::<i64>(here, &format!("{integers} i64"), &[ReduceOp::Avg]);
        let (floats, ops) = (
            "Sum, Prod, Min or Max, which NVSHMEM has for",
            [ReduceOp::Avg, ReduceOp::And, ReduceOp::Or, ReduceOp::Xor],
        );
        refused::<f32>(here, &format!("{floats} f32"), &ops);
        refused::<f64>(here, &format!("{floats} f64"), &ops);
        refused::<f16>(here, &format!("{floats} f16"), &ops);
        refused::<bf16>(here, &format!("{floats} bf16"), &ops);
    });
}

/// The kernels of the library have room for so much, and write over it.
#[test]
fn a_reducescatter_without_nccl_has_a_limit() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let mut world = here.ctx.world().unwrap();
        let room = (1 << 18) / here.n_pes();
        let source = here.ctx.alloc::<u8>((room + 1) * here.n_pes()).unwrap();
        let mut dest = here.ctx.alloc::<u8>(room + 1).unwrap();
        let some = source.symmetric(..room * here.n_pes());
        world.on(here.stream).reduce_scatter(dest.symmetric_mut(..room), some, ReduceOp::Xor).unwrap();
        let result = world.on(here.stream).reduce_scatter(&mut dest, &source, ReduceOp::Xor);
        if here.n_pes() > 1 {
            let bytes = format!("{} bytes", (room + 1) * here.n_pes());
            errors::argument(result, "TeamOnStream::reduce_scatter", "NVSHMEM_REDUCE_SCRATCH_SIZE", &bytes);
        } else {
            result.unwrap();
        }
        here.settle();
    });
}

#[test]
fn a_stream_of_another_device() {
    with_context(|here| {
        if !here.is_whole() || Device::count().unwrap() < 2 {
            return;
        }
        let other = Device::all().unwrap().into_iter().find(|device| *device != here.ctx.device()).unwrap();
        let stream = Stream::new(other).unwrap();
        let mut world = here.ctx.world().unwrap();
        let source = here.ctx.alloc::<u8>(8).unwrap();
        let mut dest = here.ctx.alloc::<u8>(8).unwrap();
        let result = world.on(&stream).broadcast(&mut dest, &source, TeamPe(0));
        errors::argument(result, "TeamOnStream::broadcast", "the device of this PE", "one of");
        errors::argument(world.on(&stream).barrier(), "TeamOnStream::barrier", "the device of this PE", "one of");
    });
}

/// Where PEs share a device, the library would end the process.
#[test]
fn on_shared_devices_there_are_none() {
    with_context(|here| {
        if here.is_whole() {
            return;
        }
        let n = here.n_pes();
        let mut world = here.ctx.world().unwrap();
        let source = here.ctx.alloc::<i32>(n).unwrap();
        let mut dest = here.ctx.alloc::<i32>(n).unwrap();
        let stream = here.stream;
        let none = [
            world.on(stream).broadcast(&mut dest, &source, TeamPe(0)),
            world.on(stream).broadcast_in_place(&mut dest, TeamPe(0)),
            world.on(stream).fcollect(&mut dest, source.symmetric(..1)),
            world.on(stream).alltoall(&mut dest, &source),
            world.on(stream).reduce(&mut dest, &source, ReduceOp::Sum),
            world.on(stream).reduce_scatter(dest.symmetric_mut(..1), &source, ReduceOp::Sum),
            world.broadcast(&mut dest, &source, TeamPe(0)),
            world.reduce(dest.symmetric_mut(..0), source.symmetric(..0), ReduceOp::Sum),
        ];
        for result in none {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            errors::names(&error, &["limited MPG"]);
        }
    });
}
