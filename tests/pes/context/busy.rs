//! Devices on which another thread always has work under way.

use std::time::{Duration, Instant};

#[cfg(nvshmem_ge_3_3)]
use gpucomm::nvshmem::{Context, Team};
use gpucomm::nvshmem::{Status, TeamConfig, TeamPe};

#[cfg(nvshmem_ge_3_3)]
use crate::support::Seat;
use crate::support::{WorkLoop, as_pes, slower};

/// A team of all PEs, with an id that PE 0 makes.
#[cfg(nvshmem_ge_3_3)]
fn team_by_id<'c>(seat: &Seat, ctx: &'c Context) -> Option<Team<'c>> {
    use gpucomm::nvshmem::{TeamPlace, TeamUniqueId};
    let all = seat.exchange.all_gather(&ctx.team_unique_id().unwrap().to_bytes()).unwrap();
    let id = TeamUniqueId::from_bytes(all[0].as_slice().try_into().unwrap());
    ctx.team(Some(TeamPlace { id, pe: TeamPe(seat.pe), n_pes: seat.n_pes }), &TeamConfig::default()).unwrap()
}

/// Calls in which the library waits for the whole device wait for the work of the moment, and not until the device is idle.
#[test]
fn splits_and_ends_beside_a_loop() {
    as_pes(&[1, 2], |seat| {
        let limit = slower(5.0);
        let ctx = seat.start_as(seat.options().with_timeout(limit)).unwrap();
        let busy = (seat.pe == 0).then(|| WorkLoop::start(seat.device, limit.mul_f32(0.04)));
        if ctx.status() != Status::LimitedMpg {
            let (mut world, config) = (ctx.world().unwrap(), TeamConfig::default());
            drop(world.split_strided(TeamPe(0), 1, seat.n_pes, &config).unwrap());
            drop(world.split_2d(1, &config, &config).unwrap());
            drop(world);
            #[cfg(nvshmem_ge_3_3)]
            drop(team_by_id(seat, &ctx));
        }
        let begin = Instant::now();
        ctx.close().unwrap();
        assert!(begin.elapsed() < limit, "{:?}", begin.elapsed());
        drop(busy);
        seat.start().unwrap().close().unwrap();
    });
}

/// Teams that are dropped while the device is never idle are destroyed, and make room for others.
#[test]
fn dropped_teams_make_room_beside_a_loop() {
    as_pes(&[1, 2], |seat| {
        let ctx = seat.start().unwrap();
        if ctx.status() != Status::LimitedMpg {
            let busy = WorkLoop::start(seat.device, Duration::from_millis(5));
            let (mut world, config) = (ctx.world().unwrap(), TeamConfig::default());
            // More than there can be at once.
            for _ in 0..150 {
                drop(world.split_strided(TeamPe(0), 1, 1, &config).unwrap());
            }
            drop((busy, world));
        }
        ctx.close().unwrap();
    });
}
