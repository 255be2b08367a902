//! Graphs that hold puts, signals, waits and barriers.

use gpucomm::nvshmem::{Comparison, SignalOp};
use gpucomm::{DeviceBuffer, ReduceOp};

use super::words::has_waits;
use crate::support::random::same;
use crate::support::with_context;

#[test]
fn puts_and_a_barrier_again_and_again() {
    with_context(|here| {
        if !has_waits(here) {
            return;
        }
        let (ctx, stream) = (here.ctx, here.stream);
        let dest = ctx.alloc::<u32>(1021).unwrap();
        let mut source = DeviceBuffer::<u32>::zeroed(stream, 1021).unwrap();
        // What is first called waits for the device, which a capture does not allow.
        ctx.on(stream).barrier_all().unwrap();
        here.settle();
        let graph = stream
            .capture(|stream| {
                ctx.on(stream).put(&dest, &source, here.next(1))?;
                ctx.on(stream).barrier_all()
            })
            .unwrap();
        for round in 0..10 {
            source.fill(stream, round * 100 + here.pe() as u32).unwrap();
            graph.launch(stream).unwrap();
            let want = vec![round * 100 + here.before(1) as u32; 1021];
            same("by a graph", &dest.to_vec(stream).unwrap(), &want);
            here.settle();
        }
        // The graph keeps the memory, whoever drops it.
        drop(dest);
        graph.launch(stream).unwrap();
        here.settle();
        ctx.reclaim().unwrap();
        drop(graph);
        here.settle();
    });
}

#[test]
fn signals_and_waits() {
    with_context(|here| {
        if !has_waits(here) {
            return;
        }
        let (ctx, stream) = (here.ctx, here.stream);
        let signals = ctx.alloc_signals(1).unwrap();
        let dest = ctx.alloc::<u64>(77).unwrap();
        let mut source = DeviceBuffer::<u64>::zeroed(stream, 77).unwrap();
        here.settle();
        let graph = stream
            .capture(|stream| {
                ctx.on(stream).put_signal(&dest, &source, signals.at(0), SignalOp::Set(1), here.next(1))?;
                ctx.on(stream).signal_wait_until(signals.at(0), Comparison::Eq, 1, ())?;
                // To itself, which the neighbour's next one must not overtake: see the barrier below.
                ctx.on(stream).signal_op(signals.at(0), SignalOp::Set(0), here.next(0))
            })
            .unwrap();
        for round in 0..10u64 {
            source.fill(stream, round * 100 + here.pe() as u64).unwrap();
            graph.launch(stream).unwrap();
            same("by a graph", &dest.to_vec(stream).unwrap(), &[round * 100 + here.before(1) as u64; 77]);
            here.settle();
        }
        drop(graph);
    });
}

#[test]
fn a_collective() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let (ctx, stream) = (here.ctx, here.stream);
        let mut team = ctx.world().unwrap();
        let mut source = ctx.alloc::<i32>(1021).unwrap();
        let mut dest = ctx.alloc::<i32>(1021).unwrap();
        team.on(stream).reduce(&mut dest, &source, ReduceOp::Sum).unwrap();
        here.settle();
        let graph = stream.capture(|stream| team.on(stream).reduce(&mut dest, &source, ReduceOp::Sum)).unwrap();
        for round in 0..10 {
            source.fill(stream, round + here.pe() as i32).unwrap();
            graph.launch(stream).unwrap();
            let n_pes = here.n_pes() as i32;
            let want = vec![round * n_pes + n_pes * (n_pes - 1) / 2; 1021];
            same("reduced by a graph", &dest.to_vec(stream).unwrap(), &want);
            here.settle();
        }
        drop(graph);
        here.settle();
    });
}
