//! Barriers of teams.

use gpucomm::Stream;
use gpucomm::nvshmem::{TeamConfig, TeamPe};

use crate::support::with_context;

/// Nobody is past a barrier before all are there. What each has done is told by other means.
#[test]
fn members_wait_for_each_other_and_for_nobody_else() {
    with_context(|here| {
        if !here.is_whole() {
            return;
        }
        let other = Stream::new(here.ctx.device()).unwrap();
        let mut world = here.ctx.world().unwrap();
        // Without PE 0, which does not come.
        let n_pes = here.n_pes();
        let most = if n_pes > 1 {
            world.split_strided(TeamPe(1), 1, n_pes - 1, &TeamConfig::default()).unwrap()
        } else {
            None
        };
        let Some(mut team) = most else {
            here.settle();
            return;
        };
        let begin = std::time::Instant::now();
        for _ in 0..5 {
            team.barrier().unwrap();
            team.sync().unwrap();
            team.on(here.stream).barrier().unwrap();
            team.on(&other).sync().unwrap();
            team.on(&other).barrier().unwrap();
        }
        other.synchronize().unwrap();
        assert!(begin.elapsed() < here.ctx.timeout());
        here.settle();
    });
}
