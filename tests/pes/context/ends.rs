//! Ending, in good order and otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gpucomm::nvshmem::{Comparison, Context, Pe, Status, TeamConfig, TeamPe};
use gpucomm::{Device, DeviceBuffer, Error, ErrorKind, PinnedBuffer, Stream};

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
        errors::names(&error, &["dropped without Context::close"]);
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
        let leaks = ctx.close().unwrap();
        assert!(!leaks.is_empty());
        assert_eq!((leaks.buffers, leaks.bytes), (2, 4077));
        // It starts again all the same.
        let ctx = seat.start().unwrap();
        assert!(ctx.close().unwrap().is_empty());
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
        let leaks = ctx.close().unwrap();
        assert_eq!((leaks.buffers, leaks.bytes), if forgets { (1, 4096) } else { (0, 0) });
    });
}

/// Work that a stream has not done yet is waited for.
#[test]
fn the_end_waits_for_work() {
    as_pes(&SIZES, |seat| {
        let ctx = seat.start().unwrap();
        let stream = Stream::new(seat.device).unwrap();
        let mut buffer = ctx.alloc::<u64>(1 << 17).unwrap();
        for round in 0..20 {
            buffer.fill(&stream, round).unwrap();
        }
        drop(buffer);
        assert!(ctx.close().unwrap().is_empty());
    });
}

/// The one that ends while the others allocate: all are told, and all can go on.
#[test]
fn an_end_beside_something_else_is_a_disagreement() {
    as_pes(&[2, 3, 4], |seat| {
        let ctx = seat.start().unwrap();
        let last = seat.n_pes - 1;
        let error = if seat.pe == last {
            let error = ctx.close().expect_err("the others allocate");
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
        assert_eq!((one.as_str(), other.as_str()), ("a close", most), "{error}");
    });
}

/// One that does not come: the others are told within their time, on a stream.
#[test]
fn one_that_does_not_come() {
    as_pes(&[2, 3, 4], |seat| {
        let limit = slower(2.0);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        if ctx.status() == gpucomm::nvshmem::Status::LimitedMpg {
            // The library waits on the thread: see `watchdog`.
            assert!(ctx.close().unwrap().is_empty());
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
        errors::names(&lost, &["the context was aborted: it is lost"]);
        let peer = if seat.n_pes == 2 { Some(0) } else { None };
        let numbers = (Some(seat.pe), peer);
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Timeout, "Context::alloc"), "{error:?}");
        assert_eq!((error.rank(), error.peer()), numbers, "{error:?}");
        assert_eq!((lost.kind(), lost.operation()), (ErrorKind::Aborted, "Context::reclaim"), "{lost:?}");
        assert_eq!((lost.rank(), lost.peer()), numbers, "{lost:?}");
        let first = std::error::Error::source(&lost).and_then(|cause| cause.source()).expect("what it was lost by");
        assert!(first.source().is_none() && first.downcast_ref() == Some(&error), "{first:?}");
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
        let ctx = seat.start_as(seat.options().with_exchange(&exchange).with_timeout(limit)).unwrap();
        seat.meet();
        is_on.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        // It fails on a machine that is so slow that a PE asks whether the other one has given up on it.
        let _ = ctx.close();
        assert!(begin.elapsed() < limit + slower(3.0), "{:?}", begin.elapsed());
        seat.meet();
        // The store goes with the process.
        std::mem::forget(exchange);
        println!("1 passed");
        std::process::exit(0);
    });
}

/// A user may remove the directory in which the PEs have met, also if memory was forgotten. PE 0 came late, so there is a note that
/// each PE takes away at the end.
#[test]
fn a_finalized_context_uses_its_store_no_more() {
    as_pes(&[2], |seat| {
        let limit = slower(3.0);
        let is_slow = Arc::new(AtomicBool::new(false));
        let slows = Arc::clone(&is_slow);
        let exchange = Hooked::join(seat, move |_, key| {
            if slows.load(Ordering::SeqCst) && key.contains("meets/") {
                std::thread::sleep(Duration::from_millis(200));
            }
            Fate::Answers
        });
        let ctx = seat.start_as(seat.options().with_exchange(&exchange).with_timeout(limit)).unwrap();
        drop(exchange);
        std::mem::forget(ctx.alloc::<u32>(10).unwrap());
        if seat.pe == 0 {
            std::thread::sleep(limit.mul_f32(0.85));
        }
        ctx.reclaim().unwrap();
        is_slow.store(true, Ordering::SeqCst);
        ctx.close().unwrap();
        assert_eq!(Arc::strong_count(&is_slow), 1, "the store is still there");
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
    let error = ctx.check_close().expect_err("something is there");
    errors::names(&error, &["Context::check_close", says]);
    let begin = Instant::now();
    let error = ctx.close().expect_err("something is there");
    assert!(begin.elapsed() < slower(10.0), "{:?}", begin.elapsed());
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
    errors::names(&error, &["Context::close", says]);
    errors::names(&seat.start().expect_err("it has not ended"), &["NVSHMEM cannot be started again"]);
    seat.meet();
}

#[test]
fn an_end_under_a_graph() {
    as_pes(&[1, 2], |seat| {
        let ctx = seat.start_as(seat.options().with_timeout(slower(3.0))).unwrap();
        if ctx.status() == Status::LimitedMpg {
            ctx.close().unwrap();
            return;
        }
        let stream = Stream::new(seat.device).unwrap();
        let target = ctx.alloc::<u32>(8).unwrap();
        let source = DeviceBuffer::<u32>::zeroed(&stream, 8).unwrap();
        let graph = stream.capture(|stream| ctx.on(stream).put(&target, &source, Pe(seat.pe))).unwrap();
        drop((target, source));
        is_refused(seat, ctx, "a graph");
        drop(graph);
    });
}

#[test]
fn an_end_under_a_buffer_that_is_shared() {
    as_pes(&[1, 2], |seat| {
        let ctx = seat.start_as(seat.options().with_timeout(slower(3.0))).unwrap();
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
                ctx.close().unwrap();
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
                let leaks = ctx.close().unwrap();
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
            ctx.close().unwrap();
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
            assert!(ctx.close().unwrap().is_empty());
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
            ctx.check_close().unwrap();
            drop(kept);
            let leaks = ctx.close().unwrap();
            assert_eq!((leaks.buffers, leaks.bytes), (1, 4000));
        }
    });
}

/// The library waits for all of the device where it makes a team, without a deadline: this crate waits before.
#[test]
fn a_split_beside_work_that_does_not_end() {
    as_pes(&[1, 2], |seat| {
        let limit = slower(2.0);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        if ctx.status() == Status::LimitedMpg {
            ctx.close().unwrap();
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
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        errors::names(&error, &["Team::split_strided", "other work on the device of PE 0"]);
        seat.meet();
        gate.open();
        // All have failed together, and all go on.
        drop(world.split_strided(gpucomm::nvshmem::TeamPe(0), 1, 1, &config).unwrap());
        println!("1 passed");
        std::process::exit(0);
    });
}

/// Another thread launches something while this PE has come and the other has not: the library would wait for that.
#[test]
fn a_split_beside_work_that_begins_while_pes_meet() {
    as_pes(&[2], |seat| {
        let limit = slower(3.0);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        let mut world = ctx.world().unwrap();
        let config = gpucomm::nvshmem::TeamConfig::default();
        let mut split = || world.split_strided(gpucomm::nvshmem::TeamPe(0), 1, 1, &config).map(drop);
        let gate = beside_a_launch(seat, limit, &mut split);
        gate.open();
        // All have failed together, and all go on.
        split().unwrap();
        drop(world);
        ctx.close().unwrap();
    });
}

/// The same of the end.
#[test]
fn an_end_beside_work_that_begins_while_pes_meet() {
    as_pes(&[2], |seat| {
        let limit = slower(3.0);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        let ctx = std::cell::Cell::new(Some(ctx));
        let gate = beside_a_launch(seat, limit, || ctx.take().expect("it ends once").close().map(drop));
        gate.open();
        println!("1 passed");
        std::process::exit(0);
    });
}

/// PE 1 comes to `act` late. Meanwhile another thread of PE 0 launches what does not end until the gate opens.
fn beside_a_launch(seat: &Seat, limit: std::time::Duration, act: impl FnOnce() -> gpucomm::Result<()>) -> Gate {
    let (stream, gate) = (Stream::new(seat.device).unwrap(), Gate::default());
    seat.meet();
    let result = std::thread::scope(|scope| {
        if seat.pe == 0 {
            scope.spawn(|| {
                std::thread::sleep(limit / 8);
                gate.hold(&stream).unwrap();
            });
        } else {
            std::thread::sleep(limit / 4);
        }
        act()
    });
    let error = result.expect_err("the device of PE 0 is busy");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    errors::names(&error, &["other work on the device of PE 0"]);
    seat.meet();
    gate
}

/// Another thread captures on the device of PE 0, where what the library does for the call is refused: all PEs fail together, and go on.
#[test]
fn calls_beside_a_capture_of_another_thread() {
    as_pes(&[1, 2], |seat| {
        let limit = slower(1.5);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        let mut world = ctx.world().unwrap();
        let config = gpucomm::nvshmem::TeamConfig::default();
        let (begun, begins) = std::sync::mpsc::channel();
        let (ends, end) = std::sync::mpsc::channel::<()>();
        let device = seat.device;
        let captures = move || {
            let stream = Stream::new(device).unwrap();
            stream.capture(|_| {
                begun.send(()).unwrap();
                // Until the other end is dropped.
                let _ = end.recv();
                Ok(())
            })
        };
        let capture = (seat.pe == 0).then(|| std::thread::spawn(move || captures().map(drop)));
        capture.iter().for_each(|_| begins.recv().unwrap());
        seat.meet();
        let refused = |what: &str, result: gpucomm::Result<()>| {
            let error = result.expect_err(what);
            assert!(matches!(error, Error::Timeout { .. }), "{what}: {error:?}");
            errors::names(&error, &[what, "a capture of another thread"]);
        };
        drop(ctx.alloc::<u32>(0).unwrap());
        refused("Context::alloc", ctx.alloc::<u32>(10).map(drop));
        if ctx.status() != Status::LimitedMpg {
            let split = world.split_strided(gpucomm::nvshmem::TeamPe(0), 1, 1, &config).map(drop);
            refused("Team::split_strided", split);
        }
        ctx.reclaim().unwrap();
        seat.meet();
        drop(ends);
        capture.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        drop(ctx.alloc::<u32>(10).unwrap());
        drop(world);
        ctx.close().unwrap();
    });
}

/// The child has the context of its parent, and not the right to give it up.
#[test]
fn a_forked_child_drops_the_context() {
    as_pes(&[2], |seat| {
        let ctx = seat.start().unwrap();
        if seat.pe == 0 {
            // SAFETY: the child drops what does nothing there, and ends without running anything else.
            let child = unsafe { libc::fork() };
            if child == 0 {
                drop(ctx);
                // SAFETY: it ends the child, whatever else is there.
                unsafe { libc::_exit(0) };
            }
            let mut status = -1;
            // SAFETY: the status is valid for a write.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child did not end well");
        }
        seat.meet();
        // Longer than it takes to hear that a PE has given up.
        std::thread::sleep(std::time::Duration::from_secs(1));
        drop(ctx.alloc::<u32>(10).unwrap());
        ctx.close().unwrap();
    });
}

/// The first drop waits for work that does not end; those after it do not wait for the same.
#[test]
fn drops_of_registered_memory_behind_work_that_does_not_end() {
    as_pes(&[1], |seat| {
        let limit = slower(1.0);
        gpucomm::set_default_timeout(limit);
        let ctx = seat.start().unwrap();
        if ctx.status() == Status::LimitedMpg {
            println!("1 passed");
            std::process::exit(0);
        }
        let stream = Stream::new(seat.device).unwrap();
        let (signals, target) = (ctx.alloc_signals(1).unwrap(), ctx.alloc::<u32>(4).unwrap());
        let registered: Vec<_> =
            (0..60).map(|_| ctx.register(gpucomm::PinnedBuffer::<u32>::zeroed(4).unwrap()).unwrap()).collect();
        ctx.on(&stream).signal_wait_until(signals.at(0), Comparison::Eq, 1, ()).unwrap();
        for source in &registered {
            ctx.on(&stream).put(&target, &**source, gpucomm::nvshmem::Pe(0)).unwrap();
        }
        let begin = Instant::now();
        drop(registered);
        assert!(begin.elapsed() < 3 * limit, "{:?}", begin.elapsed());
        // The stream goes with the process.
        println!("1 passed");
        std::process::exit(0);
    });
}

/// A stream waits for a signal that does not come: the end says so in time.
#[test]
fn an_end_under_a_wait_for_a_signal() {
    as_pes(&[1, 2], |seat| {
        let limit = slower(2.0);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        if ctx.status() == Status::LimitedMpg {
            // Streams wait for no signals where PEs share a device.
            ctx.close().unwrap();
            println!("1 passed");
            std::process::exit(0);
        }
        let stream = Stream::new(seat.device).unwrap();
        let signals = ctx.alloc_signals(1).unwrap();
        ctx.on(&stream).signal_wait_until(signals.at(0), Comparison::Eq, 1, ()).unwrap();
        if seat.pe == 0 {
            drop(signals)
        } else {
            std::mem::forget(signals)
        }
        let begin = Instant::now();
        let error = ctx.close().expect_err("a stream waits");
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
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        let stream = Stream::new(seat.device).unwrap();
        let signals = ctx.alloc_signals(1).unwrap();
        ctx.on(&stream).signal_wait_until(signals.at(0), Comparison::Eq, 1, ()).unwrap();
        let error = stream.synchronize_timeout(limit).expect_err("the signal does not come");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        drop(signals);
        let begin = Instant::now();
        let error = ctx.close().expect_err("a stream waits");
        assert!(begin.elapsed() < limit / 2, "{:?}", begin.elapsed());
        assert!(
            matches!(error, Error::Timeout { operation: "Context::close", timeout, .. } if timeout == limit),
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
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        let [first, second] = [(); 2].map(|()| Stream::new(seat.device).unwrap());
        let (from, to) = (ctx.alloc::<u32>(16).unwrap(), ctx.alloc::<u32>(16).unwrap());
        let (let_go, until) = channel::<()>();
        first.launch_host(move || _ = until.recv()).unwrap();
        let error = first.synchronize_timeout(limit * 3 / 4).expect_err("it is held up");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        second.launch_host(move || std::thread::sleep(limit * 3 / 8)).unwrap();
        ctx.on(&second).put(&to, &from, Pe(0)).unwrap();
        drop((from, to));
        // Before the end gives up by what was waited for.
        drop(let_go);
        ctx.close().unwrap();
    });
}

/// What has waited in vain for one of them waits for all.
#[test]
fn drops_of_registered_memory_that_is_used() {
    as_pes(&[1], |seat| {
        let limit = slower(1.5);
        gpucomm::set_default_timeout(limit);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        let stream = Stream::new(seat.device).unwrap();
        let to = ctx.alloc::<f32>(16).unwrap();
        let buffer = || DeviceBuffer::<f32>::zeroed(&stream, 16).unwrap();
        let registered = [(); 3].map(|()| ctx.register(buffer()).unwrap());
        stream.synchronize().unwrap();
        let (let_go, until) = channel::<()>();
        stream.launch_host(move || _ = until.recv()).unwrap();
        for from in &registered {
            ctx.on(&stream).put(&to, from, Pe(0)).unwrap();
        }
        let begin = Instant::now();
        drop(registered);
        assert!(begin.elapsed() < limit + limit / 2, "{:?}", begin.elapsed());
        drop(let_go);
        stream.synchronize().unwrap();
        drop(to);
        ctx.close().unwrap();
    });
}

/// The same without a watchdog. Until then, the others go on: memory is allocated and freed.
#[test]
fn calls_under_a_wait_for_a_signal() {
    as_pes(&[1, 2], |seat| {
        let limit = slower(0.5);
        let ctx = seat.start_as(seat.options().with_timeout(limit).with_watchdog(false)).unwrap();
        if ctx.status() == Status::LimitedMpg {
            // Streams wait for no signals where PEs share a device.
            ctx.close().unwrap();
            println!("1 passed");
            std::process::exit(0);
        }
        let stream = Stream::new(seat.device).unwrap();
        let signals = ctx.alloc_signals(1).unwrap();
        ctx.on(&stream).signal_wait_until(signals.at(0), Comparison::Eq, 1, ()).unwrap();
        let begin = Instant::now();
        drop(ctx.alloc::<u8>(100).unwrap());
        ctx.reclaim().unwrap();
        std::mem::forget(signals);
        let error = ctx.close().expect_err("a stream waits");
        assert!(begin.elapsed() < limit + slower(5.0), "{:?}", begin.elapsed());
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        errors::names(&error, &["Context::close", "work that uses symmetric memory"]);
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
        let mut target = ctx.register(PinnedBuffer::<u32>::zeroed(1000).unwrap()).unwrap();
        stream.synchronize().unwrap();
        let gate = Gate::default();
        gate.hold(&stream).unwrap();
        ctx.on(&stream).nonblocking(|scope| scope.get(&mut target, &source, Pe(seat.pe))).unwrap();
        std::mem::forget((target, source));
        let is_open = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(slower(0.2));
                is_open.store(true, Ordering::SeqCst);
                gate.open();
            });
            assert!(!ctx.close().unwrap().is_empty());
            assert!(is_open.load(Ordering::SeqCst), "it has ended before the stream was done");
        });
        let ctx = seat.start().unwrap();
        assert!(ctx.close().unwrap().is_empty());
    });
}

/// A store that deletes slowly, and answers all else at once: PEs meet beside many notes of teams that are to be deleted.
#[test]
fn notes_of_teams_that_are_deleted_slowly_hold_up_no_meeting() {
    const TEAMS: usize = 12;
    as_pes(&[3], |seat| {
        let limit = slower(8.0);
        let is_slow = Arc::new(AtomicBool::new(false));
        let slows = Arc::clone(&is_slow);
        let exchange = Hooked::join(seat, move |method, _| {
            if method == "delete" && slows.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_secs(1));
            }
            Fate::Answers
        });
        let ctx = seat.start_as(seat.options().with_exchange(&exchange).with_timeout(limit)).unwrap();
        if ctx.status() == Status::LimitedMpg {
            leave(ctx);
        }
        let (mut world, config) = (ctx.world().unwrap(), TeamConfig::default());
        let mut teams: Vec<_> = (0..TEAMS).map(|_| world.split_strided(TeamPe(0), 1, 2, &config).unwrap()).collect();
        // Late for each team, so that there is a note of each.
        for team in teams.iter_mut().flatten() {
            if team.pe() == TeamPe(0) {
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(team.split_strided(TeamPe(0), 1, 1, &config).unwrap());
        }
        ctx.reclaim().unwrap();
        is_slow.store(true, Ordering::SeqCst);
        drop(teams);
        let begin = Instant::now();
        for _ in 0..3 {
            ctx.reclaim().unwrap();
        }
        assert!(begin.elapsed() < limit, "{:?}", begin.elapsed());
        is_slow.store(false, Ordering::SeqCst);
        drop(world);
        ctx.close().unwrap();
    });
}

/// An end that has waited for work does not wait for its whole timeout again for a PE that does not come.
#[test]
fn an_end_behind_work_takes_its_time_once() {
    as_pes(&[2], |seat| {
        let limit = slower(3.0);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        let stream = Stream::new(seat.device).unwrap();
        if seat.pe == 0 {
            let mut memory = ctx.alloc::<u32>(10).unwrap();
            stream.launch_host(move || std::thread::sleep(limit.mul_f32(0.8))).unwrap();
            memory.fill(&stream, 1).unwrap();
            drop(memory);
            let begin = Instant::now();
            ctx.close().expect_err("PE 1 does not come");
            assert!(begin.elapsed() < limit.mul_f32(1.5), "{:?}", begin.elapsed());
            seat.meet();
            println!("1 passed");
            std::process::exit(0);
        }
        let _memory = ctx.alloc::<u32>(10).unwrap();
        seat.meet();
        leave(ctx)
    });
}
