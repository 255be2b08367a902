//! Collectives that are part of graphs.

use gpucomm::ReduceOp;
use gpucomm::nvshmem::{TeamConfig, TeamPe};

use crate::support::with_contexts;

/// The team is dropped: the graph keeps it for itself.
#[test]
fn launched_as_often_as_one_likes() {
    with_contexts(&[1, 2, 3], |here| {
        if !here.is_whole() {
            return;
        }
        let (ctx, stream, n) = (here.ctx, here.stream, here.n_pes());
        let mut world = ctx.world().unwrap();
        let mut team = world.split_strided(TeamPe(0), 1, n, &TeamConfig::default()).unwrap().unwrap();
        let mut source = ctx.alloc::<i64>(7).unwrap();
        let mut sums = ctx.alloc::<i64>(7).unwrap();
        let mut all = ctx.alloc::<i64>(7 * n).unwrap();
        let graph = stream.capture(|stream| {
            team.on(stream).barrier()?;
            team.on(stream).reduce(&mut sums, &source, ReduceOp::Sum)?;
            team.on(stream).fcollect(&mut all, &sums)
        });
        let graph = graph.unwrap();
        drop(team);
        for round in 1..4 {
            source.fill(stream, round * (here.pe() as i64 + 1)).unwrap();
            graph.launch(stream).unwrap();
            let sum = (1..=n as i64).map(|pe| round * pe).sum();
            assert_eq!(all.to_vec(stream).unwrap(), vec![sum; 7 * n], "round {round}");
            here.settle();
            ctx.reclaim().unwrap();
        }
        drop(graph);
    });
}
