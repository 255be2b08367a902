//! Signals tell when something has come.

use gpucomm::nvshmem::{Comparison, Pe, SignalOp};
use gpucomm::{DeviceBuffer, Stream};

use crate::support::with_context;

const LEN: usize = 1021;

#[test]
fn who_sees_the_signal_finds_the_elements() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let (ctx, stream, to, from) = (here.ctx, here.stream, here.next(1), here.before(1));
        let mut target = ctx.alloc::<u32>(LEN).unwrap();
        let signals = ctx.alloc_signals(1).unwrap();
        let of = |pe: usize, round: u64| vec![(pe as u32) << 8 | round as u32; LEN];
        for round in 1..20 {
            let source = DeviceBuffer::from_slice(stream, &of(here.pe(), round)).unwrap();
            match round % 3 {
                2 => ctx.put_signal(&target, &source, signals.at(0), SignalOp::Add(1), to).unwrap(),
                0 => ctx.on(stream).put_signal(&target, &source, signals.at(0), SignalOp::Set(round), to).unwrap(),
                _ => ctx
                    .on(stream)
                    .nonblocking(|scope| scope.put_signal(&target, &source, signals.at(0), SignalOp::Add(1), to))
                    .unwrap(),
            }
            ctx.on(stream).signal_wait_until(signals.at(0), Comparison::Ge, round, &mut target).unwrap();
            // Another stream comes after the wait, as the memory arrives with it.
            let other = Stream::new(ctx.device()).unwrap();
            assert_eq!(target.to_vec(&other).unwrap(), of(from, round), "round {round}");
            assert_eq!(ctx.signal_fetch(signals.at(0)).unwrap(), round);
            // Nobody puts the next before all have looked.
            here.settle();
        }
    });
}

/// A signal of a PE to itself does not come after the wait for it on another stream, which would never end.
#[test]
fn a_signal_to_oneself_overtakes_the_wait() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let (ctx, stream, me) = (here.ctx, here.stream, Pe(here.pe()));
        let other = Stream::new(ctx.device()).unwrap();
        let signals = ctx.alloc_signals(2).unwrap();
        ctx.on(stream).signal_wait_until(signals.at(1), Comparison::Eq, 7, ()).unwrap();
        ctx.on(&other).signal_op(signals.at(1), SignalOp::Set(4), me).unwrap();
        ctx.on(&other).signal_op(signals.at(1), SignalOp::Add(3), me).unwrap();
        here.settle();
        assert_eq!(signals.to_vec(stream).unwrap(), [0, 7]);
        here.settle();
    });
}

/// Scopes on two streams, one of them behind a wait. The library may hold up the other one as well, until the signal comes on a third stream.
#[test]
fn a_scope_beside_one_behind_a_wait() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let (ctx, stream, me) = (here.ctx, here.stream, Pe(here.pe()));
        let [other, third] = [(); 2].map(|()| Stream::new(ctx.device()).unwrap());
        let signals = ctx.alloc_signals(1).unwrap();
        let [behind, beside] = [(); 2].map(|()| ctx.alloc::<u32>(64).unwrap());
        let [first, second] = [1, 2].map(|value| DeviceBuffer::from_slice(stream, &[value; 64]).unwrap());
        stream.synchronize().unwrap();
        ctx.on(stream).signal_wait_until(signals.at(0), Comparison::Eq, 1, ()).unwrap();
        ctx.on(stream).nonblocking(|scope| scope.put(&behind, &first, me)).unwrap();
        ctx.on(&other).nonblocking(|scope| scope.put(&beside, &second, me)).unwrap();
        assert!(!stream.query().unwrap());
        ctx.on(&third).signal_op(signals.at(0), SignalOp::Set(1), me).unwrap();
        for stream in [stream, &other] {
            stream.synchronize_timeout(here.seat.limit()).unwrap();
        }
        assert_eq!((behind.to_vec(stream).unwrap(), beside.to_vec(stream).unwrap()), (vec![1; 64], vec![2; 64]));
        here.settle();
    });
}

#[test]
fn streams_wait_for_values() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let (ctx, stream) = (here.ctx, here.stream);
        let flags = ctx.alloc::<i32>(here.n_pes() + 1).unwrap();
        let all = flags.symmetric(..here.n_pes());
        let came = |pe: usize| pe as i32 + 2;
        let expected: Vec<i32> = (0..here.n_pes()).map(came).collect();
        let expected = DeviceBuffer::from_slice(stream, &expected).unwrap();
        let mut left_out = vec![0; here.n_pes() + 1];
        left_out[here.n_pes()] = 1;
        let left_out = DeviceBuffer::from_slice(stream, &left_out).unwrap();
        stream.synchronize().unwrap();
        let from_here = flags.symmetric(here.pe()..=here.pe());
        (0..here.n_pes()).for_each(|pe| ctx.put_value(from_here, came(here.pe()), Pe(pe)).unwrap());
        ctx.quiet().unwrap();
        ctx.on(stream).wait_until(flags.symmetric(here.before(1)..=here.before(1)), Comparison::Gt, 1, ()).unwrap();
        ctx.on(stream).wait_until_all(&flags, Some(left_out.as_slice()), Comparison::Ne, 0, ()).unwrap();
        ctx.on(stream).wait_until_all_vector(all, None, Comparison::Eq, &expected, ()).unwrap();
        here.settle();
        assert_eq!(all.local().to_vec(stream).unwrap(), expected.to_vec(stream).unwrap());
        here.settle();
    });
}
