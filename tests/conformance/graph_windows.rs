//! Windows that graphs keep: whoever drops a graph drops them with it, and ranks need not do so in the same place.

use fastrand::Rng;
use gpucomm::nccl::CommBuffer;
use gpucomm::{Communicator, DeviceBuffer, Error, Graph, InPlace, ReduceOp, Result, Stream};

use crate::support::random::rng;
use crate::support::{Rig, assert_names, is_thorough, rank_counts, watched};

/// A window, and a graph that doubles what is in it with each rank.
fn made<'c>(comm: &'c Communicator, stream: &Stream, length: usize) -> Result<(Graph, CommBuffer<'c, u64>)> {
    let mut window = comm.alloc::<u64>(stream, length)?;
    let graph = stream.capture(|stream| {
        window.fill(stream, 3)?;
        comm.all_reduce(InPlace(&mut window), ReduceOp::Sum, stream)
    })?;
    Ok((graph, window))
}

/// The sum over a window of each rank lies where all of them have it.
fn adds_up(comm: &Communicator, stream: &Stream, window: &mut CommBuffer<'_, u64>, value: u64) -> Result<()> {
    window.fill(stream, value + comm.rank() as u64)?;
    comm.all_reduce(InPlace(&mut *window), ReduceOp::Sum, stream)?;
    let size = comm.size() as u64;
    let expected = size * value + size * (size - 1) / 2;
    assert!(window.to_vec(stream)? == vec![expected; window.len()], "{} ranks, value {value}", comm.size());
    Ok(())
}

/// Graphs outlive the buffers, and go on each rank at a point of its own, with launches on their way or not. All that is allocated in
/// between lies at the same place on all ranks.
#[test]
fn graphs_go_in_different_places() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let seed = rng(&format!("graphs with windows {ranks}")).u64(..);
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let (mut alike, mut own) = (Rng::with_seed(seed), Rng::with_seed(seed ^ (comm.rank() as u64 + 1)));
                let (mut graphs, mut left, mut windows) = (Vec::new(), Vec::new(), Vec::new());
                for round in 0..if is_thorough() { 20 } else { 8 } {
                    let (graph, window) = made(comm, stream, alike.usize(1..100_000))?;
                    (0..alike.u32(0..3)).try_for_each(|_| graph.launch(stream))?;
                    graphs.push(graph);
                    if alike.bool() {
                        windows.push(window)
                    } else {
                        left.push(window)
                    }
                    // Each rank its own.
                    while !graphs.is_empty() && own.u32(0..3) > 0 {
                        drop(graphs.swap_remove(own.usize(..graphs.len())));
                    }
                    while !left.is_empty() && own.u32(0..3) > 0 {
                        drop(left.swap_remove(own.usize(..left.len())));
                    }
                    if windows.len() > 4 {
                        drop(windows.swap_remove(alike.usize(..windows.len())));
                    }
                    if alike.u32(0..4) == 0 {
                        comm.reclaim()?;
                    }
                    for window in &mut windows {
                        adds_up(comm, stream, window, round)?;
                    }
                }
                drop(left);
                drop(graphs);
                comm.reclaim()?;
                for (at, window) in windows.iter_mut().enumerate() {
                    adds_up(comm, stream, window, at as u64)?;
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// What a graph was captured with has to be there when it is launched: a window over memory that lives is taken away from NCCL when all
/// ranks have dropped it, and reclaim.
#[test]
fn a_window_that_is_gone() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut memory = gpucomm::nccl::alloc::<u64>(stream, 1 << 10)?;
                let kept = comm.window(&memory)?;
                let sum = |memory: &mut DeviceBuffer<u64>| {
                    memory.fill(stream, 2)?;
                    let graph =
                        stream.capture(|stream| comm.all_reduce(InPlace(&mut *memory), ReduceOp::Max, stream))?;
                    graph.launch(stream)?;
                    Ok::<_, Error>(graph)
                };
                let graph = sum(&mut memory)?;
                // Another window that goes changes nothing.
                let other = gpucomm::nccl::alloc::<u64>(stream, 1 << 10)?;
                drop(comm.window(&other)?);
                comm.reclaim()?;
                graph.launch(stream)?;
                drop(kept);
                // It is there until all of them have come here.
                graph.launch(stream)?;
                comm.reclaim()?;
                let error = graph.launch(stream).expect_err("its window is gone");
                assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                let words = ["Graph::launch", "window", &format!("rank {}", comm.rank()), "dropped", "capture it anew"];
                assert_names(&error, &words);
                assert_eq!(memory.to_vec(stream)?, [2; 1 << 10]);
                sum(&mut memory)?.launch(stream)?;
                assert_eq!(memory.to_vec(stream)?, [2; 1 << 10]);
                Ok(())
            });
            rig.close();
        }
    });
}
