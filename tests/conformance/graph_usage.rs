//! Communicators that were made for one graph: NCCL keeps nothing in order between that and the rest.

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use gpucomm::nccl::{AbortOutcome, Config, GraphUsage, InitOptions};
use gpucomm::{Clique, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, Version, group};

use crate::graph_ends::sum;
use crate::support::newer::since;
use crate::support::random::rng;
use crate::support::{assert_names, places, quick, rank_counts, slower};

/// The first version that can be told so.
const FIRST: Version = Version::new(2, 29, 2);

fn one() -> Config {
    Config::new().with_graph_usage(GraphUsage::One)
}

fn clique(ranks: usize, config: Config) -> Clique {
    let options = InitOptions::new().with_config(config);
    Clique::init_all_with(&places()[..ranks], &options).unwrap()
}

/// What comes next on `stream` does so a little later.
fn delay(stream: &Stream, ms: u64) -> Result<()> {
    stream.launch_host(move || thread::sleep(Duration::from_millis(ms)))
}

/// Sums on some of `streams`, with pauses, of which nobody waits for any.
fn sums(comm: &Communicator, streams: &[Stream], rng: &mut Rng) -> Result<Vec<(DeviceBuffer<i64>, i64)>> {
    let made = (0..rng.usize(1..5)).map(|_| {
        let stream = rng.choice(streams).expect("streams");
        let (value, length) = (rng.i64(-1000..1000), rng.usize(0..300));
        let mut x = DeviceBuffer::from_slice(stream, &vec![value; length])?;
        delay(stream, rng.u64(0..8))?;
        match rng.bool() {
            true => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?,
            false => {
                let mut y = DeviceBuffer::<u8>::zeroed(stream, 3)?;
                group(|g| {
                    g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
                    g.broadcast(comm, InPlace(&mut y), 0, stream)
                })?;
            }
        }
        Ok((x, value * comm.size() as i64))
    });
    made.collect()
}

/// Graphs and operations in turn, on whatever streams: each comes after those before, with nothing to wait for in between.
#[test]
fn all_comes_in_order() {
    since(FIRST, 120.0, || {
        for ranks in rank_counts(&[1, 2, 3]) {
            let seed = rng(&format!("one graph {ranks}")).u64(..);
            // Nothing is connected yet: the capture does that beside itself.
            let clique = clique(ranks, one());
            let done = clique.spmd(|comm| {
                let mut rng = Rng::with_seed(seed);
                let streams: Vec<_> = (0..4).map(|_| Stream::new(comm.device())).collect::<Result<_>>()?;
                let mut expected = Vec::new();
                for round in 0..12 {
                    if round > 0 {
                        expected.extend(sums(comm, &streams, &mut rng)?);
                    }
                    let (graph, x) = sum(comm, rng.choice(&streams).expect("streams"))?;
                    let launches = rng.u32(1..4);
                    for _ in 0..launches {
                        let stream = rng.choice(&streams).expect("streams");
                        delay(stream, rng.u64(0..8))?;
                        graph.launch(stream)?;
                    }
                    if rng.bool() {
                        assert_eq!(x.to_vec(&streams[0])?, [(ranks as i64).pow(launches); 211], "round {round}");
                    }
                    // It is on its way.
                    drop(graph);
                }
                let reader = Stream::new(comm.device())?;
                for (at, (x, value)) in expected.iter().enumerate() {
                    assert!(x.to_vec(&reader)?.iter().all(|got| got == value), "sum {at}");
                }
                streams.iter().try_for_each(Stream::synchronize)
            });
            done.unwrap();
            clique.close_timeout(slower(20.0)).unwrap();
        }
    });
}

/// As long as a capture has some of it, all becomes part of that: whoever asks.
#[test]
fn captures_do_not_meet() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let clique = clique(ranks, one());
            let done = clique.spmd(|comm| {
                let (stream, other) = (Stream::new(comm.device())?, Stream::new(comm.device())?);
                let mut x = DeviceBuffer::from_slice(&stream, &[1i64; 77])?;
                let mut y = DeviceBuffer::from_slice(&stream, &[1i64; 77])?;
                let refused = |result: Result<()>| {
                    assert_names(&result.expect_err("one capture"), &["graph_usage is One", "capture"]);
                };
                let graph = stream.capture(|stream| {
                    // Nothing of it is captured yet.
                    comm.all_reduce(InPlace(&mut y), ReduceOp::Sum, &other)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    refused(comm.all_reduce(InPlace(&mut y), ReduceOp::Sum, &other));
                    let mut z = DeviceBuffer::from_slice(&other, &[1i64; 3])?;
                    refused(group(|g| {
                        g.all_reduce(comm, InPlace(&mut y), ReduceOp::Max, &other)?;
                        g.all_reduce(comm, InPlace(&mut z), ReduceOp::Sum, &other)
                    }));
                    refused(other.capture(|inner| comm.all_reduce(InPlace(&mut y), ReduceOp::Sum, inner)).map(drop));
                    thread::scope(|scope| {
                        let beside = scope.spawn(|| {
                            refused(
                                other.capture(|own| comm.all_reduce(InPlace(&mut y), ReduceOp::Sum, own)).map(drop),
                            );
                            refused(comm.all_reduce(InPlace(&mut y), ReduceOp::Sum, &other));
                            refused(comm.prepare_one_sided(&other));
                        });
                        beside.join().expect("the other thread");
                    });
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
                })?;
                graph.launch(&other)?;
                graph.launch(&stream)?;
                let beside = comm.prepare_one_sided(&other).expect_err("one graph");
                assert_names(&beside, &["prepare_one_sided", "graph_usage is One", "as long as there is a graph"]);
                assert_eq!(x.to_vec(&other)?, [(ranks as i64).pow(4); 77]);
                assert_eq!(y.to_vec(&other)?, [ranks as i64; 77]);
                drop(graph);
                // A capture of which no graph comes leaves nothing behind.
                let none = stream.capture(|stream| {
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Min, stream)?;
                    Err(Error::InvalidUsage { operation: "the test", reason: "no graph comes of it".to_owned() })
                });
                assert_names(&none.expect_err("no graph"), &["the test"]);
                comm.all_reduce(InPlace(&mut y), ReduceOp::Sum, &other)?;
                assert_eq!(y.to_vec(&other)?, [(ranks as i64).pow(2); 77]);
                Ok(())
            });
            done.unwrap();
        }
    });
}

/// NCCL does not see launches, and would go on before they do.
#[test]
fn revoking_waits_for_launches() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let clique = clique(ranks, one());
            let graphs = clique.spmd(|comm| {
                let stream = Stream::new(comm.device())?;
                let (graph, x) = sum(comm, &stream)?;
                graph.launch(&stream)?;
                stream.synchronize()?;
                // Longer than kernels take that have been stopped.
                delay(&stream, 700)?;
                graph.launch(&stream)?;
                Ok((graph, x, stream))
            });
            let graphs = graphs.unwrap();
            clique.rank(0).revoke("the test revokes").unwrap();
            for (comm, (graph, _, stream)) in clique.ranks().iter().zip(&graphs) {
                let refused = graph.launch(stream).expect_err("it was revoked");
                assert!(matches!(refused, Error::Revoked { .. }), "{refused:?}");
                assert!(comm.revoked().is_some());
            }
            drop(graphs);
        }
    });
}

/// One whose launch waits for a rank that does not come cannot be stopped and go on; it ends.
#[test]
fn launches_that_hang_are_aborted() {
    since(FIRST, 90.0, || {
        // With others on the devices, who are not to be held up by that.
        for (ranks, others) in rank_counts(&[2, 3]).into_iter().zip([true, false]) {
            let others = others.then(|| clique(ranks, Config::new()));
            let clique = clique(ranks, one());
            let graphs = clique.spmd(|comm| {
                let stream = Stream::new(comm.device())?;
                let (graph, x) = sum(comm, &stream)?;
                if comm.rank() > 0 {
                    graph.launch(&stream)?;
                }
                Ok((graph, x, stream))
            });
            let graphs = graphs.unwrap();
            let ended = clique.rank(0).revoke("the test revokes").expect_err("it hangs");
            assert_names(&ended, &["revoke", "graph_usage is One"]);
            for (graph, _, stream) in &graphs {
                let refused = graph.launch(stream).expect_err("it has ended");
                assert!(
                    matches!(refused, Error::Aborted { .. } | Error::Revoked { .. } | Error::Timeout { .. }),
                    "{refused:?}"
                );
                let _ = stream.synchronize_timeout(slower(10.0));
            }
            drop((clique, graphs, others));
            crate::support::still_works(ranks);
        }
    });
}

/// NCCL frees what a launch uses as soon as no graph is left: one that is dropped stays until its launches have left.
#[test]
fn dropped_while_a_launch_hangs() {
    since(FIRST, 90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let clique = clique(ranks, one());
            let streams = clique.spmd(|comm| {
                let stream = Stream::new(comm.device())?;
                let (graph, _x) = sum(comm, &stream)?;
                if comm.rank() > 0 {
                    graph.launch(&stream)?;
                }
                Ok(stream)
            });
            let streams = streams.unwrap();
            // Its flags stop the launch: there is nothing else to wait for.
            assert_eq!(clique.abort("the test aborts"), AbortOutcome::Done);
            for stream in &streams {
                let _ = quick(slower(1.0), || stream.synchronize_timeout(slower(10.0)));
            }
            drop(streams);
            crate::support::still_works(ranks);
        }
    });
}

/// A graph of all ranks that one thread drops while it is on its way holds up none of them when it is done.
#[test]
fn dropped_by_one_thread_for_all() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let mut comms = clique(ranks, one()).into_ranks();
            let streams: Vec<_> = comms.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
            let mut buffers: Vec<_> =
                streams.iter().map(|stream| DeviceBuffer::from_slice(stream, &[1i64; 77]).unwrap()).collect();
            let graph = streams[0].capture(|stream| {
                let lanes: Vec<_> = comms[1..].iter().map(|comm| stream.fork(comm.device())).collect::<Result<_>>()?;
                group(|g| {
                    for ((comm, x), lane) in comms.iter().zip(&mut buffers).zip([stream].into_iter().chain(&lanes)) {
                        g.all_reduce(comm, InPlace(x), ReduceOp::Sum, lane)?;
                    }
                    Ok(())
                })
            });
            let graph = graph.unwrap();
            graph.launch(&streams[0]).unwrap();
            drop(graph);
            for (x, stream) in buffers.iter().zip(&streams) {
                assert_eq!(x.to_vec(stream).unwrap(), [ranks as i64; 77]);
            }
            // The last one first, while the others live.
            while let Some(comm) = comms.pop() {
                comm.close_timeout(slower(10.0)).unwrap();
            }
        }
    });
}

/// Of what shares its resources not all is in one graph.
#[test]
fn sharers_capture_nothing() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let clique = clique(ranks, one().with_split_share(true));
            let done = clique.spmd(|comm| {
                let stream = Stream::new(comm.device())?;
                let half = comm.split(Some(0), comm.rank())?.expect("a part");
                for comm in [comm, &half] {
                    assert_names(&sum(comm, &stream).map(drop).expect_err("shared"), &["graph_usage is One", "shares"]);
                    let mut x = DeviceBuffer::from_slice(&stream, &[1i64; 7])?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                    assert_eq!(x.to_vec(&stream)?, [ranks as i64; 7]);
                }
                Ok(())
            });
            done.unwrap();
        }
    });
}

/// Where NCCL has been told not to order what is captured on several streams, it comes in order all the same.
#[cfg(nccl_ge_2_30_7)]
#[test]
fn streams_of_a_capture_come_in_order() {
    since(Version::new(2, 30, 7), 60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let clique = clique(ranks, one().with_graph_stream_ordering(false));
            let done = clique.spmd(|comm| {
                let stream = Stream::new(comm.device())?;
                let mut all: Vec<_> =
                    (0..5).map(|_| DeviceBuffer::from_slice(&stream, &[1i64; 211])).collect::<Result<_>>()?;
                let graph = stream.capture(|stream| {
                    let sides = [stream.fork(comm.device())?, stream.fork(comm.device())?];
                    let [a, b, c, d, e] = &mut all[..] else { unreachable!("five") };
                    comm.all_reduce(InPlace(a), ReduceOp::Sum, &sides[0])?;
                    comm.all_reduce(InPlace(b), ReduceOp::Sum, &sides[1])?;
                    group(|g| {
                        g.all_reduce(comm, InPlace(c), ReduceOp::Sum, stream)?;
                        g.all_reduce(comm, InPlace(d), ReduceOp::Sum, &sides[0])
                    })?;
                    comm.all_reduce(InPlace(e), ReduceOp::Sum, &sides[1])
                })?;
                graph.launch(&stream)?;
                graph.launch(&stream)?;
                for x in &all {
                    assert_eq!(x.to_vec(&stream)?, [(ranks as i64).pow(2); 211]);
                }
                Ok(())
            });
            done.unwrap();
        }
    });
}
