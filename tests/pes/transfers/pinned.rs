//! Pinned memory of the host as what is put and what is got, registered and not.

use gpucomm::nvshmem::{AsLocal, AsLocalMut, Pe, SignalOp, Strides, SymmetricBuffer, SymmetricSignals};
use gpucomm::{DeviceBuffer, Error, PinnedBuffer, Stream};

use crate::support::random::{Bits, lengths, same};
use crate::support::{Here, as_pes_with, errors, with_context, with_contexts};

/// How a transfer is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Host,
    Stream,
    Scope,
    StreamScope,
    /// With a signal.
    Signal,
}

const WAYS: [Way; 5] = [Way::Host, Way::Stream, Way::Scope, Way::StreamScope, Way::Signal];

/// Puts `source` to the next PE, and gets that back into `dest` from there.
fn both<'a, T: Bits>(
    here: &Here<'_>,
    way: Way,
    (there, signals): (&'a SymmetricBuffer<'_, T>, &'a SymmetricSignals<'_>),
    source: impl AsLocal<'a, T>,
    dest: impl AsLocalMut<'a, T>,
) {
    let (ctx, stream, to) = (here.ctx, here.stream, here.next(1));
    let place = there.symmetric(1..there.len() - 1);
    match way {
        Way::Host => ctx.put(place, source, to),
        Way::Stream => ctx.on(stream).put(place, source, to),
        Way::Scope => ctx.nonblocking(|scope| scope.put(place, source, to)),
        Way::StreamScope => ctx.on(stream).nonblocking(|scope| scope.put(place, source, to)),
        Way::Signal => ctx.on(stream).put_signal(place, source, signals.at(0), SignalOp::Set(1), to),
    }
    .unwrap();
    ctx.on(stream).barrier_all().unwrap();
    here.settle();
    assert_eq!(ctx.signal_fetch(signals.at(0)).unwrap(), u64::from(way == Way::Signal));
    match way {
        Way::Host => ctx.get(dest, place, to),
        Way::Stream | Way::Signal => ctx.on(stream).get(dest, place, to),
        Way::Scope => ctx.nonblocking(|scope| scope.get(dest, place, to)),
        Way::StreamScope => ctx.on(stream).nonblocking(|scope| scope.get(dest, place, to)),
    }
    .unwrap();
}

fn every_way<T: Bits>(here: &Here<'_>, len: usize) {
    for (at, way) in WAYS.into_iter().enumerate() {
        let case = format!("{way:?} {len} {}", T::NAME);
        let values = |pe| T::vector(&mut here.rng_of(&case, pe), len);
        let mut there = here.ctx.alloc_uninit::<T>(len + 2).unwrap();
        there.fill(here.stream, T::poison()).unwrap();
        let signals = here.ctx.alloc_signals(1).unwrap();
        here.settle();
        // A part of pinned memory, and of registered memory that is pinned.
        let whole: Vec<T> = [vec![T::poison(); 3], values(here.pe())].concat();
        let source = PinnedBuffer::from_slice(&whole).unwrap();
        let mut dest = PinnedBuffer::from_slice(&vec![T::poison(); len + 5]).unwrap();
        if at % 2 == 0 {
            both(here, way, (&there, &signals), source.slice(3..), dest.slice_mut(1..=len));
        } else {
            let source = here.ctx.register(source).unwrap();
            let mut registered = here.ctx.register(dest).unwrap();
            both(here, way, (&there, &signals), source.slice(3..), registered.slice_mut(1..=len));
            dest = registered.unregister().unwrap();
        }
        let came = dest.as_slice().unwrap();
        same(&format!("got back, {case}"), &came[1..=len], &values(here.pe()));
        same(&format!("around it, {case}"), &[came[0], came[len + 1]], &[T::poison(); 2]);
        let all = there.to_vec(here.stream).unwrap();
        same(&format!("put, {case}"), &all[1..=len], &values(here.before(1)));
        same(&format!("around that, {case}"), &[all[0], all[len + 1]], &[T::poison(); 2]);
        here.settle();
    }
}

#[test]
fn pinned_memory_in_every_way() {
    with_context(|here| {
        for len in lengths() {
            every_way::<u8>(here, len);
            every_way::<f64>(here, len);
        }
    });
}

#[test]
fn registered_pinned_memory() {
    with_contexts(&[1, 2], |here| {
        let mut rng = here.rng_of("registered", here.pe());
        for len in lengths() {
            let values = u32::vector(&mut rng, len);
            let mut registered = here.ctx.register(PinnedBuffer::from_slice(&values).unwrap()).unwrap();
            same("registered", registered.as_slice().unwrap(), &values);
            registered.as_slice_mut().unwrap().fill(5);
            let on_device = here.ctx.alloc::<u32>(len).unwrap();
            here.ctx.on(here.stream).put(&on_device, &registered, Pe(here.pe())).unwrap();
            // It waits for the stream.
            if len % 2 == 0 {
                drop(registered);
            } else {
                same("given back", registered.unregister().unwrap().as_slice().unwrap(), &vec![5; len]);
            }
            same("put", &on_device.to_vec(here.stream).unwrap(), &vec![5; len]);
        }
        // The same memory again and again, which the crate keeps.
        for _ in 0..20 {
            drop(here.ctx.register(PinnedBuffer::<u8>::zeroed(1 << 20).unwrap()).unwrap());
        }
        std::mem::forget(here.ctx.register(PinnedBuffer::<u8>::zeroed(100).unwrap()).unwrap());
        here.settle();
    });
}

#[test]
fn strides_in_pinned_memory() {
    with_contexts(&[1, 2], |here| {
        let (ctx, stream, to) = (here.ctx, here.stream, here.next(1));
        let mine = u32::vector(&mut here.rng_of("strides", here.pe()), 9);
        let theirs = u32::vector(&mut here.rng_of("strides", to.0), 9);
        let source = PinnedBuffer::from_slice(&mine).unwrap();
        let there = ctx.alloc::<u32>(5).unwrap();
        ctx.iput(&there, &source, Strides { dest: 1, source: 2 }, 5, Pe(here.pe())).unwrap();
        here.settle();
        for on_stream in [false, true] {
            let (mut dest, strides) = (PinnedBuffer::<u32>::zeroed(13).unwrap(), Strides { dest: 3, source: 1 });
            match on_stream {
                true => ctx.on(stream).iget(&mut dest, &there, strides, 5, to).unwrap(),
                false => ctx.iget(&mut dest, &there, strides, 5, to).unwrap(),
            }
            let mut expected = vec![0; 13];
            (0..5).for_each(|at| expected[3 * at] = theirs[2 * at]);
            same("strided", dest.as_slice().unwrap(), &expected);
        }
        here.settle();
    });
}

/// What belongs to a graph moves into it: otherwise the host would look at it while the graph uses it.
#[test]
fn graphs_have_pinned_memory_of_their_own() {
    with_contexts(&[1, 2], |here| {
        let (ctx, stream, to, from) = (here.ctx, here.stream, here.next(1), here.before(1));
        let there = ctx.alloc::<u32>(4).unwrap();
        let source = PinnedBuffer::<u32>::zeroed(4).unwrap();
        let captured = stream.capture(|stream| ctx.on(stream).put(&there, &source, to));
        let error = captured.map(drop).expect_err("the host has it");
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
        errors::names(&error, &["Stream::move_in"]);
        here.settle();
        let mine = [here.pe() as u32 + 7, 1, 2, 3];
        let graph = stream.capture(|stream| {
            let moved = stream.move_in(PinnedBuffer::from_slice(&mine)?)?;
            ctx.on(stream).put(&there, &moved, to)
        });
        let graph = graph.unwrap();
        for _ in 0..2 {
            graph.launch(stream).unwrap();
            here.settle();
            ctx.quiet().unwrap();
            here.seat.meet();
            same("from the graph", &there.to_vec(stream).unwrap(), &[from as u32 + 7, 1, 2, 3]);
            here.settle();
        }
    });
}

/// Over the network only what the library knows goes.
#[test]
fn peers_of_another_host_want_registered_memory() {
    as_pes_with(&[2], &[("GPUCOMM_EMULATOR_NODE", "1")], |seat| {
        if gpucomm::backend() == gpucomm::Backend::Nvidia {
            return;
        }
        let (ctx, stream) = (seat.start().unwrap(), Stream::new(seat.device).unwrap());
        let (pe, to) = (seat.pe as u64, Pe(1 - seat.pe));
        assert!(!ctx.is_near(to).unwrap());
        let there = ctx.alloc::<u64>(3).unwrap();
        let mut pinned = PinnedBuffer::from_slice(&[pe, 5, 6]).unwrap();
        let mut memory = DeviceBuffer::from_slice(&stream, &[pe, 7, 8]).unwrap();
        let expected = "registered, as PE";
        errors::argument(ctx.put(&there, &pinned, to), "Context::put", expected, "pinned memory of the host");
        errors::argument(ctx.get(&mut pinned, &there, to), "Context::get", expected, "pinned memory of the host");
        errors::argument(ctx.put(&there, &memory, to), "Context::put", expected, "memory of device");
        errors::argument(ctx.get(&mut memory, &there, to), "Context::get", expected, "memory of device");
        ctx.barrier_all().unwrap();
        let mut pinned = ctx.register(pinned).unwrap();
        ctx.put(&there, &pinned, to).unwrap();
        ctx.barrier_all().unwrap();
        same("put", &there.to_vec(&stream).unwrap(), &[1 - pe, 5, 6]);
        ctx.get(pinned.slice_mut(..2), there.symmetric(..2), to).unwrap();
        same("got", pinned.as_slice().unwrap(), &[pe, 5, 6]);
        seat.meet();
        let memory = ctx.register(memory).unwrap();
        ctx.on(&stream).put(&there, &memory, to).unwrap();
        ctx.on(&stream).barrier_all().unwrap();
        same("put from the device", &there.to_vec(&stream).unwrap(), &[1 - pe, 7, 8]);
        // No longer.
        let pinned = pinned.unregister().unwrap();
        errors::argument(ctx.put(&there, &pinned, to), "Context::put", expected, "pinned memory of the host");
        drop((there, memory));
        ctx.close().unwrap();
    });
}

/// Lengths are compared as those of device memory are.
#[test]
fn lengths_of_pinned_memory() {
    with_contexts(&[1], |here| {
        let there = here.ctx.alloc::<u16>(4).unwrap();
        let mut pinned = PinnedBuffer::<u16>::zeroed(3).unwrap();
        errors::argument(here.ctx.put(&there, &pinned, Pe(0)), "Context::put", "4 elements, as many as dest has", "3");
        let got = here.ctx.get(&mut pinned, &there, Pe(0));
        errors::argument(got, "Context::get", "4 elements, as many as source has", "3");
        here.settle();
    });
}
