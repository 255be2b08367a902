//! A PE that has died, of which the exchange knows: nobody waits for it until the timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpucomm::cuda::StreamOptions;
use gpucomm::nvshmem::{Comparison, Context, ContextUniqueId, Pe, Status, TeamConfig, TeamPe, WATCHDOG_EXIT_CODE};
use gpucomm::{DeviceBuffer, Error, PinnedBuffer, ReduceOp, Result, Stream};

use crate::support::{End, Fate, Hooked, Seat, as_pes_that_end, as_pes_that_end_with, report, slower};

/// Long enough that a wait of so long fails the test.
const TIMEOUT: f64 = 80.0;

/// From the death on, all waits for the dead PE are over within so many seconds.
const SOON: f64 = 10.0;

/// In the environment of a PE: which call it makes.
const CALL: &str = "GPUCOMM_TEST_CALL";

/// A PE that has returned from its call.
const RETURNED: i32 = 7;

/// Ends this process where its call is not over soon.
fn hurry() {
    std::thread::spawn(|| {
        std::thread::sleep(slower(SOON));
        println!("too late");
        std::process::exit(1);
    });
}

/// Makes the call of this name, for which PE 0 has died.
fn call(name: &str, seat: &Seat, ctx: Context) -> Result<()> {
    let config = TeamConfig::default();
    match name {
        "Context::barrier_all" => ctx.barrier_all(),
        "Context::sync_all" => ctx.sync_all(),
        "Team::barrier" => ctx.world()?.barrier(),
        "Team::split_strided" => ctx.world()?.split_strided(TeamPe(0), 1, seat.n_pes, &config).map(drop),
        "Team::split_2d" => ctx.world()?.split_2d(1, &config, &config).map(drop),
        "Context::alloc" => ctx.alloc::<u32>(10).map(drop),
        "Context::reclaim" => ctx.reclaim(),
        "Context::close" => ctx.close().map(drop),
        other => panic!("no call is named {other}"),
    }
}

/// PE 0 dies, and the others make the call that the environment names.
fn dies_before_a_call(seat: &Seat) -> ! {
    let name = std::env::var(CALL).expect("the name of a call");
    let ctx = seat.start_as(seat.options().with_timeout(slower(TIMEOUT))).unwrap();
    if ctx.status() == Status::LimitedMpg && name.starts_with("Team") {
        std::process::exit(WATCHDOG_EXIT_CODE);
    }
    seat.meet();
    if seat.pe == 0 {
        std::process::abort();
    }
    hurry();
    println!("{}", call(&name, seat, ctx).expect_err("PE 0 has died"));
    // What the device waits for goes with the process.
    std::process::exit(RETURNED)
}

/// The others were told so soon, in an error or by their watchdog.
fn were_told(name: &str, ends: &[End]) {
    for end in &ends[1..] {
        assert!(matches!(end.code, Some(RETURNED | WATCHDOG_EXIT_CODE)), "{name}: {}", report(ends));
        let says = end.text.contains(name) && end.text.contains("0 has died");
        assert!(says || end.text.is_empty(), "{name}: {}", report(ends));
        assert!(!end.text.contains("too late"), "{name}: {}", report(ends));
    }
}

#[test]
fn calls_in_which_the_library_waits_end_at_once() {
    for name in ["Context::barrier_all", "Context::sync_all", "Team::barrier"] {
        as_pes_that_end_with(&[3], &[(CALL, name)], |seat| dies_before_a_call(seat), |ends| were_told(name, ends));
    }
}

#[test]
fn meetings_end_at_once() {
    for name in ["Context::alloc", "Context::reclaim", "Context::close", "Team::split_strided", "Team::split_2d"] {
        as_pes_that_end_with(&[3], &[(CALL, name)], |seat| dies_before_a_call(seat), |ends| were_told(name, ends));
    }
}

/// A collective that the host waits for is an error, and so is the end after it, which the work of that collective does not hold up.
#[test]
fn a_collective_ends_at_once_and_so_does_the_end_after_it() {
    as_pes_that_end(
        &[2, 3],
        |seat| {
            let ctx = seat.start_as(seat.options().with_timeout(slower(TIMEOUT))).unwrap();
            if ctx.status() == Status::LimitedMpg {
                std::process::exit(RETURNED);
            }
            let stream = Stream::new(seat.device).unwrap();
            let mut source = ctx.alloc::<u32>(7).unwrap();
            let mut dest = ctx.alloc::<u32>(7).unwrap();
            source.fill(&stream, 1).unwrap();
            stream.synchronize().unwrap();
            let mut world = ctx.world().unwrap();
            // The first one has the library connect the members, for which a call waits within the library.
            world.reduce(&mut dest, &source, ReduceOp::Sum).unwrap();
            seat.meet();
            if seat.pe == 0 {
                std::process::abort();
            }
            hurry();
            let error = world.reduce(&mut dest, &source, ReduceOp::Sum).expect_err("PE 0 has died");
            assert!(matches!(error, Error::Departed { operation: "Team::reduce", rank: 0, .. }), "{error:?}");
            drop((source, dest, world));
            let error = ctx.close().expect_err("PE 0 has died");
            assert!(matches!(error, Error::Departed { operation: "Context::close", rank: 0, .. }), "{error:?}");
            std::process::exit(RETURNED);
        },
        |ends| {
            for end in &ends[1..] {
                assert_eq!(end.code, Some(RETURNED), "{}", report(ends));
            }
        },
    );
}

/// The last one dies while the others are within the start. (The first one has made the id, without which a start fails by itself.)
#[test]
fn a_start_ends_at_once() {
    as_pes_that_end(
        &[2, 3],
        |seat| {
            let id = ContextUniqueId::shared(&seat.exchange).unwrap();
            seat.meet();
            if seat.pe + 1 == seat.n_pes {
                std::process::abort();
            }
            hurry();
            let options = seat.options().with_timeout(slower(TIMEOUT)).with_unique_id(&id, seat.pe, seat.n_pes);
            println!("{}", seat.start_as(options).expect_err("the last one has died"));
            std::process::exit(RETURNED);
        },
        |ends| {
            let last = ends.len() - 1;
            for end in &ends[..last] {
                assert_eq!(end.code, Some(WATCHDOG_EXIT_CODE), "{}", report(ends));
                assert!(end.text.contains(&format!("PE {last} has died")), "{}", report(ends));
            }
        },
    );
}

/// Those of a team go on whose members live, also where they wait for each other for longer than a death takes to be known.
#[test]
fn a_team_without_the_dead_one_goes_on() {
    as_pes_that_end(
        &[3, 4],
        |seat| {
            let ctx = seat.start_as(seat.options().with_timeout(slower(TIMEOUT))).unwrap();
            if ctx.status() == Status::LimitedMpg {
                std::process::exit(RETURNED);
            }
            let stream = Stream::new(seat.device).unwrap();
            let mut source = ctx.alloc::<u32>(7).unwrap();
            let mut dest = ctx.alloc::<u32>(7).unwrap();
            source.fill(&stream, 1).unwrap();
            stream.synchronize().unwrap();
            let mut world = ctx.world().unwrap();
            let team = world.split_strided(TeamPe(1), 1, seat.n_pes - 1, &TeamConfig::default()).unwrap();
            seat.meet();
            let Some(mut team) = team else { std::process::abort() };
            for late in 0..2 {
                // Longer than the watchdog takes to end a process for a PE that has died.
                if team.pe() == TeamPe(late) {
                    std::thread::sleep(slower(2.0));
                }
                team.barrier().unwrap();
                if team.pe() == TeamPe(late) {
                    std::thread::sleep(slower(2.0));
                }
                team.reduce(&mut dest, &source, ReduceOp::Sum).unwrap();
                assert_eq!(dest.to_vec(&stream).unwrap(), [seat.n_pes as u32 - 1; 7]);
            }
            std::process::exit(RETURNED);
        },
        |ends| {
            for end in &ends[1..] {
                assert_eq!(end.code, Some(RETURNED), "{}", report(ends));
            }
        },
    );
}

/// Who has come, and then ends, is no reason for the others to fail.
#[test]
fn one_that_ends_after_it_has_come() {
    as_pes_that_end(
        &[2, 4],
        |seat| {
            let ctx = seat.start_as(seat.options().with_timeout(slower(TIMEOUT))).unwrap();
            ctx.barrier_all().unwrap();
            if seat.pe == 0 {
                // The others are at work on the host.
                std::process::exit(RETURNED);
            }
            std::thread::sleep(slower(0.5));
            std::process::exit(RETURNED);
        },
        |ends| {
            for end in ends {
                assert_eq!(end.code, Some(RETURNED), "{}", report(ends));
            }
        },
    );
}

/// A stream waits for a signal of a dead PE. Who waits for that stream on the host is told.
#[test]
fn host_calls_behind_a_stream_that_waits_for_a_dead_one() {
    as_pes_that_end(
        &[2],
        |seat| {
            let ctx = seat.start_as(seat.options().with_timeout(slower(TIMEOUT))).unwrap();
            if ctx.status() == Status::LimitedMpg {
                // Streams wait for no signals where PEs share a device.
                std::process::exit(RETURNED);
            }
            let options = StreamOptions::new().with_non_blocking(false).with_priority(0);
            let stream = Stream::new_with(seat.device, &options).unwrap();
            let (mut to, signals) = (ctx.alloc::<u32>(8).unwrap(), ctx.alloc_signals(2).unwrap());
            let pinned = PinnedBuffer::<u32>::zeroed(8).unwrap();
            seat.meet();
            if seat.pe == 1 {
                std::process::abort();
            }
            ctx.on(&stream).signal_wait_until(signals.at(0), Comparison::Eq, 1, &mut to).unwrap();
            hurry();
            let put = ctx.put(&to, &pinned, Pe(0));
            assert!(matches!(put, Err(Error::Departed { rank: 1, .. })), "{put:?}");
            let fetched = ctx.signal_fetch(signals.at(1));
            assert!(matches!(fetched, Err(Error::Departed { rank: 1, .. })), "{fetched:?}");
            std::process::exit(RETURNED);
        },
        |ends| assert_eq!(ends[0].code, Some(RETURNED), "{}", report(ends)),
    );
}

/// One gives up on a meeting soon, as its store says that another one has died; who comes only then does not go on alone, though its own timeout is far.
/// (On the emulator, that a PE has come does not outlive it. So nobody dies here.)
#[test]
fn nobody_goes_on_alone_when_one_has_given_up_soon() {
    as_pes_that_end(
        &[3],
        |seat| {
            let (pe, is_on) = (seat.pe, Arc::new(AtomicBool::new(false)));
            let lies = Arc::clone(&is_on);
            let exchange = Hooked::join(seat, move |method, _| match method {
                "ended" if lies.load(Ordering::SeqCst) => Fate::Ended,
                _ => Fate::Answers,
            });
            let ctx = seat.start_as(seat.options().with_exchange(&exchange).with_timeout(slower(TIMEOUT))).unwrap();
            if ctx.status() == Status::LimitedMpg {
                // The library waits on the thread.
                std::process::exit(RETURNED);
            }
            is_on.store(pe == 0, Ordering::SeqCst);
            if pe == 1 {
                seat.exchange.get_from(0, "given up").unwrap();
            }
            let error = ctx.alloc::<u32>(10).map(drop).expect_err("one gives up");
            if pe == 0 {
                assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error:?}");
                seat.exchange.set("given up", b"").unwrap();
            } else {
                assert!(matches!(error, Error::Departed { rank: 0, .. }), "{error:?}");
                assert!(error.to_string().contains("has given up Context::alloc"), "{error}");
            }
            seat.meet();
            std::process::exit(RETURNED);
        },
        |ends| {
            for end in ends {
                assert_eq!(end.code, Some(RETURNED), "{}", report(ends));
            }
        },
    );
}

/// One loses its context, and lives: nobody waits for it.
#[test]
fn one_that_gives_up_its_context() {
    as_pes_that_end(
        &[3],
        |seat| {
            let ctx = seat.start_as(seat.options().with_timeout(slower(TIMEOUT))).unwrap();
            seat.meet();
            if seat.pe == 0 {
                drop(ctx);
                for pe in 1..seat.n_pes {
                    let _ = seat.exchange.get_from(pe, "never");
                }
                std::process::exit(RETURNED);
            }
            hurry();
            println!("{}", ctx.alloc::<u32>(10).map(drop).expect_err("PE 0 does not come"));
            std::process::exit(RETURNED);
        },
        |ends| {
            for end in &ends[1..] {
                assert!(matches!(end.code, Some(RETURNED | WATCHDOG_EXIT_CODE)), "{}", report(ends));
                assert!(end.text.contains("0 has given up its context"), "{}", report(ends));
            }
        },
    );
}

/// The start of one fails when the others are within the library.
#[test]
fn one_whose_start_fails() {
    as_pes_that_end(
        &[2, 3],
        |seat| {
            let options = seat.options().with_timeout(slower(TIMEOUT));
            if seat.pe == 0 {
                let stream = Stream::new(seat.device).unwrap();
                let (captures, captured) = std::sync::mpsc::channel();
                let (ends, ended) = std::sync::mpsc::channel::<()>();
                std::thread::scope(|scope| {
                    let hold = move |_: &Stream| {
                        captures.send(()).unwrap();
                        let _ = ended.recv();
                        Ok(())
                    };
                    scope.spawn(move || drop(stream.capture(hold).unwrap()));
                    captured.recv().unwrap();
                    let started = seat.start_as(options.with_timeout(slower(1.0))).map(drop);
                    println!("{:?}", started.expect_err("another thread captures"));
                    drop(ends);
                });
                for pe in 1..seat.n_pes {
                    let _ = seat.exchange.get_from(pe, "never");
                }
                std::process::exit(RETURNED);
            }
            hurry();
            println!("{}", seat.start_as(options).map(drop).expect_err("PE 0 does not start"));
            std::process::exit(RETURNED);
        },
        |ends| {
            assert_eq!(ends[0].code, Some(RETURNED), "{}", report(ends));
            for end in &ends[1..] {
                assert_eq!(end.code, Some(WATCHDOG_EXIT_CODE), "{}", report(ends));
                assert!(end.text.contains("PE 0 has given up its context"), "{}", report(ends));
            }
        },
    );
}

/// A PE without a watchdog, whose exchange nobody else keeps: the others do not take it for one that has ended.
#[test]
fn one_without_a_watchdog_lives() {
    as_pes_that_end(
        &[2, 3],
        |seat| {
            let exchange = Hooked::join(seat, |_, _| Fate::Answers);
            let options =
                seat.options().with_exchange(&exchange).with_timeout(slower(TIMEOUT)).with_watchdog(seat.pe > 0);
            let ctx = seat.start_as(options).unwrap();
            drop(exchange);
            if seat.pe == 0 {
                // Longer than the others take to give up on one that has ended.
                std::thread::sleep(slower(3.0));
            }
            ctx.barrier_all().unwrap();
            assert!(ctx.close().unwrap().is_empty());
            std::process::exit(RETURNED);
        },
        |ends| {
            for end in ends {
                assert_eq!(end.code, Some(RETURNED), "{}", report(ends));
            }
        },
    );
}

/// One is stopped, as by a debugger, for longer than the others wait for it. They say that it has not come. When it goes on, it is told that they have given up.
#[test]
fn one_that_is_stopped() {
    as_pes_that_end(
        &[3],
        |seat| {
            let ctx = seat.start_as(seat.options().with_timeout(slower(1.0))).unwrap();
            if ctx.status() == Status::LimitedMpg {
                std::process::exit(RETURNED);
            }
            let ids = seat.gather(&std::process::id().to_string());
            ctx.reclaim().unwrap();
            seat.meet();
            let signal = |number: i32, id: &str| {
                // SAFETY: a process of this test, which lives.
                assert_eq!(unsafe { libc::kill(id.parse().unwrap(), number) }, 0);
            };
            if seat.pe == 1 {
                signal(libc::SIGSTOP, &ids[1]);
            }
            hurry();
            println!("{}", ctx.alloc::<u32>(4).map(drop).expect_err("PE 1 does not come in time"));
            // Nobody ends before all were told.
            let exchange = seat.exchange.with_timeout(slower(SOON));
            exchange.set(&format!("told/{}", seat.pe), b"").unwrap();
            if seat.pe == 0 {
                exchange.get_from(2, "told/2").unwrap();
                signal(libc::SIGCONT, &ids[1]);
            }
            for pe in 0..3 {
                exchange.get_from(pe, &format!("told/{pe}")).unwrap();
            }
            std::process::exit(RETURNED);
        },
        |ends| {
            for (pe, end) in ends.iter().enumerate() {
                assert_eq!(end.code, Some(RETURNED), "{}", report(ends));
                let says = if pe == 1 { "given up" } else { "PE 1 has not come" };
                let is_told = end.text.contains("Context::alloc: ") && end.text.contains(says);
                assert!(is_told || end.text.is_empty(), "{}", report(ends));
            }
        },
    );
}

/// In the environment of the emulator: one dies at this of its operations.
const FAULTS: &str = "GPUCOMM_EMULATOR_FAULTS";

/// Wherever one dies, the other one is told so, and has no wrong sum.
#[test]
fn one_that_dies_at_each_of_its_operations() {
    if gpucomm::backend() != gpucomm::Backend::Emulator {
        return;
    }
    // A reduction on a stream, one that the host waits for, a split and a free.
    for operation in [10, 11, 13, 15] {
        as_pes_that_end_with(
            &[2],
            &[(FAULTS, &format!("die=rank1@op{operation}"))],
            |seat| {
                let ctx = seat.start_as(seat.options().with_timeout(slower(TIMEOUT))).unwrap();
                hurry();
                // Who waits for a stream is not told of deaths.
                gpucomm::set_default_timeout(slower(1.0));
                let stream = Stream::new(seat.device).unwrap();
                let round = |number: u32| -> Result<()> {
                    let mut source = ctx.alloc::<u32>(50)?;
                    source.fill(&stream, seat.pe as u32 + number)?;
                    ctx.on(&stream).barrier_all()?;
                    let (mut world, mut dest) = (ctx.world()?, ctx.alloc::<u32>(50)?);
                    world.on(&stream).reduce(&mut dest, &source, ReduceOp::Sum)?;
                    assert_eq!(dest.to_vec(&stream)?, [1 + 2 * number; 50]);
                    world.reduce(&mut dest, &source, ReduceOp::Sum)?;
                    drop(world.split_strided(TeamPe(0), 1, seat.n_pes, &TeamConfig::default())?);
                    ctx.quiet()
                };
                println!("{}", (0..6).try_for_each(round).expect_err("PE 1 has died"));
                std::process::exit(RETURNED);
            },
            |ends| {
                let end = &ends[0];
                assert!(matches!(end.code, Some(RETURNED | WATCHDOG_EXIT_CODE)), "{operation}: {}", report(ends));
                let says = if operation == 10 { "not done within" } else { "1 has died" };
                assert!(end.text.contains(says) && !end.text.contains("too late"), "{operation}: {}", report(ends));
            },
        );
    }
}

/// Calls behind work that waits for a PE, which dies: none of them is that of a meeting.
#[test]
fn calls_behind_work_that_waits_for_the_dead_end_at_once() {
    as_pes_that_end(
        &[2],
        |seat| {
            let ctx = seat.start_as(seat.options().with_timeout(slower(TIMEOUT))).unwrap();
            if ctx.status() == Status::LimitedMpg {
                std::process::exit(RETURNED);
            }
            let [stream, own, full] = [0; 3].map(|_| Stream::new(seat.device).unwrap());
            let signals = ctx.alloc_signals(1).unwrap();
            let target = ctx.alloc::<u32>(4).unwrap();
            let registered = ctx.register(gpucomm::DeviceBuffer::<u32>::zeroed(&stream, 4).unwrap()).unwrap();
            let dropped = ctx.register(PinnedBuffer::<u32>::zeroed(4).unwrap()).unwrap();
            stream.synchronize().unwrap();
            seat.meet();
            if seat.pe == 1 {
                std::process::abort();
            }
            hurry();
            let ours = Pe(0);
            // Nobody sends that signal any more.
            for stream in [&stream, &own, &full] {
                ctx.on(stream).signal_wait_until(signals.at(0), Comparison::Eq, 1, ()).unwrap();
            }
            ctx.on(&stream).put(&target, registered.as_slice(), ours).unwrap();
            ctx.on(&own).put(&target, &*dropped, ours).unwrap();
            let gone = |what: &str, result: Result<()>| match result {
                Err(Error::Departed { operation, rank: 1, .. }) if operation == what => {}
                other => panic!("{what}: {other:?}"),
            };
            gone("Registered::unregister", registered.unregister().map(drop));
            drop(dropped);
            let filled = (0..100_000).find_map(|_| ctx.on(&full).barrier_all().err());
            gone("OnStream::barrier_all", Err(filled.expect("a queue has an end")));
            std::process::exit(RETURNED);
        },
        |ends| assert_eq!(ends[0].code, Some(RETURNED), "{}", report(ends)),
    );
}

/// Work of this PE's device alone is waited for, whatever becomes of another PE.
#[test]
fn work_that_waits_for_no_pe_goes_on_beside_a_death() {
    as_pes_that_end(
        &[3],
        |seat| {
            let ctx = seat.start_as(seat.options().with_timeout(slower(TIMEOUT))).unwrap();
            let stream = Stream::new(seat.device).unwrap();
            let mut to = ctx.alloc::<u32>(8).unwrap();
            let own = PinnedBuffer::<u32>::zeroed(8).unwrap();
            let registered = ctx.register(DeviceBuffer::<u32>::zeroed(&stream, 1 << 10).unwrap());
            seat.meet();
            match seat.pe {
                2 => std::process::abort(),
                1 => std::process::exit(RETURNED),
                _ => {}
            }
            seat.exchange.barrier().expect_err("the others have ended");
            // Longer than the watchdog takes to say that a PE has died.
            let busy = |stream: &Stream| {
                stream.launch_host(|| std::thread::sleep(std::time::Duration::from_secs(2))).unwrap();
            };
            busy(&stream);
            to.fill(&stream, 1).unwrap();
            ctx.put(&to, &own, Pe(0)).unwrap();
            let Ok(mut registered) = registered else { std::process::exit(RETURNED) };
            busy(&stream);
            registered.as_slice_mut().fill(&stream, 1).unwrap();
            assert_eq!(registered.unregister().unwrap().len(), 1 << 10);
            std::process::exit(RETURNED);
        },
        |ends| {
            assert_eq!(ends[0].code, Some(RETURNED), "{}", report(ends));
        },
    );
}
