//! Dropped teams.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use gpucomm::nvshmem::{TeamConfig, TeamPe, WATCHDOG_EXIT_CODE};
use gpucomm::{Error, ReduceOp};

use crate::support::{as_pes, as_pes_that_end, errors, report, slower, with_context, with_contexts};

/// Far more than the library has at a time: they are destroyed where all come together.
#[test]
fn dropped_teams_make_room_for_others() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let mut world = here.ctx.world().unwrap();
        for _ in 0..48 {
            let team = world.split_strided(TeamPe(0), 1, here.n_pes().div_ceil(2), &TeamConfig::default()).unwrap();
            drop(team);
        }
    });
}

/// In another order on each PE.
#[test]
fn teams_go_in_any_order() {
    with_contexts(&[2, 3, 4], |here| {
        if !here.is_whole() {
            return;
        }
        let mut world = here.ctx.world().unwrap();
        let mut rng = here.rng_of("drops", here.pe());
        for _ in 0..6 {
            let make = |_| world.split_strided(TeamPe(0), 1, here.n_pes(), &TeamConfig::default()).unwrap();
            let mut teams: Vec<_> = (0..12).map(make).collect();
            rng.shuffle(&mut teams);
            while let Some(team) = teams.pop() {
                drop(team);
                if teams.len() % 5 == 0 {
                    here.ctx.reclaim().unwrap();
                }
            }
        }
    });
}

#[test]
fn forgotten_teams_are_reported() {
    as_pes(&[1, 2, 3], |seat| {
        let ctx = seat.start().unwrap();
        if ctx.status() != gpucomm::nvshmem::Status::LimitedMpg {
            let mut world = ctx.world().unwrap();
            let config = TeamConfig::default();
            std::mem::forget(world.split_strided(TeamPe(0), 1, 1, &config).unwrap());
            drop(world.split_strided(TeamPe(0), 1, 1, &config).unwrap());
            drop(world);
            let leaks = ctx.close().unwrap();
            assert_eq!((leaks.teams, leaks.is_empty()), (usize::from(seat.pe == 0), seat.pe != 0));
        } else {
            ctx.close().unwrap();
        }
    });
}

/// All members are told, and when they have dropped some they can make others.
#[test]
fn more_teams_than_there_are() {
    with_contexts(&[1, 2, 3], |here| {
        if !here.is_whole() {
            return;
        }
        let mut world = here.ctx.world().unwrap();
        let mut teams = Vec::new();
        let error = loop {
            assert!(teams.len() < 1000, "there is no end of teams");
            match world.split_strided(TeamPe(0), 1, here.n_pes(), &TeamConfig::default()) {
                Ok(team) => teams.push(team.unwrap()),
                Err(error) => break error,
            }
        };
        assert!(teams.len() > 10, "{}", teams.len());
        errors::names(&error, &["nvshmem_team_split_strided", "NVSHMEM_MAX_TEAMS"]);
        teams.truncate(3);
        let mut again = world.split_strided(TeamPe(0), 1, here.n_pes(), &TeamConfig::default()).unwrap().unwrap();
        again.barrier().unwrap();
    });
}

#[test]
fn while_a_panic_unwinds() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let mut world = here.ctx.world().unwrap();
        for who in 0..=here.n_pes() {
            let make = |_| world.split_strided(TeamPe(0), 1, here.n_pes(), &TeamConfig::default()).unwrap().unwrap();
            let mut teams: Vec<_> = (0..3).map(make).collect();
            teams[1].on(here.stream).barrier().unwrap();
            let panics = who == here.pe() || who == here.n_pes();
            let result = catch_unwind(AssertUnwindSafe(|| {
                let _all = teams;
                if panics {
                    resume_unwind(Box::new("on purpose"));
                }
            }));
            assert_eq!(result.is_err(), panics);
            here.ctx.reclaim().unwrap();
        }
        world.barrier().unwrap();
    });
}

/// What one member has forgotten is destroyed on none; nobody waits for it, and that one reports it.
#[test]
fn forgotten_by_one_and_dropped_by_the_others() {
    as_pes(&[2, 3], |seat| {
        let ctx = seat.start().unwrap();
        let forgets = seat.pe == 0 && ctx.status() != gpucomm::nvshmem::Status::LimitedMpg;
        if ctx.status() != gpucomm::nvshmem::Status::LimitedMpg {
            let mut world = ctx.world().unwrap();
            let mut make = || world.split_strided(TeamPe(0), 1, seat.n_pes, &TeamConfig::default()).unwrap().unwrap();
            let team = make();
            if forgets {
                std::mem::forget(team);
            } else {
                drop(team);
            }
            for _ in 0..3 {
                ctx.reclaim().unwrap();
                let mut other = make();
                other.barrier().unwrap();
            }
        }
        assert_eq!(ctx.close().unwrap().teams, usize::from(forgets));
        // It starts again all the same.
        assert!(seat.start().unwrap().close().unwrap().is_empty());
    });
}

/// A member that has died: the others wait on the host, and are ended, with the reason.
#[test]
fn a_barrier_with_a_dead_member() {
    as_pes_that_end(
        &[2, 3],
        |seat| {
            let ctx = seat.start_as(seat.options().with_timeout(slower(3.0))).unwrap();
            if ctx.status() == gpucomm::nvshmem::Status::LimitedMpg {
                std::process::exit(WATCHDOG_EXIT_CODE);
            }
            let mut world = ctx.world().unwrap();
            let mut team = world.split_strided(TeamPe(0), 1, seat.n_pes, &TeamConfig::default()).unwrap().unwrap();
            team.barrier().unwrap();
            seat.meet();
            if seat.pe == 0 {
                std::process::abort();
            }
            println!("Team::barrier, PE 0 has died: {:?}", team.barrier());
        },
        |ends| {
            for end in &ends[1..] {
                assert_eq!(end.code, Some(WATCHDOG_EXIT_CODE), "{}", report(ends));
                let says = end.text.contains("in Team::barrier") && end.text.contains("PE 0 has died");
                assert!(says || end.text.is_empty(), "{}", report(ends));
            }
        },
    );
}

/// A member that does not come to a collective that the host waits for: the error says who it is, and who waits; when it comes, all go on.
#[test]
fn a_collective_with_a_late_member() {
    as_pes(&[2, 3], |seat| {
        let limit = slower(2.0);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        if ctx.status() == gpucomm::nvshmem::Status::LimitedMpg {
            ctx.close().unwrap();
            return;
        }
        let stream = gpucomm::Stream::new(seat.device).unwrap();
        let mut source = ctx.alloc::<u32>(7).unwrap();
        source.fill(&stream, seat.pe as u32 + 1).unwrap();
        stream.synchronize().unwrap();
        let mut dest = ctx.alloc::<u32>(7).unwrap();
        let mut world = ctx.world().unwrap();
        // The first one has the library's NCCL connect the members, for which a call waits within the library.
        world.reduce(&mut dest, &source, ReduceOp::Sum).unwrap();
        dest.fill(&stream, 0).unwrap();
        stream.synchronize().unwrap();
        seat.meet();
        if seat.pe > 0 {
            let error = world.reduce(&mut dest, &source, ReduceOp::Sum).expect_err("PE 0 has not come");
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            errors::names(&error, &["Team::reduce", "not all members have come", "PE 0 has not come"]);
            for other in (1..seat.n_pes).filter(|pe| *pe != seat.pe) {
                errors::names(&error, &[&format!("PE {other} waits in Team::reduce")]);
            }
        }
        // The others have given up.
        seat.meet();
        if seat.pe == 0 {
            world.reduce(&mut dest, &source, ReduceOp::Sum).unwrap();
        }
        seat.meet();
        let sum = (1..=seat.n_pes as u32).sum();
        assert_eq!(dest.to_vec(&stream).unwrap(), [sum; 7]);
        world.barrier().unwrap();
        drop((source, dest, world));
        assert!(ctx.close().unwrap().is_empty());
    });
}
