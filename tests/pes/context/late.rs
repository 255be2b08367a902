//! A PE that comes so late that the others have given up: nobody enters the library alone.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[cfg(nvshmem_ge_3_3)]
use gpucomm::nvshmem::TeamPlace;
use gpucomm::nvshmem::{Context, Status, TeamConfig, TeamPe};
use gpucomm::{Error, Result, Stream};

use crate::support::{Fate, Hooked, Seat, as_pes, as_pes_with, errors, slower};

/// In the environment of a PE: which call it makes.
const CALL: &str = "GPUCOMM_TEST_CALL";

/// How long the PEs wait that come in time.
const LIMIT: f64 = 2.5;

/// Makes the call of this name.
fn call(name: &str, seat: &Seat, ctx: &Context) -> Result<()> {
    let config = TeamConfig::default();
    match name {
        "Team::split_strided" => ctx.world()?.split_strided(TeamPe(0), 1, seat.n_pes, &config).map(drop),
        "Team::split_2d" => ctx.world()?.split_2d(1, &config, &config).map(drop),
        "Context::alloc" => ctx.alloc::<u32>(10).map(drop),
        "Context::reclaim" => ctx.reclaim(),
        #[cfg(nvshmem_ge_3_3)]
        "Context::team" => {
            let ids = seat.gather(&format!("{:?}", ctx.team_unique_id()?.to_bytes()));
            let id: Vec<u8> =
                ids[0].trim_matches(['[', ']']).split(", ").map(|byte| byte.parse().expect("a byte")).collect();
            let id = gpucomm::nvshmem::TeamUniqueId::from_bytes(id.try_into().expect("8 bytes"));
            stands_aside(seat);
            let place = TeamPlace { id, pe: TeamPe(seat.pe), n_pes: seat.n_pes };
            ctx.team(Some(place), &config).map(drop)
        }
        other => panic!("no call is named {other}"),
    }
}

/// The PE that is late waits until the others have given up.
fn stands_aside(seat: &Seat) {
    if seat.pe == 0 {
        seat.meet();
    }
}

/// PE 0 is late for the call that the environment names. Its own timeout is another one.
fn comes_late(seat: &Seat) -> ! {
    let name = std::env::var(CALL).expect("the name of a call");
    let limit = slower(if seat.pe == 0 { 30.0 } else { LIMIT });
    let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
    if ctx.status() == Status::LimitedMpg {
        // The library waits on the thread: see `watchdog`.
        leave(Some(ctx));
    }
    if name != "Context::team" {
        stands_aside(seat);
    }
    let (error, ctx) = match name.as_str() {
        "Context::close" => (ctx.close().map(drop), None),
        _ => (call(&name, seat, &ctx), Some(ctx)),
    };
    let error = error.expect_err("not all came in time");
    if seat.pe == 0 {
        assert!(matches!(error, Error::Departed { rank: 1.., .. }), "{error:?}");
        let given_up = format!("has given up {name}");
        errors::names(&error, &[&name, &given_up, "has come too late"]);
        if let Some(ctx) = &ctx {
            errors::names(&ctx.reclaim().expect_err("it is lost"), &["the context was aborted: it is lost", &given_up]);
        }
    } else {
        assert!(matches!(error, Error::Timeout { .. } | Error::Departed { .. }), "{error:?}");
        errors::names(&error, &[&name]);
        seat.meet();
    }
    // The late one has been told.
    seat.meet();
    leave(ctx)
}

/// Ends the process as a test that has passed. What the device still waits for goes with it.
fn leave(ctx: Option<Context>) -> ! {
    drop(ctx);
    println!("1 passed");
    std::process::exit(0)
}

#[test]
fn a_late_one_is_told_that_the_others_have_given_up() {
    for name in ["Context::alloc", "Context::reclaim", "Context::close"] {
        as_pes_with(&[2, 3], &[(CALL, name)], |seat| comes_late(seat));
    }
}

#[test]
fn a_late_member_is_told_that_the_others_have_given_up() {
    for name in ["Team::split_strided", "Team::split_2d"] {
        as_pes_with(&[3], &[(CALL, name)], |seat| comes_late(seat));
    }
}

#[cfg(nvshmem_ge_3_3)]
#[test]
fn a_late_one_to_a_team_by_id_is_told_that_the_others_have_given_up() {
    as_pes_with(&[3], &[(CALL, "Context::team")], |seat| comes_late(seat));
}

/// A team of some PEs, one of which is late.
#[test]
fn a_late_member_of_a_part_is_told_that_the_other_has_given_up() {
    as_pes(&[3], |seat| {
        let ctx = seat.start_as(seat.options().with_timeout(slower(LIMIT))).unwrap();
        if ctx.status() == Status::LimitedMpg {
            leave(Some(ctx));
        }
        let mut world = ctx.world().unwrap();
        let config = TeamConfig::default();
        let part = world.split_strided(TeamPe(0), 1, 2, &config).unwrap();
        stands_aside(seat);
        if let Some(mut part) = part {
            let error = part.split_strided(TeamPe(0), 1, 1, &config).map(drop).expect_err("PE 0 is late");
            if seat.pe == 0 {
                assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error:?}");
                errors::names(&error, &["has given up Team::split_strided"]);
            } else {
                assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            }
        }
        if seat.pe > 0 {
            seat.meet();
        }
        seat.meet();
        println!("1 passed");
        std::process::exit(0);
    });
}

/// PE 0 has waited for its own work for most of its timeout, so it waits for a quarter of that in the meetings of its end. The device of PE 1 takes
/// longer for the second of them: both end, or both fail.
#[test]
fn an_end_with_one_that_is_late_by_less_than_the_timeout() {
    let limit = slower(1.0);
    let faults = format!("late=rank1@op4:{}ms", limit.mul_f32(0.4).as_millis());
    as_pes_with(&[2], &[("GPUCOMM_EMULATOR_FAULTS", &faults)], |seat| {
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        if ctx.status() == Status::LimitedMpg {
            leave(Some(ctx));
        }
        let stream = Stream::new(seat.device).unwrap();
        seat.meet();
        if seat.pe == 0 {
            stream.launch_host(move || std::thread::sleep(limit.mul_f32(0.9))).unwrap();
        } else {
            std::thread::sleep(limit.mul_f32(0.88));
        }
        let ended = ctx.close();
        let all = seat.gather(&ended.is_ok().to_string());
        assert!(all.iter().all(|ended| *ended == all[0]), "{all:?}: {ended:?}");
        leave(None);
    });
}

/// PEs that meet less often than their timeout, and come in time, go on.
#[test]
fn rare_meetings_are_not_late() {
    as_pes(&[2, 3], |seat| {
        let ctx = seat.start_as(seat.options().with_timeout(slower(1.0))).unwrap();
        for round in 0..3 {
            std::thread::sleep(slower(1.2));
            seat.meet();
            drop(ctx.alloc::<u32>(round + 1).unwrap());
        }
        assert!(ctx.close().unwrap().is_empty());
    });
}

/// One comes just as the others give up: either all go on, or none does.
#[test]
fn all_go_on_or_none_does() {
    for _ in 0..3 {
        as_pes(&[2, 3], |seat| {
            let limit = slower(LIMIT);
            let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
            if ctx.status() == Status::LimitedMpg {
                leave(Some(ctx));
            }
            seat.meet();
            if seat.pe == 0 {
                let sooner = Duration::from_millis(20);
                std::thread::sleep(limit - sooner + Duration::from_millis(fastrand::u64(0..40)));
            }
            let made = ctx.alloc::<u32>(10);
            let all = seat.gather(if made.is_ok() { "yes" } else { "no" });
            assert!(all.iter().all(|one| *one == all[0]), "{all:?}: {:?}", made.map(drop));
            drop(made);
            leave(Some(ctx));
        });
    }
}

/// In the environment of a PE: what becomes of its first answers.
const ANSWERS: &str = "GPUCOMM_TEST_ANSWERS";

/// The store loses the answer of who gives up, and of who comes late, once or always: nobody goes on alone.
#[test]
fn an_answer_that_is_lost_is_no_leave_to_go_on() {
    for lost in ["once", "always"] {
        as_pes_with(&[2], &[(ANSWERS, lost)], |seat| {
            let always = std::env::var(ANSWERS).expect("which are lost") == "always";
            let (pe, count) = (seat.pe, AtomicUsize::new(0));
            let exchange = Hooked::join(seat, move |method, key| {
                // The start has meetings, which may be late.
                let is_it = method == "compare_and_set" && key.contains("/meets/") && IS_ON.load(Ordering::SeqCst);
                match (is_it, pe) {
                    (true, 0) if always || count.fetch_add(1, Ordering::SeqCst) == 0 => Fate::Refused,
                    (true, 1) if count.fetch_add(1, Ordering::SeqCst) == 0 => Fate::Lost,
                    _ => Fate::Answers,
                }
            });
            let limit = slower(if seat.pe == 0 { 30.0 } else { LIMIT });
            let ctx = seat.start_as(seat.options().with_exchange(&exchange).with_timeout(limit)).unwrap();
            if ctx.status() == Status::LimitedMpg {
                leave(Some(ctx));
            }
            seat.meet();
            IS_ON.store(true, Ordering::SeqCst);
            stands_aside(seat);
            let error = ctx.alloc::<u32>(10).map(drop).expect_err("PE 0 is late");
            if seat.pe == 1 {
                assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                seat.meet();
            } else if always {
                assert!(matches!(error, Error::Exchange { .. }), "{error:?}");
                errors::names(&error, &["Context::alloc", "cannot tell whether another PE has given up"]);
            } else {
                assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error:?}");
            }
            seat.meet();
            leave(Some(ctx));
        });
    }
}

/// From now on answers are lost.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// What is written for a meeting goes when it is over, and the only PE, or the only member of a team, asks nobody.
#[test]
fn notes_of_meetings_go() {
    as_pes(&[1, 2], |seat| {
        let there = Arc::new(Mutex::new(BTreeSet::new()));
        let (seen, notes) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&there));
        let asked = Arc::clone(&seen);
        let exchange = Hooked::join(seat, move |method, key| {
            let mut notes = notes.lock().unwrap();
            if key.contains("/meets/") && method == "compare_and_set" {
                asked.fetch_add(1, Ordering::SeqCst);
                notes.insert(key.to_owned());
            } else if method == "delete" {
                notes.remove(key);
            }
            Fate::Answers
        });
        let ctx = seat.start_as(seat.options().with_exchange(&exchange)).unwrap();
        let late = || {
            std::thread::sleep(Duration::from_secs(1));
            seat.meet();
        };
        for round in 0..3 {
            late();
            drop(ctx.alloc::<u32>(round).unwrap());
        }
        assert_eq!(seen.load(Ordering::SeqCst) > 0, seat.n_pes > 1);
        if ctx.status() != Status::LimitedMpg {
            let config = TeamConfig::default();
            let mut world = ctx.world().unwrap();
            let own = world.split_strided(TeamPe(0), 1, 1, &config).unwrap();
            let before = seen.load(Ordering::SeqCst);
            if let Some(mut own) = own {
                std::thread::sleep(Duration::from_secs(1));
                drop(own.split_strided(TeamPe(0), 1, 1, &config).unwrap());
                assert_eq!(seen.load(Ordering::SeqCst), before);
            }
        }
        late();
        ctx.close().unwrap();
        let begin = Instant::now();
        while !there.lock().unwrap().is_empty() {
            assert!(begin.elapsed() < slower(20.0), "{:?}", there.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
        seat.meet();
    });
}

/// A collective of the host was given up, and what is left of it holds up the context's own stream: a scope on the host says so when it
/// needs that stream, and ends.
#[test]
fn a_scope_behind_a_collective_that_was_given_up() {
    as_pes(&[2], |seat| {
        let limit = slower(LIMIT);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        if ctx.status() == Status::LimitedMpg {
            leave(Some(ctx));
        }
        let (source, mut dest) = (ctx.alloc::<u32>(7).unwrap(), ctx.alloc::<u32>(7).unwrap());
        let signals = ctx.alloc_signals(1).unwrap();
        let mut world = ctx.world().unwrap();
        // The first one has the library connect the members.
        world.reduce(&mut dest, &source, gpucomm::ReduceOp::Sum).unwrap();
        if seat.pe == 0 {
            world.reduce(&mut dest, &source, gpucomm::ReduceOp::Sum).expect_err("PE 1 does not come");
            let begin = Instant::now();
            let sent = ctx.nonblocking(|scope| {
                scope.put_signal(
                    &dest,
                    &source,
                    signals.at(0),
                    gpucomm::nvshmem::SignalOp::Set(1),
                    gpucomm::nvshmem::Pe(0),
                )
            });
            assert!(matches!(sent, Err(Error::Timeout { .. })), "{sent:?}");
            assert!(begin.elapsed() < limit + slower(1.0), "{:?}", begin.elapsed());
        }
        seat.meet();
        // What was given up goes with the process.
        leave(None);
    });
}
