//! Splits.

use gpucomm::Error;
use gpucomm::nvshmem::{Pe, Team, TeamConfig, TeamPe};

use crate::support::{as_pes, errors, with_context, with_contexts};

fn members(team: &Team<'_>) -> Vec<usize> {
    (0..team.n_pes()).map(|pe| team.world_pe(TeamPe(pe)).unwrap().0).collect()
}

/// All triples that there are, of the world and of teams of it.
#[test]
fn strided_splits_have_the_members_that_were_asked_for() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let mut world = here.ctx.world().unwrap();
        let config = TeamConfig::default().with_num_contexts(1);
        // One member has no stride, were it larger than what the library takes.
        for stride in [usize::MAX, 1 << 31, 1 << 32] {
            let one = world.split_strided(TeamPe(0), stride, 1, &config).unwrap();
            assert_eq!(one.map(|one| members(&one)), (here.pe() == 0).then(|| vec![0]), "{stride}");
        }
        let all: Vec<usize> = (0..here.n_pes()).collect();
        for start in 0..here.n_pes() {
            for stride in 1..=here.n_pes() {
                let expected: Vec<usize> = all.iter().copied().skip(start).step_by(stride).collect();
                let team = world.split_strided(TeamPe(start), stride, expected.len(), &config).unwrap();
                assert_eq!(team.is_some(), expected.contains(&here.pe()), "{start} {stride}");
                let Some(mut team) = team else { continue };
                assert_eq!(members(&team), expected);
                assert_eq!(team.team_pe(Pe(here.pe())), Some(team.pe()));
                assert_eq!(team.config().unwrap(), config);
                // A team of that one, which the others know nothing of: its members the other way round cannot be had.
                let last = TeamPe(expected.len() - 1);
                let one = team.split_strided(last, 1, 1, &TeamConfig::default()).unwrap();
                assert_eq!(one.is_some(), team.pe() == last);
                if let Some(one) = one {
                    assert_eq!(members(&one), [*expected.last().unwrap()]);
                    assert_eq!(one.config().unwrap().num_contexts(), None);
                }
            }
        }
    });
}

#[test]
fn rows_and_columns() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let (pe, n_pes) = (here.pe(), here.n_pes());
        let mut world = here.ctx.world().unwrap();
        for wide in 1..=n_pes {
            let (row, column) = world.split_2d(wide, &TeamConfig::default(), &TeamConfig::default()).unwrap();
            let in_row: Vec<usize> = (0..n_pes).filter(|other| other / wide == pe / wide).collect();
            let in_column: Vec<usize> = (0..n_pes).filter(|other| other % wide == pe % wide).collect();
            assert_eq!((members(&row), members(&column)), (in_row, in_column), "rows of {wide}");
        }
        for wide in [0, n_pes + 1] {
            let split = world.split_2d(wide, &TeamConfig::default(), &TeamConfig::default());
            errors::argument(split, "Team::split_2d", &format!("from 1 to {n_pes} members"), &wide.to_string());
        }
    });
}

#[test]
fn members_that_there_are_not_are_refused_by_all() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let n_pes = here.n_pes();
        let mut world = here.ctx.world().unwrap();
        for (start, stride, size) in
            [(n_pes, 1, 1), (0, 1, n_pes + 1), (0, 0, 1), (0, 1, 0), (0, n_pes, 2), (0, usize::MAX, 3)]
        {
            let split = world.split_strided(TeamPe(start), stride, size, &TeamConfig::default());
            let got = format!("{size} from {start} on by {stride}");
            errors::argument(split, "Team::split_strided", "a stride of at least 1", &got);
        }
        let config = TeamConfig::default().with_num_contexts(usize::MAX);
        let split = world.split_strided(TeamPe(0), 1, 1, &config);
        errors::argument(split, "Team::split_strided", "fits a C int", &usize::MAX.to_string());
    });
}

/// They are told, and go on.
#[test]
fn members_that_ask_for_different_teams_are_told_who_differs() {
    as_pes(&[3, 4], |seat| {
        let ctx = seat.start().unwrap();
        if ctx.status() == gpucomm::nvshmem::Status::LimitedMpg {
            ctx.close().unwrap();
            return;
        }
        let mut world = ctx.world().unwrap();
        let last = seat.n_pes - 1;
        let size = if seat.pe == last { 1 } else { 2 };
        let error = world.split_strided(TeamPe(0), 1, size, &TeamConfig::default()).unwrap_err();
        let Error::Disagreement { rank, peer, expected, got, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*rank, *peer), (last, 0), "{error}");
        assert!(expected.contains("2 members from 0 on by 1") && got.contains("1 members"), "{error}");
        let config = if seat.pe == last { TeamConfig::default().with_num_contexts(3) } else { TeamConfig::default() };
        let error = world.split_strided(TeamPe(0), 1, 2, &config).unwrap_err();
        let Error::Disagreement { expected, got, .. } = &error else { panic!("{error:?}") };
        assert_eq!(got, &format!("{expected}, for 3 contexts"), "{error}");
        // What no words tell apart.
        let error = world.split_2d(1, &TeamConfig::default(), &config).unwrap_err();
        let Error::Disagreement { expected, got, .. } = &error else { panic!("{error:?}") };
        assert!(expected != got && got.contains("numbers [1, 0, 0, 4, "), "{error}");
        // The same in a team that not all are in.
        if let Some(mut sub) = world.split_strided(TeamPe(1), 1, last, &TeamConfig::default()).unwrap() {
            let size = if seat.pe == last { 2 } else { 1 };
            let error = sub.split_strided(TeamPe(0), 1, size, &TeamConfig::default()).unwrap_err();
            let Error::Disagreement { rank, peer, .. } = &error else { panic!("{error:?}") };
            // Of two there is no majority.
            assert_eq!((*rank, *peer), (last, 1), "{error}");
            let team = sub.split_strided(TeamPe(0), 1, 2, &TeamConfig::default()).unwrap();
            assert_eq!(team.is_some(), seat.pe < 3);
        }
        drop(world);
        assert!(ctx.close().unwrap().is_empty());
    });
}

/// Where PEs share a device, the library would end the process.
#[test]
fn on_shared_devices_there_are_none() {
    with_context(|here| {
        if here.is_whole() {
            return;
        }
        let mut world = here.ctx.world().unwrap();
        #[cfg(nvshmem_ge_3_3)]
        for none in [here.ctx.team_unique_id().map(drop), here.ctx.team(None, &TeamConfig::default()).map(drop)] {
            errors::names(&none.unwrap_err(), &["limited MPG"]);
        }
        let none = [
            world.split_strided(TeamPe(0), 1, 1, &TeamConfig::default()).map(drop),
            world.split_2d(1, &TeamConfig::default(), &TeamConfig::default()).map(drop),
            world.barrier(),
            world.sync(),
            world.on(here.stream).barrier(),
            world.on(here.stream).sync(),
        ];
        for result in none {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            errors::names(&error, &["limited MPG"]);
        }
    });
}

/// A split that fails on one PE, or is not what the others do, counts on none: the next one of all succeeds.
#[test]
fn one_that_fails_counts_on_no_member() {
    with_contexts(&[2, 3], |here| {
        if !here.is_whole() {
            return;
        }
        let mut world = here.ctx.world().unwrap();
        let config = TeamConfig::default();
        if here.pe() == 0 {
            let captured = here.stream.capture(|_| world.split_strided(TeamPe(0), 1, 1, &config).map(drop));
            let error = captured.map(drop).expect_err("this thread captures a stream");
            errors::names(&error, &["capture"]);
        }
        let split = match here.pe() {
            0 => world.split_strided(TeamPe(0), 1, 1, &config).map(drop),
            _ => here.ctx.reclaim(),
        };
        assert!(matches!(split, Err(Error::Disagreement { .. })), "{split:?}");
        let mut team = world.split_strided(TeamPe(0), 1, 2, &config).unwrap();
        // In a part, whose members meet without the others, a capture is seen at once too.
        if let Some(team) = team.as_mut().filter(|team| team.pe() == TeamPe(0)) {
            let begin = std::time::Instant::now();
            let captured = here.stream.capture(|_| team.split_strided(TeamPe(0), 1, 1, &config).map(drop));
            captured.map(drop).expect_err("this thread captures a stream");
            assert!(begin.elapsed() < here.seat.limit() / 2, "{:?}", begin.elapsed());
        }
        if let Some(team) = &mut team {
            team.split_strided(TeamPe(0), 1, 1, &config).unwrap();
        }
    });
}
