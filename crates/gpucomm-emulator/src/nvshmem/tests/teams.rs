//! Teams.

use super::*;

pub(super) const SCENES: &[(&str, Scene)] = &[("teams", teams), ("many teams", many)];

#[test]
fn teams_are_split_off_made_by_an_id_and_destroyed() {
    for size in 1..=4 {
        play_well("teams", size, &[]);
    }
}

fn teams(stage: &Stage) {
    let (me, size) = (stage.me as i32, stage.size as i32);
    let memory = stage.words(1, 0);
    // SAFETY: as C asks for it.
    unsafe {
        for round in 0..3 {
            let mut team = 5;
            let status =
                nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 2, (size + 1) / 2, std::ptr::null(), 0, &mut team);
            assert_eq!(status, 0);
            if me % 2 == 0 {
                assert_eq!(nvshmem_team_my_pe(team), me / 2);
                assert_eq!(nvshmem_team_n_pes(team), (size + 1) / 2);
                assert_eq!(nvshmem_team_translate_pe(team, 0, NVSHMEM_TEAM_WORLD), 0);
                assert_eq!(nvshmem_barrier(team), 0);
                assert_eq!(nvshmemx_team_sync_on_stream(team, stage.stream), 0);
                stage.sync();
                nvshmem_team_destroy(team);
            } else {
                assert_eq!(team, NVSHMEM_TEAM_INVALID);
                assert_eq!((nvshmem_team_my_pe(team), nvshmem_team_n_pes(team)), (-1, -1));
            }
            let (mut x, mut y) = (0, 0);
            let null = std::ptr::null();
            assert_eq!(nvshmem_team_split_2d(NVSHMEM_TEAM_WORLD, 2, null, 0, &mut x, null, 0, &mut y), 0);
            assert_eq!((nvshmem_team_my_pe(x), nvshmem_team_my_pe(y)), (me % 2, me / 2));
            assert_eq!(nvshmem_team_n_pes(x), (size - me / 2 * 2).min(2));
            nvshmem_team_destroy(x);
            nvshmem_team_destroy(y);
            // In the other order, by an id.
            let mut id = 0;
            if me == 0 {
                assert_eq!(nvshmemx_team_get_uniqueid(&mut id), 0);
                for pe in 0..size {
                    nvshmem_uint64_p(memory, id, pe);
                }
            }
            stage.barrier();
            id = stage.read(memory, 1)[0];
            let mut config = std::mem::MaybeUninit::uninit();
            gpucommNvshmemTeamConfigInit(config.as_mut_ptr());
            let mut config = config.assume_init();
            config.uniqueid = id;
            let made =
                nvshmemx_team_init(&mut team, &mut config, NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID, size, size - 1 - me);
            assert_eq!(made, 0, "{round}");
            assert_eq!(nvshmem_team_translate_pe(team, 0, NVSHMEM_TEAM_WORLD), size - 1);
            assert_eq!(nvshmem_team_sync(team), 0);
            config.uniqueid = 0;
            nvshmem_team_get_config(team, &mut config);
            assert_eq!(config.uniqueid, id);
            nvshmem_team_destroy(team);
        }
        let mut team = 5;
        let bad = nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, size + 1, std::ptr::null(), 0, &mut team);
        assert_eq!((bad, team), (NVSHMEMX_ERROR_INVALID_VALUE, NVSHMEM_TEAM_INVALID));
    }
}

#[test]
fn there_are_no_more_teams_than_the_variable_allows() {
    play_well("many teams", 2, &[("NVSHMEM_MAX_TEAMS", "10")]);
}

fn many(stage: &Stage) {
    // SAFETY: as C asks for it.
    unsafe {
        let split = || {
            let mut team = 0;
            let status = nvshmem_team_split_strided(0, 0, 1, stage.size as i32, std::ptr::null(), 0, &mut team);
            (status, team)
        };
        let all: Vec<_> = (0..3).map(|_| split()).collect();
        assert_eq!(all, [(0, 7), (0, 8), (0, 9)]);
        assert_ne!(split().0, 0);
        nvshmem_team_destroy(8);
        assert_eq!(split(), (0, 8));
    }
}
