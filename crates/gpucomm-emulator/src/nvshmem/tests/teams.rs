//! Teams.

use super::*;

pub(super) const SCENES: &[(&str, Scene)] = &[("many teams", many)];

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
        for beyond in [(1, 1, 2), (0, 2, 2), (2, 1, 1), (0, 1, 3)] {
            let (mut team, (start, stride, size)) = (0, beyond);
            let status = nvshmem_team_split_strided(0, start, stride, size, std::ptr::null(), 0, &mut team);
            assert_eq!((status, team), (NVSHMEMX_ERROR_INVALID_VALUE, NVSHMEM_TEAM_INVALID), "{beyond:?}");
        }
        let all: Vec<_> = (0..3).map(|_| split()).collect();
        assert_eq!(all, [(0, 7), (0, 8), (0, 9)]);
        assert_ne!(split().0, 0);
        nvshmem_team_destroy(8);
        assert_eq!(split(), (0, 8));
    }
}
