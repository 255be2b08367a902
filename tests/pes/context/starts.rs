//! Starting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, Threads};
use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe, Status};
use gpucomm::{Backend, Error, ReduceOp, Stream};

use crate::support::{SIZES, Seat, as_pes, as_pes_with, errors, slower, with_context};

#[test]
fn it_says_what_it_is() {
    with_context(|here| {
        let (ctx, seat) = (here.ctx, here.seat);
        assert_eq!((ctx.pe(), ctx.n_pes()), (Pe(seat.pe), seat.n_pes));
        assert_eq!((ctx.device(), ctx.timeout()), (seat.device, seat.limit()));
        let devices = seat.gather(&format!("{:?}", seat.device.uuid().unwrap()));
        let shared = (0..devices.len()).any(|pe| devices[..pe].contains(&devices[pe]));
        let limited = matches!(ctx.status(), Status::LimitedMpg | Status::FullMpg);
        assert_eq!(limited, shared, "{:?}", ctx.status());
        // All are on this host.
        assert!((0..seat.n_pes).all(|pe| ctx.is_near(Pe(pe)).unwrap()));
        let below = format!("a PE below {}", seat.n_pes);
        for none in [seat.n_pes, seat.n_pes + 7, usize::MAX] {
            errors::argument(ctx.is_near(Pe(none)), "Context::is_near", &below, &none.to_string());
        }
        let text = format!("{ctx:?}");
        assert!(text.contains(&format!("pe: {}", seat.pe)), "{text}");
    });
}

/// The versions are there without a context, and without PEs.
#[test]
fn versions_without_a_context() {
    use gpucomm::version::{built_nvshmem, check_nvshmem, running_nvshmem};
    let running = running_nvshmem().unwrap();
    assert!(running.major >= 3, "{running}");
    check_nvshmem().unwrap();
    if gpucomm::backend() == Backend::Nvidia {
        assert!(running >= built_nvshmem().version);
    }
}

#[test]
fn by_a_unique_id_that_comes_by_other_means() {
    as_pes(&SIZES, |seat| {
        let made = if seat.pe == 0 { ContextUniqueId::new().unwrap().as_bytes().to_vec() } else { Vec::new() };
        let bytes = seat.exchange.broadcast(&made, 0).unwrap();
        let id = ContextUniqueId::from_bytes(bytes.try_into().unwrap());
        let options = ContextOptions::new()
            .with_device(seat.device)
            .with_timeout(seat.limit())
            .with_unique_id(&id, seat.pe, seat.n_pes);
        let ctx = seat.start_as(options).unwrap();
        assert_eq!((ctx.pe(), ctx.n_pes()), (Pe(seat.pe), seat.n_pes));
        assert!(ctx.close().unwrap().is_empty());
    });
}

/// The device that is current is that of the PE, where none is named.
#[test]
fn on_the_current_device() {
    as_pes(&SIZES, |seat| {
        let id = ContextUniqueId::shared(&seat.exchange).unwrap();
        let ctx = {
            let _current = seat.device.set_current().unwrap();
            seat.start_as(ContextOptions::new().with_unique_id(&id, seat.pe, seat.n_pes)).unwrap()
        };
        assert_eq!(ctx.device(), seat.device);
        assert!(ctx.close().unwrap().is_empty());
    });
}

#[test]
fn what_cannot_start_is_an_error_and_another_try_works() {
    as_pes(&[1, 2], |seat| {
        const INIT: &str = "Context::init";
        let no_way = seat.start_as(ContextOptions::new().with_device(seat.device));
        errors::argument(no_way, INIT, "a way for PEs to find each other", "none");
        let id = ContextUniqueId::shared(&seat.exchange).unwrap();
        for (pe, n_pes) in [(2, 2), (0, 0), (usize::MAX, 3), (1, usize::MAX)] {
            let options = ContextOptions::new().with_device(seat.device).with_unique_id(&id, pe, n_pes);
            errors::argument(seat.start_as(options), INIT, "a PE below the number of PEs", &pe.to_string());
        }
        usable(seat);
    });
}

/// Nobody has started the library: there is nothing to attach to.
#[test]
fn attach_where_nobody_has_started_it() {
    as_pes(&[1], |seat| {
        let error =
            seat.start_as(ContextOptions::new().with_device(seat.device).with_attached()).expect_err("nothing runs");
        assert!(matches!(error, Error::Nvshmem { .. }), "{error:?}");
        errors::names(&error, &["nvshmemx_init_status", "it has not started"]);
    });
}

#[test]
fn a_second_context_is_an_error() {
    as_pes(&SIZES, |seat| {
        let first = seat.start().unwrap();
        let id = ContextUniqueId::from_bytes([0; ContextUniqueId::BYTES]);
        for options in [
            ContextOptions::new().with_device(seat.device).with_unique_id(&id, 0, 1),
            ContextOptions::new().with_device(seat.device).with_attached(),
        ] {
            let error = seat.start_as(options).expect_err("a second context");
            assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
            errors::names(&error, &["there is a context in this process already"]);
        }
        // Nor is an id made beside it, for which the library would load its bootstrap anew.
        let error = ContextUniqueId::new().expect_err("beside a context");
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
        errors::names(&error, &["nvshmem::ContextUniqueId::new", "before it starts"]);
        // The first one has not felt it.
        let buffer = first.alloc::<u8>(100).unwrap();
        drop(buffer);
        assert!(first.close().unwrap().is_empty());
        ContextUniqueId::new().unwrap();
    });
}

/// Two threads that take themselves for PEs: neither waits for the other inside the library.
#[test]
fn second_pe_of_a_process_is_an_error_of_both() {
    as_pes(&[1], |seat| {
        let (place, device) = (Threads::new(2), seat.device);
        for round in 0..3 {
            let start = |rank| {
                let exchange = Exchange::join(place.store(rank)?)?;
                // SAFETY: both threads run this program.
                unsafe { Context::init(&ContextOptions::new().with_device(device).with_exchange(&exchange)) }
            };
            let since = Instant::now();
            let errors = thread::scope(|scope| {
                [0, 1]
                    .map(|rank| scope.spawn(move || start(rank)))
                    .map(|one| one.join().unwrap().expect_err("both fail"))
            });
            assert!(since.elapsed() < slower(2.0), "{round}: {errors:?}");
            let refused = errors.iter().filter(|error| matches!(error, Error::InvalidUsage { .. })).count();
            let told = errors.iter().filter(|error| matches!(error, Error::Exchange { .. })).count();
            assert_eq!((refused, told), (1, 1), "{round}: {errors:?}");
            errors
                .iter()
                .for_each(|error| errors::names(error, &["one a process", "run each PE as a process of its own"]));
        }
        // The library was not called.
        assert!(seat.start().unwrap().close().unwrap().is_empty());
    });
}

/// None is made either while the library is inside its start, which another thread has called, nor after a context that has no end.
#[test]
fn no_id_is_made_during_a_start() {
    as_pes(&[1, 2], |seat| {
        let started = AtomicBool::new(false);
        let (ctx, refused) = std::thread::scope(|scope| {
            let begun = scope.spawn(|| {
                if seat.pe == 1 {
                    // PE 0 waits within the library meanwhile.
                    std::thread::sleep(Duration::from_millis(300));
                }
                let ctx = seat.start().unwrap();
                started.store(true, Ordering::Release);
                ctx
            });
            let mut refused = false;
            while seat.pe == 0 && !started.load(Ordering::Acquire) {
                match ContextUniqueId::new() {
                    // It has not begun.
                    Ok(_) => assert!(!refused, "an id was made during the start"),
                    Err(error) => {
                        errors::names(&error, &["nvshmem::ContextUniqueId::new", "before it starts"]);
                        refused = true;
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            (begun.join().unwrap(), refused)
        });
        // PE 0 has waited for the other one.
        assert!(refused || seat.pe > 0 || seat.n_pes == 1, "it was never asked during the start");
        seat.meet();
        drop(ctx);
        errors::names(&ContextUniqueId::new().expect_err("no end"), &["left without an end"]);
        seat.meet();
    });
}

/// It goes from thread to thread.
#[test]
fn started_on_one_thread_and_ended_on_another() {
    as_pes(&SIZES, |seat| {
        let ctx = std::thread::scope(|scope| scope.spawn(|| seat.start().unwrap()).join().unwrap());
        let ctx = std::thread::scope(|scope| {
            let used = scope.spawn(move || {
                drop(ctx.alloc::<u32>(77).unwrap());
                ctx.reclaim().unwrap();
                ctx
            });
            used.join().unwrap()
        });
        assert!(ctx.close().unwrap().is_empty());
    });
}

fn usable(seat: &Seat) {
    let ctx = seat.start().unwrap();
    ctx.reclaim().unwrap();
    assert!(ctx.close().unwrap().is_empty());
}

/// The library closes its plug-in where an id cannot be made, and would use it for the next one.
#[test]
fn after_an_id_that_could_not_be_made_there_is_nothing() {
    if gpucomm::backend() != gpucomm::Backend::Emulator {
        return;
    }
    crate::support::as_pes_with(&[1], &[("NVSHMEM_BOOTSTRAP_UID_SESSION_ID", "nowhere")], |seat| {
        let error = ContextUniqueId::new().expect_err("no address");
        assert!(matches!(error, Error::Nvshmem { .. }), "{error:?}");
        for error in
            [ContextUniqueId::new().map(drop).expect_err("another"), seat.start().map(drop).expect_err("a start")]
        {
            assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
            errors::names(&error, &["could not be made"]);
        }
    });
}

/// The other PEs learn nothing of a start that cannot be, and wait for the next one.
#[test]
fn a_start_within_a_capture_is_refused_before_the_others_learn_of_it() {
    as_pes(&[2], |seat| {
        if seat.pe == 0 {
            let stream = Stream::new(seat.device).unwrap();
            let error = stream.capture(|_| seat.start().map(drop)).map(drop).expect_err("a stream is captured");
            errors::names(&error, &["end the capture before"]);
        }
        seat.start().unwrap().close().unwrap();
    });
}

/// With such values the library crashes, or never ends.
#[test]
fn variables_that_crash_the_library_are_refused() {
    let cases = [
        ("NVSHMEM_SYMMETRIC_SIZE", "much", "such as 64M"),
        ("NVSHMEM_REDUCE_SCRATCH_SIZE", "-1", "such as 64M"),
        ("NVSHMEM_CUMEM_GRANULARITY", "6M", "a power of two"),
        ("NVSHMEM_MAX_PEER_STREAMS", "0", "from 1 to"),
        ("NVSHMEM_BARRIER_DISSEM_KVAL", "1", "from 2 to"),
        // The library keeps the lower half of the bits, which is 0.
        ("NVSHMEM_MAX_PEER_STREAMS", "4294967296", "from 1 to"),
        ("NVSHMEM_BCAST_TREE_KVAL", "4294967296", "from 2 to"),
        ("NVSHMEM_BARRIER_TG_DISSEM_KVAL", "1025", "from 2 to 1024"),
        ("NVSHMEM_FCOLLECT_NTHREADS", "0", "from 1 to 1024"),
        ("NVSHMEM_REDUCE_NTHREADS", "1025", "from 1 to 1024"),
        ("NVSHMEM_REDUCESCATTER_NTHREADS", "0", "from 1 to 1024"),
        ("NVSHMEM_REDUCE_SCRATCH_SIZE", "15", "at least 16 bytes"),
    ];
    for (name, value, _) in cases {
        as_pes_with(&[1], &[(name, value)], |seat| {
            let is_set = |name: &str, value: &str| std::env::var(name).is_ok_and(|text| text == value);
            let case = cases.into_iter().find(|(name, value, _)| is_set(name, value));
            let (name, value, expected) = case.expect("one of the cases");
            // The library would read it for an id already, and keep it.
            let id = ContextUniqueId::new().map(drop);
            let shared = ContextUniqueId::shared(&seat.exchange).map(drop);
            for result in [id, shared, seat.start().map(drop)] {
                let error = result.expect_err("it is refused");
                assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                errors::names(&error, &[name, value, expected]);
            }
            // SAFETY: no other thread of this process reads or writes its environment now.
            unsafe { std::env::remove_var(name) };
            usable(seat);
            // For the next round of the loop, which this process runs as well.
            // SAFETY: as above.
            unsafe { std::env::set_var(name, value) };
        });
    }
}

/// The library reads its variables once. Another value that comes later changes nothing.
#[test]
fn variables_that_are_set_later_do_not_count() {
    as_pes(&[2], |seat| {
        let ctx = seat.start().unwrap();
        if ctx.status() != Status::LimitedMpg {
            // SAFETY: no other thread of this process reads or writes its environment now.
            unsafe { std::env::set_var("NVSHMEM_REDUCE_SCRATCH_SIZE", "64") };
            let stream = Stream::new(seat.device).unwrap();
            let source = ctx.alloc::<u16>(128).unwrap();
            let mut dest = ctx.alloc::<u16>(64).unwrap();
            // NCCL has no such elements, so the library needs its own room.
            ctx.world().unwrap().on(&stream).reduce_scatter(&mut dest, &source, ReduceOp::Sum).unwrap();
            assert_eq!(dest.to_vec(&stream).unwrap(), [0; 64]);
        }
        ctx.close().unwrap();
    });
}
