//! Teams for which switches work (NVLS): the library makes more of them with each, and ends the process where it has no room for those.

use gpucomm::nvshmem::{TeamConfig, TeamPe};
use gpucomm::{Backend, Error};

use crate::support::{Seat, as_pes_of, errors};

/// Splits until there is no room, drops all, and says whether there is room then.
fn split_all(seat: &Seat, expected: usize) -> bool {
    let ctx = seat.start().unwrap();
    let mut world = ctx.world().unwrap();
    let config = TeamConfig::default();
    let mut teams = Vec::new();
    let refused = loop {
        match world.split_strided(TeamPe(0), 1, seat.n_pes, &config) {
            Ok(team) => teams.push(team.unwrap()),
            Err(error) => break error,
        }
        assert!(teams.len() <= expected, "{}", teams.len());
    };
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused:?}");
    errors::names(&refused, &["Team::split_strided", "NVSHMEM_MAX_TEAMS"]);
    assert_eq!(teams.len(), expected);
    // Those of a single PE have none beside them.
    drop(world.split_strided(TeamPe(0), 1, 1, &config).unwrap());
    let plane = world.split_2d(seat.n_pes, &config, &config).map(drop).unwrap_err();
    errors::names(&plane, &["Team::split_2d", "NVSHMEM_MAX_TEAMS"]);
    drop(teams);
    let again = world.split_strided(TeamPe(0), 1, seat.n_pes, &config).is_ok();
    drop(world);
    assert!(ctx.close().unwrap().is_empty());
    again
}

fn run<F: Fn(&Seat)>(environment: &[(&str, &str)], body: F) {
    if gpucomm::backend() == Backend::Emulator {
        let environment: Vec<_> = environment.iter().copied().chain([("GPUCOMM_EMULATOR_NVLS", "1")]).collect();
        as_pes_of::<F>(&[2, 3], &environment, body);
    }
}

#[test]
fn they_come_back_with_a_newer_library() {
    run(&[], |seat| assert!(split_all(seat, 3)));
}

#[test]
fn they_do_not_come_back_with_an_older_one() {
    run(&[("GPUCOMM_EMULATOR_NVSHMEM", "3.5.0"), ("NVSHMEM_MAX_TEAMS", "120")], |seat| assert!(!split_all(seat, 3)));
}

#[test]
fn with_fewer_blocks_there_are_more() {
    run(&[("NVSHMEM_MAX_CTAS", "4"), ("NVSHMEM_MAX_TEAMS", "64")], |seat| assert!(split_all(seat, 11)));
}

#[test]
fn more_teams_than_the_emulator_has() {
    run(&[("NVSHMEM_MAX_TEAMS", "1000")], |seat| {
        assert!(matches!(seat.start().unwrap_err(), Error::Nvshmem { .. }));
    });
}

#[test]
fn more_blocks_than_the_library_has_room_for() {
    for blocks in ["129", "0x100", "0400", "256x", "-3", "none"] {
        run(&[("NVSHMEM_MAX_CTAS", blocks)], |seat| {
            let error = seat.start().unwrap_err();
            assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
            errors::names(&error, &["NVSHMEM_MAX_CTAS", "1 to 128"]);
        });
    }
}
