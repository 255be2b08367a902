//! Ends of graphs and of their communicators in every order, ranks that do not launch the same, and what cannot be captured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use gpucomm::nccl::AbortOutcome;
use gpucomm::{
    Clique, Communicator, DeviceBuffer, Error, ErrorKind, Event, Graph, InPlace, PinnedBuffer, ReduceOp, Result,
    Stream, group,
};

use crate::support::{Rig, assert_names, quick, rank_counts, slower, still_works, watched};

/// A sum over the ranks, doubled each time that the graph is launched.
pub fn sum(comm: &Communicator, stream: &Stream) -> Result<(Graph, DeviceBuffer<i64>)> {
    let mut x = DeviceBuffer::from_slice(stream, &[1i64; 211])?;
    let graph = stream.capture(|stream| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream))?;
    Ok((graph, x))
}

/// Graphs of all ranks, with their streams and buffers.
fn graphs(clique: &Clique) -> Vec<(Graph, DeviceBuffer<i64>, Stream)> {
    let made = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let (graph, x) = sum(comm, &stream)?;
        graph.launch(&stream)?;
        Ok((graph, x, stream))
    });
    made.unwrap()
}

#[test]
fn close_refuses_while_one_lives() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            let graphs = graphs(&rig.clique);
            let refused = rig.clique.close_timeout(slower(10.0)).expect_err("graphs live");
            assert_names(&refused, &["close", "1 graph", "rank 0"]);
            // The clique is gone all the same, and in order.
            for (graph, x, stream) in &graphs {
                let ended = graph.launch(stream).expect_err("its communicator is gone");
                assert_names(&ended, &["Graph::launch", "closed or dropped"]);
                assert_eq!(x.to_vec(stream).unwrap(), [ranks as i64; 211]);
            }
            drop(graphs);
            still_works(ranks);
        }
    });
}

/// Who gets a communicator, and ends it, would wait for graphs that others have.
#[test]
fn none_is_given_away_while_one_lives() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            let graphs = graphs(&rig.clique);
            std::thread::scope(|scope| {
                for comm in rig.clique.into_ranks() {
                    scope.spawn(move || {
                        let refused = comm.into_raw().map(drop).expect_err("graphs live");
                        assert_names(&refused, &["into_raw", "graphs have operations", "drop them before"]);
                    });
                }
            });
            drop(graphs);
            still_works(ranks);
        }
    });
}

#[test]
fn in_every_order() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2]) {
            for order in 0..6 {
                let rig = Rig::new(ranks);
                let (graphs, rest): (Vec<_>, Vec<_>) =
                    graphs(&rig.clique).into_iter().map(|(graph, x, stream)| (graph, (x, stream))).unzip();
                match order {
                    0 => drop((graphs, rest, rig)),
                    1 => drop((rest, graphs, rig)),
                    2 => drop((rig, graphs, rest)),
                    3 => drop((rig, rest, graphs)),
                    4 => {
                        graphs.into_iter().for_each(std::mem::forget);
                        drop((rig, rest));
                    }
                    _ => {
                        let unwound = catch_unwind(AssertUnwindSafe(|| {
                            let _all = (graphs, rest, rig);
                            panic!("the test unwinds");
                        }));
                        assert!(unwound.is_err());
                    }
                }
                still_works(ranks);
            }
        }
    });
}

#[test]
fn an_abort_ends_them() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            for hangs in [false, true] {
                let rig = Rig::new(ranks);
                let graphs = graphs(&rig.clique);
                graphs.iter().for_each(|(.., stream)| stream.synchronize().unwrap());
                if hangs && ranks > 1 {
                    let (graph, _, stream) = &graphs[1];
                    graph.launch(stream).unwrap();
                }
                let begin = Instant::now();
                let _ = rig.clique.rank(0).aborter().abort("the test aborts");
                assert!(begin.elapsed() < slower(5.0), "{:?}", begin.elapsed());
                for (rank, (graph, x, stream)) in graphs.iter().enumerate() {
                    let refused = graph.launch(stream).expect_err("aborted");
                    assert_names(&refused, &["Graph::launch", "the test aborts"]);
                    let read = x.to_vec(stream);
                    if hangs && ranks > 1 && rank == 1 {
                        assert!(matches!(read, Err(Error::Aborted { .. })), "{read:?}");
                    } else {
                        assert_eq!(read.unwrap(), [ranks as i64; 211]);
                    }
                }
                drop(graphs);
                still_works(ranks);
            }
        }
    });
}

/// A rank that does not launch: the others are told at the deadline.
#[test]
fn a_rank_that_does_not_launch() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let late = rig.run(|comm, stream| {
                let (graph, x) = sum(comm, stream)?;
                if comm.rank() == 0 {
                    return Ok(None);
                }
                graph.launch(stream)?;
                let late = stream.synchronize_timeout(slower(0.3)).expect_err("rank 0 does not launch");
                drop(x);
                Ok(Some(late))
            });
            for late in late.into_iter().flatten() {
                assert!(matches!(late, Error::Timeout { .. }), "{late:?}");
                assert_names(&late, &["Stream::synchronize_timeout", "launch of the graph", "rank 0"]);
            }
            drop(rig);
            still_works(ranks);
        }
    });
}

/// Each rank's errors, where rank 0 does what differs.
fn differs(ranks: usize, body: impl Fn(&Communicator, &Stream) -> Result<()> + Sync) -> Vec<Error> {
    let rig = Rig::new(ranks);
    let told = rig.run(|comm, stream| Ok(body(comm, stream).err()));
    drop(rig);
    still_works(ranks);
    told.into_iter().flatten().collect()
}

#[test]
fn ranks_that_do_something_else() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3]) {
            // Another graph.
            let told = differs(ranks, |comm, stream| {
                let (first, _x) = sum(comm, stream)?;
                let (second, _y) = sum(comm, stream)?;
                if comm.rank() == 0 {
                    second.launch(stream)?
                } else {
                    first.launch(stream)?
                }
                stream.synchronize_timeout(slower(20.0))
            });
            assert_eq!(told.len(), ranks);
            told.iter().for_each(|error| assert_names(error, &["launch of the graph with collective"]));
            // An operation in place of a launch.
            let told = differs(ranks, |comm, stream| {
                let (graph, mut x) = sum(comm, stream)?;
                match comm.rank() {
                    0 => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?,
                    _ => graph.launch(stream)?,
                }
                stream.synchronize_timeout(slower(20.0))
            });
            assert_eq!(told.len(), ranks);
            told.iter().for_each(|error| assert_names(error, &["launch of the graph", "all_reduce"]));
            // One captures, the others do not.
            let told = differs(ranks, |comm, stream| {
                if comm.rank() == 0 {
                    let _kept = sum(comm, stream)?;
                    return stream.synchronize_timeout(slower(20.0)).and(comm.barrier_on_stream(stream));
                }
                let mut x = DeviceBuffer::from_slice(stream, &[1i64; 211])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                stream.synchronize_timeout(slower(20.0))
            });
            assert!(!told.is_empty());
            told.iter().for_each(|error| assert_names(error, &["captured into a graph"]));
            // Messages: the other end is not launched, but sent.
            let told = differs(ranks, |comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1i64; 211])?;
                let (rank, size) = (comm.rank(), comm.size());
                let graph = stream.capture(|stream| match rank {
                    0 => comm.send(&x, 1, stream),
                    1 => comm.recv(&mut x, 0, stream),
                    _ => Ok(()),
                })?;
                match rank {
                    0 => comm.send(&x, 1, stream)?,
                    _ => graph.launch(stream)?,
                }
                assert!(size > 1);
                stream.synchronize_timeout(slower(20.0))
            });
            assert!(!told.is_empty());
            // As the end tells it that comes last.
            for error in &told {
                assert_names(error, &["launch of the graph with message"]);
                let text = error.to_string();
                assert!(text.contains("send of 211 i64") || text.contains("recv of 211 i64"), "{text}");
            }
        }
    });
}

/// What cannot be part of a graph is an error, and leaves the capture as it was.
#[test]
fn what_cannot_be_captured() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1i64; 50])?;
                let mut y = DeviceBuffer::<i64>::zeroed(stream, 50)?;
                let mut pinned = PinnedBuffer::<i64>::zeroed(50)?;
                let event = Event::new(comm.device())?;
                let mut kept = None;
                let graph = stream.capture(|lent| {
                    let usage = |what: &str, result: Result<()>| match result {
                        Err(Error::InvalidUsage { .. }) => {}
                        other => panic!("{what}: {other:?}"),
                    };
                    usage("to_vec", x.to_vec(lent).map(drop));
                    usage("copy_from_slice", x.copy_from_slice(lent, &[2; 50]));
                    usage("zeroed", DeviceBuffer::<u8>::zeroed(lent, 9).map(drop));
                    usage("nccl::alloc", gpucomm::nccl::alloc::<u8>(lent, 9).map(drop));
                    usage("alloc", comm.alloc::<u8>(lent, 9).map(drop));
                    usage("alloc_local", comm.alloc_local::<u8>(lent, 9).map(drop));
                    usage("alloc_from", comm.alloc_from(lent, &[1u8; 9]).map(drop));
                    usage("alloc_symmetric", comm.alloc_symmetric::<u8>(lent, 9).map(drop));
                    usage("synchronize", lent.synchronize());
                    usage("query", lent.query().map(drop));
                    usage("launch_host", lent.launch_host(|| ()));
                    usage("record", event.record(lent));
                    usage("wait_event", lent.wait_event(&event));
                    usage("copy_to_pinned", x.slice(..).copy_to_pinned(lent, &mut pinned));
                    usage("copy_from_pinned", x.slice_mut(..).copy_from_pinned(lent, &pinned));
                    usage("launch with pinned memory", lent.launch(&pinned, |_, _| ()));
                    usage("all_reduce_scalar", comm.all_reduce_scalar(1i32, ReduceOp::Sum, lent).map(drop));
                    let mixed = group(|g| {
                        g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
                        g.all_reduce(comm, InPlace(&mut y), ReduceOp::Sum, lent)
                    });
                    usage("a group within and without", mixed);
                    usage("fork of another", stream.fork(comm.device()).map(drop));
                    usage("join of another", lent.join(stream));
                    std::thread::scope(|scope| {
                        let elsewhere = scope.spawn(|| x.slice_mut(..).fill(lent, 3)).join().unwrap();
                        usage("another thread", elsewhere);
                    });
                    // Meanwhile, elsewhere, everything goes on.
                    assert_eq!(x.to_vec(stream)?, [1; 50]);
                    stream.synchronize()?;
                    kept = Some(lent.clone());
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, lent)
                })?;
                let kept = kept.unwrap();
                let late = x.fill(&kept, 4).expect_err("the capture is over");
                assert_names(&late, &["fill", "capture", "over"]);
                graph.launch(stream)?;
                assert_eq!(x.to_vec(stream)?, [comm.size() as i64; 50]);
                let other = Stream::new(comm.device())?;
                assert!(graph.launch(&kept).is_err());
                graph.launch(&other)?;
                other.synchronize()
            });
            rig.close();
        }
    });
}

/// Closures that fail or panic leave nothing behind.
#[test]
fn closures_that_fail() {
    watched(60.0, || {
        let rig = Rig::new(1);
        let (comm, stream) = (rig.clique.rank(0), Stream::new(rig.clique.rank(0).device()).unwrap());
        let mut x = DeviceBuffer::from_slice(&stream, &[3u8; 77]).unwrap();
        for _ in 0..50 {
            let failed = stream.try_capture(|lent| {
                let side = lent.fork(comm.device())?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &side)?;
                Err(Error::InvalidUsage { operation: "test", reason: "not this one".to_owned() })
            });
            assert_names(&failed.expect_err("the closure fails"), &["not this one"]);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _ = stream.capture(|lent| {
                    x.fill(lent, 1)?;
                    panic!("the test panics");
                });
            }));
            assert!(panicked.is_err());
        }
        assert_eq!(x.to_vec(&stream).unwrap(), [3; 77]);
        let empty = stream.capture(|_| Ok(())).unwrap();
        assert_eq!(empty.nodes(), 0);
        empty.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        drop(empty);
        rig.close();
    });
}

/// What a communicator was made for with regard to graphs, and nothing else.
#[cfg(nccl_ge_2_29)]
#[test]
fn as_much_as_was_said() {
    use gpucomm::Version;
    use gpucomm::nccl::{Config, GraphUsage, InitOptions};

    use crate::support::places;

    crate::support::newer::since(Version::new(2, 29, 2), 60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let devices = places();
            for usage in [GraphUsage::None, GraphUsage::One, GraphUsage::Mixed] {
                let config = Config::new().with_graph_usage(usage);
                let options = InitOptions::new().with_config(config);
                let clique = Clique::init_all_with(&devices[..ranks], &options).unwrap();
                let done = clique.spmd(|comm| {
                    let stream = Stream::new(comm.device())?;
                    let mut x = DeviceBuffer::from_slice(&stream, &[1i64; 211])?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Max, &stream)?;
                    let first = sum(comm, &stream).map(|(graph, _)| graph);
                    if usage == GraphUsage::None {
                        assert_names(&first.expect_err("no graphs"), &["all_reduce", "graph_usage", "None"]);
                        return Ok(());
                    }
                    let first = first?;
                    first.launch(&stream)?;
                    let second = sum(comm, &stream).map(drop);
                    let plain = comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream);
                    match usage {
                        GraphUsage::One => {
                            for refused in [second, plain] {
                                assert_names(&refused.expect_err("one graph"), &["all_reduce", "graph_usage is One"]);
                            }
                            drop(first);
                            sum(comm, &stream)?.0.launch(&stream)?;
                        }
                        _ => second.and(plain)?,
                    }
                    stream.synchronize()
                });
                done.unwrap();
                drop(clique);
            }
        }
    });
}

/// NCCL does not wait for the graphs of a communicator that was revoked.
#[cfg(nccl_ge_2_28_7)]
#[test]
fn no_graph_outlives_a_revoked_communicator() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rigs: Vec<_> = (0..20)
                .map(|round| {
                    let rig = Rig::new(ranks);
                    let graphs = graphs(&rig.clique);
                    graphs.iter().for_each(|(.., stream)| stream.synchronize().unwrap());
                    if round % 2 == 0 {
                        rig.clique.rank(0).revoke("the test revokes").unwrap();
                        let refused = graphs[0].0.launch(&graphs[0].2).expect_err("it was revoked");
                        assert_eq!(refused.kind(), ErrorKind::Revoked, "{refused:?}");
                    }
                    (rig, graphs)
                })
                .collect();
            let aborters: Vec<_> = rigs.iter().map(|(rig, _)| rig.clique.rank(0).aborter()).collect();
            // Those that were not revoked are aborted beside others, which go on.
            for (round, (rig, graphs)) in rigs.into_iter().enumerate() {
                let _ = if round % 4 == 1 { Some(rig.clique.rank(0).aborter().abort("the test aborts")) } else { None };
                if round % 3 == 0 { drop((graphs, rig)) } else { drop((rig, graphs)) }
            }
            // Waits until they are freed.
            for aborter in aborters {
                assert_eq!(aborter.abort("they have ended"), AbortOutcome::Already);
            }
        }
    });
}

/// A graph of each rank, over memory that NCCL registers for it.
#[cfg(nccl_ge_2_28_7)]
fn registered(clique: &Clique) -> Vec<(Graph, Stream)> {
    let captured = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let x = comm.alloc_local::<u32>(&stream, 8000)?;
        let mut y = comm.alloc_local::<u32>(&stream, 8000)?;
        let graph = stream.capture(|lent| comm.all_reduce((&x, &mut y), ReduceOp::Sum, lent))?;
        graph.launch(&stream)?;
        stream.synchronize()?;
        Ok((graph, stream))
    });
    captured.unwrap()
}

/// After a revoke nothing in NCCL removes what it has registered for graphs.
#[cfg(nccl_ge_2_28_7)]
#[test]
fn no_registration_of_a_graph_is_left_in_a_revoked_communicator() {
    watched(60.0, || {
        for round in 0..3 {
            let (rig, other) = (Rig::new(2), Rig::new(2));
            let graphs = registered(&rig.clique);
            if round == 0 {
                quick(slower(6.0), || rig.clique.rank(0).revoke("the test revokes")).unwrap();
            } else {
                // It is revoked, as another one is active on its devices.
                assert_eq!(
                    quick(slower(8.0), || rig.clique.rank(0).aborter().abort("the test aborts")),
                    AbortOutcome::Done
                );
            }
            if round == 2 {
                drop((graphs, rig))
            } else {
                drop((rig, graphs))
            }
            other.run(crate::split::sum);
        }
    });
}

/// A launch waits for a rank that never comes. Nobody can remove the registrations then: the communicator stays.
#[cfg(nccl_ge_2_28_7)]
#[test]
fn a_communicator_with_registrations_of_a_hanging_graph_stays() {
    watched(60.0, || {
        let (rig, other) = (Rig::new(2), Rig::new(2));
        let graphs = registered(&rig.clique);
        let (graph, stream) = &graphs[0];
        graph.launch(stream).unwrap();
        let outcome = quick(slower(9.0), || rig.clique.rank(0).aborter().abort("the test aborts"));
        assert_eq!(outcome, AbortOutcome::StillRunning);
        let error = stream.synchronize_timeout(slower(5.0)).expect_err("it was aborted");
        assert_eq!(error.kind(), ErrorKind::Aborted, "{error:?}");
        drop((graphs, rig));
        other.run(crate::split::sum);
    });
}
