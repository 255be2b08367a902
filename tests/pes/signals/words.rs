//! Signals: sent with data and without, waited for, and looked at.

use gpucomm::nvshmem::{Comparison, Pe, SignalOp};
use gpucomm::{DeviceBuffer, Error};

use crate::support::random::{lengths, same};
use crate::support::{errors, with_context, with_contexts};

/// Where PEs share devices, the library has no waits: they are refused, and the rest of a test is left out.
pub fn has_waits(here: &crate::support::Here<'_>) -> bool {
    if here.is_whole() {
        return true;
    }
    let signals = here.ctx.alloc_signals(1).unwrap();
    let wait = here.ctx.on(here.stream).signal_wait_until(signals.at(0), Comparison::Ge, 0, ());
    assert!(matches!(wait, Err(Error::Unsupported { .. })), "{wait:?}");
    false
}

/// Round after round, each waits for its neighbour's data and nothing else.
#[test]
fn data_in_a_ring() {
    with_context(|here| {
        if !has_waits(here) {
            return;
        }
        let (ctx, stream) = (here.ctx, here.stream);
        for len in lengths() {
            let values = |of: usize, round: u64| -> Vec<u32> {
                let mut rng = here.rng_of(&format!("{len}, round {round}"), of);
                (0..len).map(|_| rng.u32(..)).collect()
            };
            let signals = ctx.alloc_signals(3).unwrap();
            let mut dest = ctx.alloc::<u32>(2 * len + 1).unwrap();
            for round in 1..=6u64 {
                let source = DeviceBuffer::from_slice(stream, &values(here.pe(), round)).unwrap();
                let half = round as usize % 2 * len;
                let part = dest.symmetric(1 + half..1 + half + len);
                let signal = signals.at(1);
                let op = if round % 3 == 0 { SignalOp::Set(round) } else { SignalOp::Add(1) };
                match round {
                    1 => {
                        ctx.on(stream).put(part, &source, here.next(1)).unwrap();
                        ctx.on(stream).quiet().unwrap();
                        ctx.on(stream).signal_op(signal, op, here.next(1)).unwrap();
                    }
                    2 | 3 => ctx.on(stream).put_signal(part, &source, signal, op, here.next(1)).unwrap(),
                    _ => {
                        ctx.on(stream)
                            .nonblocking(|scope| scope.put_signal(part, &source, signal, op, here.next(1)))
                            .unwrap();
                    }
                }
                let mut arrives = dest.symmetric_mut(1 + half..1 + half + len).into_local();
                ctx.on(stream).signal_wait_until(signals.at(1), Comparison::Ge, round, &mut arrives).unwrap();
                let got = dest.symmetric(1 + half..1 + half + len).local().to_vec(stream).unwrap();
                same(&format!("round {round}"), &got, &values(here.before(1), round));
                stream.synchronize().unwrap();
                assert_eq!(ctx.signal_fetch(signals.at(1)).unwrap(), round);
                // The neighbour may write there again when this PE has read.
                ctx.on(stream).barrier_all().unwrap();
            }
            assert_eq!(signals.to_vec(stream).unwrap(), [0, 6, 0]);
            here.settle();
        }
    });
}

/// Everybody adds to one counter of everybody.
#[test]
fn counters() {
    with_context(|here| {
        if !has_waits(here) {
            return;
        }
        let mut signals = here.ctx.alloc_signals(2).unwrap();
        for round in 1..=4u64 {
            for to in 0..here.n_pes() {
                for _ in 0..round {
                    let add = SignalOp::Add(here.pe() as u64 + 1);
                    here.ctx.on(here.stream).signal_op(signals.at(1), add, Pe(to)).unwrap();
                }
            }
            let n_pes = here.n_pes() as u64;
            let all = round * n_pes * (n_pes + 1) / 2;
            here.ctx.on(here.stream).signal_wait_until(signals.at(1), Comparison::Eq, all, ()).unwrap();
            here.stream.synchronize().unwrap();
            assert_eq!(here.ctx.signal_fetch(signals.at(1)).unwrap(), all);
            here.settle();
            signals.reset(here.stream).unwrap();
            here.settle();
            assert_eq!(here.ctx.signal_fetch(signals.at(1)).unwrap(), 0);
            here.settle();
        }
    });
}

/// A wait that does not come true ends with an error at the deadline of who waits for the stream, and the signal still ends it.
#[test]
fn a_signal_that_comes_late() {
    with_contexts(&[1, 2], |here| {
        if !has_waits(here) {
            return;
        }
        let signals = here.ctx.alloc_signals(1).unwrap();
        here.ctx.on(here.stream).signal_wait_until(signals.at(0), Comparison::Ne, 0, ()).unwrap();
        let error =
            here.stream.synchronize_timeout(std::time::Duration::from_millis(200)).expect_err("nobody has sent it");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        here.seat.meet();
        let other = gpucomm::Stream::new(here.seat.device).unwrap();
        here.ctx.on(&other).signal_op(signals.at(0), SignalOp::Set(9), here.next(1)).unwrap();
        other.synchronize().unwrap();
        here.stream.synchronize().unwrap();
        here.settle();
    });
}

#[test]
fn what_is_refused() {
    with_context(|here| {
        let signals = here.ctx.alloc_signals(1).unwrap();
        let below = format!("a PE below {}", here.n_pes());
        let sent = here.ctx.on(here.stream).signal_op(signals.at(0), SignalOp::Set(1), Pe(9));
        errors::argument(sent, "OnStream::signal_op", &below, "9");
        let there = here.ctx.alloc::<u8>(5).unwrap();
        let local = DeviceBuffer::<u8>::zeroed(here.stream, 4).unwrap();
        let put = here.ctx.on(here.stream).put_signal(&there, &local, signals.at(0), SignalOp::Add(1), here.next(1));
        errors::argument(put, "OnStream::put_signal", "5", "4");
        here.settle();
        assert_eq!(here.ctx.signal_fetch(signals.at(0)).unwrap(), 0);
    });
}
