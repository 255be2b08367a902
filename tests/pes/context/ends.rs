//! Ending, in good order and otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;

use gpucomm::nvshmem::{Comparison, Context, Pe, Status};
use gpucomm::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};

use crate::support::gate::Gate;
use crate::support::{Fate, Hooked, SIZES, Seat, Theirs, as_pes, errors, given_up_busy, skip, slower, with_contexts};

#[test]
fn dropped_without_an_end_it_does_not_hang() {
    as_pes(&SIZES, |seat| {
        let ctx = seat.start().unwrap();
        let stream = Stream::new(seat.device).unwrap();
        let mut buffer = ctx.alloc::<u32>(1000).unwrap();
        buffer.fill(&stream, 3).unwrap();
        std::mem::forget(buffer);
        let begin = Instant::now();
        drop(ctx);
        assert!(begin.elapsed() < slower(2.0), "{:?}", begin.elapsed());
        let error = seat.start().expect_err("the library was left as it was");
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
        errors::names(&error, &["dropped without Context::finalize"]);
        stream.synchronize().unwrap();
    });
}

/// Registered memory that is given up while a stream is at work on it, for longer than that is waited for, is freed at the end; also what a graph has.
#[test]
fn registered_memory_that_was_busy_is_freed() {
    as_pes(&[1, 2], |seat| {
        for in_graph in [false, false, true] {
            given_up_busy(seat, seat.start().unwrap(), in_graph);
        }
    });
}

/// One PE alone drops its context: the others are not held up by that in what they do alone.
#[test]
fn dropped_by_one_pe_only() {
    as_pes(&[2, 3], |seat| {
        let ctx = seat.start().unwrap();
        let stream = Stream::new(seat.device).unwrap();
        let mut buffer = ctx.alloc::<u32>(1000).unwrap();
        if seat.pe == 0 {
            drop(buffer);
            drop(ctx);
        } else {
            buffer.fill(&stream, 5).unwrap();
            assert_eq!(buffer.to_vec(&stream).unwrap(), [5; 1000]);
        }
        seat.meet();
    });
}

#[test]
fn what_was_forgotten_is_reported() {
    as_pes(&SIZES, |seat| {
        let ctx = seat.start().unwrap();
        std::mem::forget(ctx.alloc::<u32>(1000).unwrap());
        std::mem::forget(ctx.alloc_uninit::<u8>(77).unwrap());
        drop(ctx.alloc::<u64>(5).unwrap());
        let leaks = ctx.finalize().unwrap();
        assert!(!leaks.is_empty());
        assert_eq!((leaks.buffers, leaks.bytes), (2, 4077));
        // It starts again all the same.
        let ctx = seat.start().unwrap();
        assert!(ctx.finalize().unwrap().is_empty());
    });
}

/// Each PE is told of its own.
#[test]
fn what_one_pe_has_forgotten_that_one_reports() {
    as_pes(&SIZES, |seat| {
        let ctx = seat.start().unwrap();
        let buffer = ctx.alloc::<u8>(4096).unwrap();
        let forgets = seat.pe + 1 == seat.n_pes;
        if forgets {
            std::mem::forget(buffer)
        } else {
            drop(buffer)
        }
        ctx.reclaim().unwrap();
        let leaks = ctx.finalize().unwrap();
        assert_eq!((leaks.buffers, leaks.bytes), if forgets { (1, 4096) } else { (0, 0) });
    });
}

/// Work that a stream has not done yet is waited for.
#[test]
fn the_end_waits_for_work() {
    as_pes(&SIZES, |seat| {
        let ctx = seat.start().unwrap();
        let stream = Stream::new(seat.device).unwrap();
        let mut buffer = ctx.alloc::<u64>(1 << 20).unwrap();
        for round in 0..20 {
            buffer.fill(&stream, round).unwrap();
        }
        drop(buffer);
        assert!(ctx.finalize().unwrap().is_empty());
    });
}

/// The one that ends while the others allocate: all are told, and all can go on.
#[test]
fn an_end_beside_something_else_is_a_disagreement() {
    as_pes(&[2, 3, 4], |seat| {
        let ctx = seat.start().unwrap();
        let last = seat.n_pes - 1;
        let error = if seat.pe == last {
            let error = ctx.finalize().expect_err("the others allocate");
            seat.meet();
            error
        } else {
            let error = ctx.alloc::<u32>(10).expect_err("one ends");
            seat.meet();
            error
        };
        let Error::Disagreement { rank, peer, expected, got, .. } = &error else { panic!("{error:?}") };
        let most = if seat.pe == last { "an allocation" } else { "an allocation of 40 bytes" };
        if seat.n_pes > 2 {
            assert_eq!((*rank, *peer), (last, 0), "{error}");
        }
        let (one, other) = if *rank == last { (got, expected) } else { (expected, got) };
        assert_eq!((one.as_str(), other.as_str()), ("a finalize", most), "{error}");
    });
}

/// One that does not come: the others are told within their time, on a stream.
#[test]
fn one_that_does_not_come() {
    as_pes(&[2, 3, 4], |seat| {
        let limit = slower(2.0);
        let ctx = seat.start_as(seat.builder().timeout(limit)).unwrap();
        if ctx.status() == gpucomm::nvshmem::Status::LimitedMpg {
            // The library waits on the thread: see `watchdog`.
            assert!(ctx.finalize().unwrap().is_empty());
            return;
        }
        if seat.pe == 0 {
            // The others wait, in vain.
            seat.meet();
            leave(ctx);
        }
        let begin = Instant::now();
        let error = ctx.alloc::<u32>(10).expect_err("not all have come");
        // To ask who is missing takes a quarter of the timeout at most.
        assert!(begin.elapsed() < limit + slower(1.5), "{:?}", begin.elapsed());
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        errors::names(&error, &["Context::alloc", "not all PEs have come", "PE 0 has not come"]);
        for other in (1..seat.n_pes).filter(|pe| *pe != seat.pe) {
            errors::names(&error, &[&format!("PE {other} waits in Context::alloc")]);
        }
        // The context is lost.
        let lost = ctx.reclaim().expect_err("it is lost");
        assert!(matches!(lost, Error::Aborted { .. }), "{lost:?}");
        errors::names(&lost, &["the context is lost"]);
        seat.meet();
        leave(ctx);
    });
}

/// The store blocks from now on: the end of a context does not wait for it for longer than its timeout.
#[test]
fn an_end_whose_store_blocks() {
    as_pes(&[2], |seat| {
        let limit = slower(2.0);
        let is_on = Arc::new(AtomicBool::new(false));
        let blocks = Arc::clone(&is_on);
        let exchange = Hooked::join(seat, move |_, _| {
            while blocks.load(Ordering::SeqCst) {
                std::thread::sleep(limit);
            }
            Fate::Answers
        });
        let ctx = seat.start_as(seat.builder().exchange(&exchange).timeout(limit)).unwrap();
        seat.meet();
        is_on.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        // It fails on a machine that is so slow that a PE asks whether the other one has given up on it.
        let _ = ctx.finalize();
        assert!(begin.elapsed() < limit + slower(3.0), "{:?}", begin.elapsed());
        seat.meet();
        // The store goes with the process.
        std::mem::forget(exchange);
        println!("1 passed");
        std::process::exit(0);
    });
}

/// Ends the process as a test that has passed. What the device still waits for goes with it.
fn leave(ctx: Context) -> ! {
    drop(ctx);
    println!("1 passed");
    std::process::exit(0);
}

#[test]
fn two_hundred_meetings() {
    with_contexts(&[1, 3], |here| {
        for round in 0..100 {
            drop(here.ctx.alloc_uninit::<u16>(round).unwrap());
        }
        for _ in 0..100 {
            here.ctx.reclaim().unwrap();
        }
    });
}

/// The end is refused where something is still there that does not borrow the context; nobody waits for others, and the library is left as it is.
fn is_refused(seat: &Seat, ctx: Context, says: &str) {
    let error = ctx.check_finalize().expect_err("something is there");
    errors::names(&error, &["Context::check_finalize", says]);
    let begin = Instant::now();
    let error = ctx.finalize().expect_err("something is there");
    assert!(begin.elapsed() < slower(10.0), "{:?}", begin.elapsed());
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
    errors::names(&error, &["Context::finalize", says]);
    errors::names(&seat.start().expect_err("it has not ended"), &["NVSHMEM cannot be started again"]);
    seat.meet();
}

#[test]
fn an_end_under_a_graph() {
    as_pes(&[1, 2], |seat| {
        let ctx = seat.start_as(seat.builder().timeout(slower(3.0))).unwrap();
        if ctx.status() == Status::LimitedMpg {
            ctx.finalize().unwrap();
            return;
        }
        let stream = Stream::new(seat.device).unwrap();
        let target = ctx.alloc::<u32>(8).unwrap();
        let source = DeviceBuffer::<u32>::zeroed(&stream, 8).unwrap();
        let graph = stream.capture(|stream| ctx.put_on_stream(&target, &source, Pe(seat.pe), stream)).unwrap();
        drop((target, source));
        is_refused(seat, ctx, "a graph");
        drop(graph);
    });
}

#[test]
fn an_end_under_a_buffer_that_is_shared() {
    as_pes(&[1, 2], |seat| {
        let ctx = seat.start_as(seat.builder().timeout(slower(3.0))).unwrap();
        let kept = ctx.alloc::<u32>(8).unwrap().into_shared();
        is_refused(seat, ctx, "into_shared");
        drop(kept);
    });
}

/// Another device writes to memory that was dropped or forgotten: the end waits, and the next context has its memory for itself.
#[test]
fn the_end_waits_for_other_devices() {
    as_pes(&[1, 2], |seat| {
        let Some(other) = Device::all().unwrap().into_iter().find(|device| *device != seat.device) else {
            return skip("the_end_waits_for_other_devices", "there is one device");
        };
        for forget in [true, false] {
            let ctx = seat.start().unwrap();
            let (stream, there) = (Stream::new(seat.device).unwrap(), Stream::new(other).unwrap());
            let mut buffer = ctx.alloc::<u32>(1000).unwrap();
            let late = DeviceBuffer::from_slice(&there, &[0xbad_u32; 1000]).unwrap();
            let (open, opened) = channel::<()>();
            there
                .launch_host(move || {
                    let _ = opened.recv_timeout(slower(20.0));
                })
                .unwrap();
            if let Err(error) = buffer.copy_from(&there, &late) {
                assert!(matches!(error, Error::InvalidArgument { .. } | Error::Unsupported { .. }), "{error:?}");
                drop((open, buffer, late));
                ctx.finalize().unwrap();
                return skip("the_end_waits_for_other_devices", &error.to_string());
            }
            if forget {
                std::mem::forget(buffer)
            } else {
                drop(buffer)
            }
            let is_open = AtomicBool::new(false);
            let leaks = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(slower(0.2));
                    is_open.store(true, Ordering::SeqCst);
                    drop(open);
                });
                let leaks = ctx.finalize().unwrap();
                assert!(is_open.load(Ordering::SeqCst), "it has ended before the copy was done");
                leaks
            });
            assert_eq!(leaks.buffers, usize::from(forget));
            let ctx = seat.start().unwrap();
            let mut next = ctx.alloc::<u32>(1000).unwrap();
            next.fill(&stream, 7).unwrap();
            there.synchronize().unwrap();
            assert_eq!(next.to_vec(&stream).unwrap(), [7; 1000]);
            drop((next, late));
            ctx.finalize().unwrap();
        }
    });
}

/// The last handle goes in a host function, where CUDA must not be called: a thread of the crate puts the memory down.
#[test]
fn memory_dropped_in_a_host_function() {
    as_pes(&[1, 2], |seat| {
        for _ in 0..2 {
            let ctx = seat.start().unwrap();
            let stream = Stream::new(seat.device).unwrap();
            let shared = ctx.alloc::<u32>(1000).unwrap().into_shared();
            let mut used = ctx.alloc::<u32>(1000).unwrap().into_shared();
            used.fill(&stream, 3).unwrap();
            stream.launch_host(move || drop((shared, used))).unwrap();
            stream.synchronize().unwrap();
            ctx.reclaim().unwrap();
            assert!(ctx.finalize().unwrap().is_empty());
        }
    });
}

/// A stream of others has used the memory, which is dropped in a host function, where CUDA cannot be asked: it is leaked, and that is all.
#[test]
fn memory_of_a_borrowed_stream_dropped_in_a_host_function() {
    as_pes(&[1, 2], |seat| {
        for _ in 0..2 {
            let ctx = seat.start().unwrap();
            let (stream, theirs) = (Stream::new(seat.device).unwrap(), Theirs::new(seat.device));
            // SAFETY: the stream lives until the device is done with it, at the end of the context.
            let borrowed = unsafe { Stream::from_raw(seat.device, theirs.0) };
            let mut used = ctx.alloc::<u32>(1000).unwrap().into_shared();
            let kept = ctx.alloc::<u32>(10).unwrap();
            used.fill(&borrowed, 3).unwrap();
            drop(borrowed);
            stream.launch_host(move || drop(used)).unwrap();
            stream.synchronize().unwrap();
            ctx.reclaim().unwrap();
            ctx.check_finalize().unwrap();
            drop(kept);
            let leaks = ctx.finalize().unwrap();
            assert_eq!((leaks.buffers, leaks.bytes), (1, 4000));
        }
    });
}

/// The library waits for all of the device where it makes a team, without a deadline: this crate waits before.
#[test]
fn a_split_beside_work_that_does_not_end() {
    as_pes(&[1, 2], |seat| {
        let limit = slower(2.0);
        let ctx = seat.start_as(seat.builder().timeout(limit)).unwrap();
        if ctx.status() == Status::LimitedMpg {
            ctx.finalize().unwrap();
            return;
        }
        let (stream, gate) = (Stream::new(seat.device).unwrap(), Gate::default());
        let mut world = ctx.world().unwrap();
        if seat.pe == 0 {
            gate.hold(&stream).unwrap();
        }
        let config = gpucomm::nvshmem::TeamConfig::default();
        let split = world.split_strided(gpucomm::nvshmem::TeamPe(0), 1, 1, &config).map(drop);
        let error = split.expect_err("the device of PE 0 is busy");
        if seat.pe == 0 {
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            errors::names(&error, &["Team::split_strided", "other work on device"]);
        } else {
            assert!(matches!(error, Error::Timeout { .. } | Error::Gone { .. }), "{error:?}");
        }
        seat.meet();
        gate.open();
        if seat.n_pes == 1 {
            // Nothing was agreed on: it goes on.
            drop(world.split_strided(gpucomm::nvshmem::TeamPe(0), 1, 1, &config).unwrap());
        }
        println!("1 passed");
        std::process::exit(0);
    });
}

/// A stream waits for a signal that does not come: the end says so in time.
#[test]
fn an_end_under_a_wait_for_a_signal() {
    as_pes(&[1, 2], |seat| {
        let limit = slower(2.0);
        let ctx = seat.start_as(seat.builder().timeout(limit)).unwrap();
        if ctx.status() == Status::LimitedMpg {
            // Streams wait for no signals where PEs share a device.
            ctx.finalize().unwrap();
            println!("1 passed");
            std::process::exit(0);
        }
        let stream = Stream::new(seat.device).unwrap();
        let signals = ctx.alloc_signals(1).unwrap();
        ctx.signal_wait_until_on_stream(signals.at(0), Comparison::Eq, 1, (), &stream).unwrap();
        if seat.pe == 0 {
            drop(signals)
        } else {
            std::mem::forget(signals)
        }
        let begin = Instant::now();
        let error = ctx.finalize().expect_err("a stream waits");
        assert!(begin.elapsed() < limit + slower(5.0), "{:?}", begin.elapsed());
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        seat.meet();
        // The stream goes with the process.
        println!("1 passed");
        std::process::exit(0);
    });
}

/// A thread has waited for that in vain before: the end does not wait as long again.
#[test]
fn an_end_after_a_wait_in_vain() {
    as_pes(&[1], |seat| {
        let limit = slower(3.0);
        let ctx = seat.start_as(seat.builder().timeout(limit)).unwrap();
        let stream = Stream::new(seat.device).unwrap();
        let signals = ctx.alloc_signals(1).unwrap();
        ctx.signal_wait_until_on_stream(signals.at(0), Comparison::Eq, 1, (), &stream).unwrap();
        let error = stream.wait(limit).expect_err("the signal does not come");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        drop(signals);
        let begin = Instant::now();
        let error = ctx.finalize().expect_err("a stream waits");
        assert!(begin.elapsed() < limit / 2, "{:?}", begin.elapsed());
        assert!(
            matches!(error, Error::Timeout { operation: "Context::finalize", timeout, .. } if timeout == limit),
            "{error:?}"
        );
        // The stream goes with the process.
        println!("1 passed");
        std::process::exit(0);
    });
}

/// A thread has waited in vain for a stream that was done soon after. The end waits for the work of another one.
#[test]
fn an_end_after_a_wait_in_vain_for_another_stream() {
    as_pes(&[1], |seat| {
        let limit = slower(4.0);
        let ctx = seat.start_as(seat.builder().timeout(limit)).unwrap();
        let [first, second] = [(); 2].map(|()| Stream::new(seat.device).unwrap());
        let (from, to) = (ctx.alloc::<u32>(16).unwrap(), ctx.alloc::<u32>(16).unwrap());
        let (let_go, until) = channel::<()>();
        first.launch_host(move || _ = until.recv()).unwrap();
        let error = first.wait(limit * 3 / 4).expect_err("it is held up");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        second.launch_host(move || std::thread::sleep(limit * 3 / 8)).unwrap();
        ctx.put_on_stream(&to, &from, Pe(0), &second).unwrap();
        drop((from, to));
        // Before the end gives up by what was waited for.
        drop(let_go);
        ctx.finalize().unwrap();
    });
}

/// What has waited in vain for one of them waits for all.
#[test]
fn drops_of_registered_memory_that_is_used() {
    as_pes(&[1], |seat| {
        let limit = slower(1.5);
        gpucomm::set_default_timeout(limit);
        let ctx = seat.start_as(seat.builder().timeout(limit)).unwrap();
        let stream = Stream::new(seat.device).unwrap();
        let to = ctx.alloc::<f32>(16).unwrap();
        let buffer = || DeviceBuffer::<f32>::zeroed(&stream, 16).unwrap();
        let registered = [(); 3].map(|()| ctx.register(buffer()).unwrap());
        stream.synchronize().unwrap();
        let (let_go, until) = channel::<()>();
        stream.launch_host(move || _ = until.recv()).unwrap();
        for from in &registered {
            ctx.put_on_stream(&to, from, Pe(0), &stream).unwrap();
        }
        let begin = Instant::now();
        drop(registered);
        assert!(begin.elapsed() < limit + limit / 2, "{:?}", begin.elapsed());
        drop(let_go);
        stream.synchronize().unwrap();
        drop(to);
        ctx.finalize().unwrap();
    });
}

/// The same without a watchdog. Until then, the others go on: memory is allocated and freed.
#[test]
fn calls_under_a_wait_for_a_signal() {
    as_pes(&[1, 2], |seat| {
        let limit = slower(0.5);
        let ctx = seat.start_as(seat.builder().timeout(limit).watchdog(false)).unwrap();
        if ctx.status() == Status::LimitedMpg {
            // Streams wait for no signals where PEs share a device.
            ctx.finalize().unwrap();
            println!("1 passed");
            std::process::exit(0);
        }
        let stream = Stream::new(seat.device).unwrap();
        let signals = ctx.alloc_signals(1).unwrap();
        ctx.signal_wait_until_on_stream(signals.at(0), Comparison::Eq, 1, (), &stream).unwrap();
        let begin = Instant::now();
        drop(ctx.alloc::<u8>(100).unwrap());
        ctx.reclaim().unwrap();
        std::mem::forget(signals);
        let error = ctx.finalize().expect_err("a stream waits");
        assert!(begin.elapsed() < limit + slower(5.0), "{:?}", begin.elapsed());
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        errors::names(&error, &["Context::finalize", "work that uses symmetric memory"]);
        seat.meet();
        // The stream goes with the process.
        println!("1 passed");
        std::process::exit(0);
    });
}

/// Memory of the host that is registered, and forgotten while a stream gets something into it: the end waits.
#[test]
fn the_end_waits_for_forgotten_registered_memory() {
    as_pes(&[1, 2], |seat| {
        let ctx = seat.start().unwrap();
        let stream = Stream::new(seat.device).unwrap();
        let source = ctx.alloc::<u32>(1000).unwrap();
        let mut target = ctx.register(PinnedBuffer::<u32>::new(1000).unwrap()).unwrap();
        stream.synchronize().unwrap();
        let gate = Gate::default();
        gate.hold(&stream).unwrap();
        ctx.nonblocking_on_stream(&stream, |scope| scope.get(&mut target, &source, Pe(seat.pe))).unwrap();
        std::mem::forget((target, source));
        let is_open = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(slower(0.2));
                is_open.store(true, Ordering::SeqCst);
                gate.open();
            });
            assert!(!ctx.finalize().unwrap().is_empty());
            assert!(is_open.load(Ordering::SeqCst), "it has ended before the stream was done");
        });
        let ctx = seat.start().unwrap();
        assert!(ctx.finalize().unwrap().is_empty());
    });
}
