//! The teams that the library keeps.

use gpucomm::nvshmem::{Pe, TeamPe};

use crate::support::{errors, with_context};

#[test]
fn all_pes_of_one_host_are_in_these() {
    with_context(|here| {
        let (ctx, n_pes) = (here.ctx, here.n_pes());
        let teams = [ctx.world(), ctx.shared(), ctx.node()].map(|team| team.unwrap());
        for team in &teams {
            assert_eq!((team.pe(), team.n_pes()), (TeamPe(here.pe()), n_pes), "{team:?}");
            for pe in 0..n_pes {
                assert_eq!(team.world_pe(TeamPe(pe)).unwrap(), Pe(pe));
                assert_eq!(team.team_pe(Pe(pe)), Some(TeamPe(pe)));
            }
            assert_eq!(team.team_pe(Pe(n_pes)), None);
            let below = format!("a member below {n_pes}");
            errors::argument(team.world_pe(TeamPe(n_pes)), "Team::world_pe", &below, &n_pes.to_string());
            assert_eq!(team.config().unwrap().num_contexts(), None);
        }
        let alone = ctx.same_pe_of_node().unwrap();
        assert_eq!((alone.pe(), alone.n_pes(), alone.world_pe(TeamPe(0)).unwrap()), (TeamPe(0), 1, ctx.pe()));
        let [world, ..] = &teams;
        for pe in 0..n_pes {
            let there = (pe == here.pe()).then_some(TeamPe(0));
            assert_eq!(world.translate(TeamPe(pe), &alone).unwrap(), there);
        }
        assert_eq!(alone.translate(TeamPe(0), world).unwrap(), Some(world.pe()));
        errors::argument(alone.translate(TeamPe(1), world), "Team::translate", "a member below 1", "1");
    });
}

/// Who shares a switch, if there is one; else each is alone, or with those who share memory.
#[cfg(nvshmem_ge_3_8)]
#[test]
fn who_shares_a_switch() {
    with_context(|here| {
        let mut team = match here.ctx.multicast_shared() {
            Err(error) => return errors::names(&error, &["Context::multicast_shared", "3.8.0"]),
            Ok(team) => team,
        };
        let near = here.ctx.shared().unwrap();
        assert!([1, near.n_pes()].contains(&team.n_pes()), "{team:?}");
        assert_eq!(team.world_pe(team.pe()).unwrap(), here.ctx.pe());
        if here.is_whole() {
            team.barrier().unwrap();
        }
        here.settle();
    });
}
