//! Memory of others at addresses of one's own, and memory of one's own that the library is told of.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpucomm::nvshmem::Pe;
use gpucomm::{Device, DeviceBuffer, Error, Stream, sys};

use crate::support::random::{Bits, lengths, same};
use crate::support::{Here, each_type, errors, with_context, with_contexts};

/// Everybody copies to everybody, into a slot of its own, and from everybody.
fn copies<T: Bits>(here: &Here<'_>) {
    let (pe, n_pes) = (here.pe(), here.n_pes());
    for len in lengths() {
        let mut buffer = here.ctx.alloc_uninit::<T>(len * n_pes + 3).unwrap();
        buffer.fill(here.stream, T::poison()).unwrap();
        here.settle();
        let values = |from: usize, to: usize| T::vector(&mut here.rng_of(&format!("{len} to {to}"), from), len);
        for to in 0..n_pes {
            let mut view = buffer.symmetric(1 + len * pe..1 + len * (pe + 1)).peer(Pe(to)).unwrap().expect("near");
            assert_eq!((view.pe(), view.len(), view.is_empty()), (Pe(to), len, len == 0));
            let source = DeviceBuffer::from_slice(here.stream, &values(pe, to)).unwrap();
            view.copy_from(here.stream, &source).unwrap();
        }
        here.settle();
        let got = buffer.to_vec(here.stream).unwrap();
        let want: Vec<T> = (0..n_pes).flat_map(|from| values(from, pe)).collect();
        same("what came", &got[1..1 + len * n_pes], &want);
        same("before and behind", &[got[0], got[len * n_pes + 1], got[len * n_pes + 2]], &[T::poison(); 3]);
        for from in 0..n_pes {
            let view = buffer.peer(Pe(from)).unwrap().expect("near");
            let mut target = DeviceBuffer::from_slice(here.stream, &vec![T::poison(); len * n_pes + 3]).unwrap();
            view.copy_to(here.stream, &mut target).unwrap();
            let want: Vec<T> = (0..n_pes).flat_map(|other| values(other, from)).collect();
            same("what is there", &target.to_vec(here.stream).unwrap()[1..1 + len * n_pes], &want);
        }
        here.settle();
    }
}

#[test]
fn copies_through_views() {
    with_context(|here| each_type!(copies(here)));
}

/// Lent to a launch, beside memory of this PE, also of this PE itself.
#[test]
fn views_in_a_launch() {
    with_context(|here| {
        let mut buffer = here.ctx.alloc::<u8>(1000).unwrap();
        let mut target = DeviceBuffer::<u8>::zeroed(here.stream, 1000).unwrap();
        for by in 0..here.n_pes() {
            buffer.fill(here.stream, here.pe() as u8 + 1).unwrap();
            here.settle();
            let view = buffer.peer(here.next(by)).unwrap().unwrap();
            let other = Stream::new(here.seat.device).unwrap();
            let copied = other.launch((&view, &mut target), |stream, (from, mut to)| {
                let kind = sys::cudaMemcpyKind::cudaMemcpyDefault;
                // SAFETY: one copy on this stream, of as many bytes as both have.
                unsafe {
                    sys::cudaMemcpyAsync(to.as_mut_ptr().cast(), from.as_ptr().cast(), 1000, kind, stream.as_raw())
                }
            });
            assert_eq!(copied.unwrap(), sys::cudaError::cudaSuccess);
            same("from a view", &target.to_vec(here.stream).unwrap(), &[here.next(by).0 as u8 + 1; 1000]);
            here.settle();
            let mut view = buffer.peer(here.next(by)).unwrap().unwrap();
            let set = here.stream.launch(&mut view, |stream, mut there| {
                // SAFETY: one launch on this stream, which writes so many bytes.
                unsafe { sys::cudaMemsetAsync(there.as_mut_ptr().cast(), 99, there.len(), stream.as_raw()) }
            });
            assert_eq!(set.unwrap(), sys::cudaError::cudaSuccess);
            here.settle();
            same("through a view", &buffer.to_vec(here.stream).unwrap(), &[99; 1000]);
        }
    });
}

/// Two streams by turns, of which one is late, and two views.
#[test]
fn what_streams_do_by_views_is_in_order() {
    with_context(|here| {
        let buffer = here.ctx.alloc::<u32>(5000).unwrap();
        let other = Stream::new(here.seat.device).unwrap();
        let mut back = DeviceBuffer::<u32>::zeroed(here.stream, 5000).unwrap();
        for round in 1..6 {
            let values = DeviceBuffer::from_slice(here.stream, &[round; 5000]).unwrap();
            here.stream.launch_host(|| std::thread::sleep(Duration::from_millis(20))).unwrap();
            let (mut first, second) =
                (buffer.peer(here.next(1)).unwrap().unwrap(), buffer.peer(here.next(1)).unwrap().unwrap());
            first.copy_from(here.stream, &values).unwrap();
            second.copy_to(&other, &mut back).unwrap();
            first.copy_from(&other, &values).unwrap();
            same("what was copied there", &back.to_vec(&other).unwrap(), &[round; 5000]);
        }
        here.settle();
    });
}

/// Another thread copies on and on, while the context is within scopes and between them.
#[test]
fn a_thread_copies_beside_scopes() {
    with_contexts(&[2, 3], |here| {
        let buffer = here.ctx.alloc::<u32>(100).unwrap();
        let source = here.ctx.alloc::<u32>(100).unwrap();
        let (device, next, over) = (here.seat.device, here.next(1), AtomicBool::new(false));
        std::thread::scope(|threads| {
            let copies = threads.spawn(|| {
                let stream = Stream::new(device).unwrap();
                let mut target = DeviceBuffer::<u32>::zeroed(&stream, 100).unwrap();
                while !over.load(Ordering::Relaxed) {
                    buffer.peer(next).unwrap().unwrap().copy_to(&stream, &mut target).unwrap();
                    stream.synchronize().unwrap();
                }
            });
            for _ in 0..20 {
                here.ctx
                    .nonblocking(|scope| {
                        scope.put(&buffer, &source, next)?;
                        let mut own = buffer.peer(Pe(here.pe())).unwrap().unwrap();
                        let refused = own.copy_from(here.stream, &source);
                        assert!(matches!(refused, Err(Error::InvalidUsage { .. })), "{refused:?}");
                        std::thread::sleep(Duration::from_millis(2));
                        Ok(())
                    })
                    .unwrap();
            }
            over.store(true, Ordering::Relaxed);
            copies.join().expect("no copy is refused");
        });
        here.settle();
    });
}

/// The buffer goes, the copy does not: it is not freed before that is done.
#[test]
fn a_buffer_dropped_under_a_view() {
    with_context(|here| {
        for round in 0..5u32 {
            let mut buffer = here.ctx.alloc::<u32>(1 << 18).unwrap();
            buffer.fill(here.stream, round * 10 + here.pe() as u32).unwrap();
            here.settle();
            let mut target = DeviceBuffer::<u32>::zeroed(here.stream, 1 << 18).unwrap();
            let from = here.next(1);
            buffer.peer(from).unwrap().unwrap().copy_to(here.stream, &mut target).unwrap();
            drop(buffer);
            here.ctx.reclaim().unwrap();
            let want = vec![round * 10 + from.0 as u32; 1 << 18];
            same("from a buffer that went", &target.to_vec(here.stream).unwrap(), &want);
        }
    });
}

#[test]
fn what_a_view_refuses() {
    with_context(|here| {
        let buffer = here.ctx.alloc::<u32>(10).unwrap();
        let below = format!("a PE below {}", here.n_pes());
        errors::argument(buffer.peer(Pe(here.n_pes())), "SymmetricBuffer::peer", &below, "");
        errors::argument(buffer.symmetric(1..).peer(Pe(99)), "SymmetricSlice::peer", &below, "99");
        let mut view = buffer.peer(here.next(1)).unwrap().unwrap();
        let mut other = DeviceBuffer::<u32>::zeroed(here.stream, 9).unwrap();
        let ten = "10 elements, as many as the view has";
        errors::argument(view.copy_from(here.stream, &other), "PeerView::copy_from", ten, "9");
        errors::argument(view.copy_to(here.stream, &mut other), "PeerView::copy_to", ten, "9");
        // Its own memory, which overlaps.
        let mut own = buffer.symmetric(0..6).peer(Pe(here.pe())).unwrap().unwrap();
        let overlaps = own.copy_from(here.stream, buffer.symmetric(4..));
        errors::argument(overlaps, "PeerView::copy_from", "memory that does not overlap the view", "24 bytes");
        own.copy_from(here.stream, buffer.symmetric(0..0)).expect_err("other lengths");
        let mut apart = buffer.symmetric(0..5).peer(Pe(here.pe())).unwrap().unwrap();
        apart.copy_from(here.stream, buffer.symmetric(5..)).unwrap();
        let nothing = here.ctx.alloc::<u32>(0).unwrap();
        assert!(nothing.peer(here.next(1)).unwrap().unwrap().is_empty());
        here.settle();
    });
}

/// Where there are no switches, or they are off, there is no such view; where there are, it has all elements.
#[test]
fn multicast() {
    with_context(|here| {
        let buffer = here.ctx.alloc::<f32>(1024).unwrap();
        let team = here.ctx.world().unwrap();
        let all = here.seat.gather(&buffer.multicast(&team).unwrap().is_some().to_string());
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
        if let Some(view) = buffer.symmetric(24..).multicast(&team).unwrap() {
            assert_eq!((view.len(), view.as_raw().is_null()), (1000, false));
            let same = view.ptr();
            assert_eq!((same.len(), same.as_raw()), (view.len(), view.as_raw()));
        }
        assert!(here.ctx.alloc::<f32>(0).unwrap().multicast(&team).unwrap().is_none());
    });
}

#[test]
fn registered_memory() {
    with_contexts(&[1, 2], |here| {
        let mut rng = here.rng_of("registered", here.pe());
        for len in lengths() {
            let values = u32::vector(&mut rng, len);
            let buffer = DeviceBuffer::from_slice(here.stream, &values).unwrap();
            let mut registered = here.ctx.register(buffer).unwrap();
            assert_eq!(registered.len(), len);
            same("registered", &registered.as_slice().to_vec(here.stream).unwrap(), &values);
            registered.as_slice_mut().fill(here.stream, 5).unwrap();
            if len % 2 == 0 {
                drop(registered);
            } else {
                same("given back", &registered.unregister().unwrap().to_vec(here.stream).unwrap(), &vec![5; len]);
            }
        }
        // The same memory again and again.
        let mut buffer = DeviceBuffer::<u8>::zeroed(here.stream, 1 << 21).unwrap();
        for _ in 0..20 {
            buffer = here.ctx.register(buffer).unwrap().unregister().unwrap();
        }
        std::mem::forget(here.ctx.register(buffer).unwrap());
        here.settle();
    });
}

#[test]
fn what_cannot_be_registered() {
    with_contexts(&[1, 2], |here| {
        let parts = DeviceBuffer::<u8>::zeroed(here.stream, 4096).unwrap().into_split(1024);
        let refused = here.ctx.register(parts.0);
        errors::argument(refused, "Context::register", "all of what was allocated together", "1024 bytes of 4096");
        if let Some(other) = Device::all().unwrap().into_iter().find(|device| *device != here.seat.device) {
            let stream = Stream::new(other).unwrap();
            let theirs = DeviceBuffer::<u8>::zeroed(&stream, 100).unwrap();
            errors::argument(here.ctx.register(theirs), "Context::register", "the device of this PE", "");
        }
        // Whoever has it twice by unsafe code is told by the library.
        let memory = DeviceBuffer::<u8>::zeroed(here.stream, 4096).unwrap();
        // SAFETY: what it shows is `memory`, which outlives it; neither is used by a stream.
        let alias = unsafe { DeviceBuffer::<u8>::from_raw_parts(memory.device(), memory.as_raw(), 4096, ()) }.unwrap();
        let registered = here.ctx.register(memory).unwrap();
        let error = here.ctx.register(alias).expect_err("it is registered");
        assert!(matches!(error, Error::Nvshmem { .. }), "{error:?}");
        errors::names(&error, &["nvshmemx_buffer_register"]);
        drop(registered);
    });
}
