//! Teams that find each other by an id.

use gpucomm::Error;
use gpucomm::nvshmem::{Pe, TeamConfig, TeamPe, TeamPlace, TeamUniqueId};

use crate::support::{Here, errors, with_context, with_contexts};

/// One id for all, which PE 0 makes.
fn id(here: &Here<'_>) -> TeamUniqueId {
    let bytes = here.ctx.team_unique_id().unwrap().to_bytes();
    let all = here.seat.exchange.all_gather(&bytes).unwrap();
    TeamUniqueId::from_bytes(all[0].as_slice().try_into().unwrap())
}

fn place(order: &[usize], id: TeamUniqueId, pe: usize) -> Option<TeamPlace> {
    let at = order.iter().position(|member| *member == pe)?;
    Some(TeamPlace { id, pe: TeamPe(at), n_pes: order.len() })
}

#[test]
fn members_have_the_places_that_they_say() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let mut rng = here.rng("orders");
        for round in 0..8 {
            let mut order: Vec<usize> = (0..here.n_pes()).collect();
            rng.shuffle(&mut order);
            order.truncate(rng.usize(1..=here.n_pes()));
            let team = here.ctx.team(place(&order, id(here), here.pe()), &TeamConfig::default()).unwrap();
            assert_eq!(team.is_some(), order.contains(&here.pe()), "round {round}: {order:?}");
            let Some(mut team) = team else { continue };
            for (at, pe) in order.iter().enumerate() {
                assert_eq!(team.world_pe(TeamPe(at)).unwrap(), Pe(*pe), "round {round}: {order:?}");
            }
            team.barrier().unwrap();
            let gaps: Vec<_> = order.windows(2).map(|two| two[1] as isize - two[0] as isize).collect();
            let even = gaps.first().is_some_and(|gap| *gap > 0) && gaps.iter().all(|gap| *gap == gaps[0]);
            if !even {
                let error = team.split_strided(TeamPe(0), 1, 1, &TeamConfig::default()).unwrap_err();
                assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
                errors::names(&error, &["equal distances"]);
            }
        }
    });
}

#[test]
fn several_are_made_at_once() {
    with_contexts(&[2, 3, 4], |here| {
        if !here.is_whole() {
            return;
        }
        let ids = [id(here), id(here)];
        let half = here.pe() % 2;
        let order: Vec<usize> = (0..here.n_pes()).rev().filter(|pe| pe % 2 == half).collect();
        let team = here.ctx.team(place(&order, ids[half], here.pe()), &TeamConfig::default()).unwrap().unwrap();
        assert_eq!(team.world_pe(TeamPe(0)).unwrap(), Pe(order[0]));
        assert_eq!(team.n_pes(), order.len());
    });
}

#[test]
fn places_that_make_no_team_are_refused_on_all() {
    with_contexts(&[2, 3], |here| {
        if !here.is_whole() {
            return;
        }
        let id = id(here);
        let n_pes = here.n_pes();
        for pe in [TeamPe(0), TeamPe(here.pe() + 1)] {
            let team = here.ctx.team(Some(TeamPlace { id, pe, n_pes }), &TeamConfig::default());
            errors::argument(team, "Context::team", &format!("each number below {n_pes} once"), "numbers and sizes");
        }
        // And they can go on.
        let place = TeamPlace { id, pe: TeamPe(here.pe()), n_pes };
        let first = here.ctx.team(Some(place), &TeamConfig::default()).unwrap();
        assert!(first.is_some());
        // Once, also where the team is gone, and also by another PE alone.
        for _ in 0..2 {
            let again = here.ctx.team(Some(place), &TeamConfig::default());
            errors::argument(again, "Context::team", "an id for each team", "of which a team was made");
        }
        drop(first);
        here.ctx.reclaim().unwrap();
        let alone = (here.pe() == 1).then_some(TeamPlace { id, pe: TeamPe(0), n_pes: 1 });
        let again = here.ctx.team(alone, &TeamConfig::default());
        errors::argument(again, "Context::team", "an id for each team", "of which a team was made");
        assert!(here.ctx.team(None, &TeamConfig::default()).unwrap().is_none());
    });
}
