//! PEs that never come, and those that are killed: the others are not left waiting within the library.

use gpucomm::nvshmem::WATCHDOG_EXIT_CODE;
use gpucomm::{Error, Stream};

use crate::support::{Fate, Hooked, Seat, as_pes_that_end, as_pes_that_end_with, report, slower};

/// What the watchdog of those says that wait in vain.
const SAYS: &str = "has waited within NVSHMEM for";

fn kill_itself() -> ! {
    let sent = std::process::Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
    panic!("this process still runs: {sent:?}");
}

fn limited(seat: &Seat) -> gpucomm::nvshmem::ContextOptions {
    seat.options().with_timeout(slower(3.0))
}

/// The last one does not start: those that wait for it in the start are ended, and say who is missing.
#[test]
fn one_that_does_not_start() {
    as_pes_that_end(
        &[2, 3, 4],
        |seat| {
            let id = gpucomm::nvshmem::ContextUniqueId::shared(&seat.exchange).unwrap();
            if seat.pe + 1 == seat.n_pes {
                // It stays, so that it counts as late and not as gone.
                std::thread::sleep(slower(12.0));
                return;
            }
            let started = seat.start_as(limited(seat).with_unique_id(&id, seat.pe, seat.n_pes));
            panic!("not all have come: {started:?}");
        },
        |ends| {
            let late = ends.len() - 1;
            for (pe, end) in ends.iter().enumerate().take(late) {
                assert_eq!(end.code, Some(WATCHDOG_EXIT_CODE), "{}", report(ends));
                assert!(end.text.contains(&format!("PE {pe} of {} {SAYS}", ends.len())), "{}", report(ends));
                assert!(end.text.contains(&format!("PE {late} has not come")), "{}", report(ends));
            }
            assert_eq!(ends[late].code, Some(0), "{}", report(ends));
        },
    );
}

/// One is killed while the others wait for it in a barrier on the host: they are ended, and say that it has died.
#[test]
fn one_that_is_killed_before_a_barrier() {
    as_pes_that_end(
        &[2, 3, 4],
        |seat| {
            let ctx = seat.start_as(limited(seat)).unwrap();
            ctx.barrier_all().unwrap();
            seat.meet();
            if seat.pe == 0 {
                kill_itself();
            }
            let ended = ctx.barrier_all();
            panic!("PE 0 has died: {ended:?}");
        },
        |ends| {
            assert_eq!(ends[0].code, None, "{}", report(ends));
            for end in &ends[1..] {
                assert_eq!(end.code, Some(WATCHDOG_EXIT_CODE), "{}", report(ends));
                assert!(end.text.contains(SAYS) && end.text.contains("Context::barrier_all"), "{}", report(ends));
            }
        },
    );
}

/// The same where they come together to allocate: the error says that it has died, where the library does not wait on the thread.
#[test]
fn one_that_is_killed_before_an_allocation() {
    as_pes_that_end(
        &[2, 3, 4],
        |seat| {
            let ctx = seat.start_as(limited(seat)).unwrap();
            seat.meet();
            if seat.pe == 0 {
                kill_itself();
            }
            let error = ctx.alloc::<u32>(10).expect_err("PE 0 has died");
            println!("{error}");
            // What the device waits for goes with the process.
            std::mem::forget(ctx);
            std::process::exit(7);
        },
        |ends| {
            for end in &ends[1..] {
                assert!(matches!(end.code, Some(7 | WATCHDOG_EXIT_CODE)), "{}", report(ends));
                assert!(end.text.contains("Context::alloc") && end.text.contains("0 has died"), "{}", report(ends));
            }
        },
    );
}

/// The same where they wait on a stream: it is an error at the deadline, and their processes can go on.
#[test]
fn one_that_is_killed_before_a_barrier_on_a_stream() {
    as_pes_that_end(
        &[2, 3, 4],
        |seat| {
            let ctx = seat.start_as(limited(seat)).unwrap();
            let stream = Stream::new(seat.device).unwrap();
            ctx.on(&stream).barrier_all().unwrap();
            stream.synchronize().unwrap();
            seat.meet();
            if seat.pe == 0 {
                kill_itself();
            }
            // Where PEs share a device, the library waits for the others on the thread: the watchdog's matter.
            ctx.on(&stream).barrier_all().unwrap();
            let error = stream.synchronize_timeout(slower(2.0)).expect_err("PE 0 has died");
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            let lost = ctx.reclaim().expect_err("PE 0 has died");
            assert!(matches!(lost, Error::Departed { .. } | Error::Timeout { .. } | Error::Aborted { .. }), "{lost:?}");
            println!("went on");
            // What the device waits for goes with the process.
            std::mem::forget((ctx, stream));
            std::process::exit(7);
        },
        |ends| {
            assert_eq!(ends[0].code, None, "{}", report(ends));
            for end in &ends[1..] {
                let told = end.code == Some(7) && end.text.contains("went on");
                let watched = end.code == Some(WATCHDOG_EXIT_CODE) && end.text.contains(SAYS);
                assert!(told || watched, "{}", report(ends));
            }
        },
    );
}

/// Who wants no watchdog waits for as long as it takes: the process is not ended.
#[test]
fn without_a_watchdog() {
    const ITSELF: i32 = 7;
    as_pes_that_end(
        &[2],
        |seat| {
            let limit = slower(1.5);
            let ctx = seat.start_as(seat.options().with_timeout(limit).with_watchdog(false)).unwrap();
            seat.meet();
            if seat.pe == 0 {
                // It comes, much later than a watchdog would have waited.
                std::thread::sleep(limit + slower(1.5));
                ctx.barrier_all().unwrap();
            } else {
                let begin = std::time::Instant::now();
                ctx.barrier_all().unwrap();
                assert!(begin.elapsed() > limit, "{:?}", begin.elapsed());
            }
            assert!(ctx.close().unwrap().is_empty());
            std::process::exit(ITSELF);
        },
        |ends| {
            for end in ends {
                assert!(end.code == Some(ITSELF) && !end.text.contains(SAYS), "{}", report(ends));
            }
        },
    );
}

/// In the environment of a PE: what its store does.
const STORE: &str = "GPUCOMM_TEST_STORE";

/// The store blocks for ever, or panics: the process ends all the same when its time is up.
#[test]
fn a_store_that_blocks_or_panics_does_not_hold_up_the_end() {
    for what in ["blocks", "panics"] {
        as_pes_that_end_with(
            &[2],
            &[(STORE, what)],
            |seat| {
                let panics = std::env::var(STORE).expect("what the store does") == "panics";
                let is_on = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
                let hook = std::sync::Arc::clone(&is_on);
                let exchange = Hooked::join(seat, move |_, _| {
                    if hook.load(std::sync::atomic::Ordering::SeqCst) {
                        assert!(!panics, "on purpose");
                        std::thread::sleep(std::time::Duration::from_secs(600));
                    }
                    Fate::Answers
                });
                let ctx = seat.start_as(limited(seat).with_exchange(&exchange)).unwrap();
                ctx.barrier_all().unwrap();
                seat.meet();
                if seat.pe == 0 {
                    let _ = seat.exchange.get_from(1, "never");
                    std::process::exit(0);
                }
                is_on.store(true, std::sync::atomic::Ordering::SeqCst);
                panic!("PE 0 does not come: {:?}", ctx.barrier_all());
            },
            |ends| {
                assert_eq!(ends[1].code, Some(WATCHDOG_EXIT_CODE), "{}", report(ends));
                assert!(ends[1].text.contains(SAYS), "{}", report(ends));
                assert!(ends[1].text.contains("Who is missing is not known"), "{}", report(ends));
            },
        );
    }
}
