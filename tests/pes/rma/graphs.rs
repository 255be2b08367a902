//! What streams do with other PEs can be part of graphs, but for what the library could not repeat.

use std::time::Instant;

use gpucomm::nvshmem::{Comparison, Pe, SignalOp};
use gpucomm::{DeviceBuffer, Error, Result};

use crate::support::{slower, with_contexts};

#[test]
fn launched_as_often_as_one_likes() {
    with_contexts(&[1, 2, 3], |here| {
        if !here.is_whole() {
            return;
        }
        let (ctx, stream, to, from) = (here.ctx, here.stream, here.next(1), here.before(1));
        let mut target = ctx.alloc::<u32>(5).unwrap();
        let signals = ctx.alloc_signals(2).unwrap();
        let mut source = DeviceBuffer::<u32>::zeroed(stream, 5).unwrap();
        let graph = stream.capture(|stream| {
            ctx.on(stream).put_signal(&target, &source, signals.at(0), SignalOp::Add(1), to)?;
            ctx.on(stream).signal_op(signals.at(1), SignalOp::Set(1), to)?;
            ctx.on(stream).signal_wait_until(signals.at(1), Comparison::Eq, 1, &mut target)?;
            ctx.on(stream).barrier_all()
        });
        let graph = graph.unwrap();
        for round in 1..4 {
            source.fill(stream, here.pe() as u32 + 100 * round).unwrap();
            graph.launch(stream).unwrap();
            assert_eq!(target.to_vec(stream).unwrap(), [from as u32 + 100 * round; 5]);
            assert_eq!(ctx.signal_fetch(signals.at(0)).unwrap(), u64::from(round));
            here.settle();
        }
    });
}

/// A graph whose memory a scope has begun to use is launched behind that: within, the launch would wait for its own thread.
#[test]
fn launched_within_a_scope_one_is_refused_at_once() {
    with_contexts(&[1, 2], |here| {
        if !here.is_whole() {
            return;
        }
        let (ctx, stream, to) = (here.ctx, here.stream, here.next(1));
        let target = ctx.alloc::<u32>(5).unwrap();
        let source = DeviceBuffer::from_slice(stream, &[7u32; 5]).unwrap();
        let graph = stream.capture(|stream| ctx.on(stream).put(&target, &source, to)).unwrap();
        let begin = Instant::now();
        let launched = ctx.nonblocking(|scope| {
            // Nothing is lent yet.
            graph.launch(stream)?;
            scope.put(&target, &source, to)?;
            graph.launch(stream)
        });
        assert!(matches!(launched, Err(Error::InvalidUsage { .. })), "{launched:?}");
        assert!(begin.elapsed() < slower(5.0), "{:?}", begin.elapsed());
        graph.launch(stream).unwrap();
        stream.synchronize().unwrap();
        here.settle();
        assert_eq!(target.to_vec(stream).unwrap(), [7; 5]);
    });
}

#[test]
fn what_is_no_part_of_one() {
    with_contexts(&[1], |here| {
        let (ctx, stream) = (here.ctx, here.stream);
        let target = ctx.alloc::<u32>(1).unwrap();
        let refused = |result: Result<gpucomm::cuda::Graph>| {
            assert!(matches!(result, Err(Error::InvalidUsage { .. })), "{result:?}");
        };
        refused(stream.capture(|stream| ctx.on(stream).put_value(&target, 3, Pe(0))));
        refused(stream.capture(|stream| ctx.on(stream).nonblocking(|_| Ok(()))));
        here.settle();
    });
}
