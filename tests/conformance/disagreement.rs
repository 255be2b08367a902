//! Ranks of a clique that issue calls which do not belong together: an error on every rank, never wrong memory.

use std::time::{Duration, Instant};

use gpucomm::{
    Communicator, DeviceBuffer, Error, InPlace, Layout, RecvOnly, ReduceOp, Result, SendOnly, Stream, group,
};

use crate::support::{Rig, assert_names, quick, random, rank_counts, slower, still_works, watched};

/// Whether a rank can be done although others disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// It needs something of every other rank.
    NeedsAll,
    /// It may have its part, or have handed it on, before the contradiction is found.
    MayBeDone,
}

/// Lets every rank issue what `body` says, and expects an error on each.
///
/// The rank that comes second finds the contradiction; one that came first may have enqueued its call already, and learns
/// of it when it waits or asks the communicator; one that was done before learns of it with its next call. `named` is what
/// the text of the one that found it must hold.
pub fn disagree(
    counts: &[usize],
    rank: Rank,
    named: impl Fn(usize) -> Vec<String> + Send + 'static,
    body: impl Fn(&Communicator, &Stream) -> Result<()> + Send + Sync + 'static,
) {
    let counts = counts.to_vec();
    watched(120.0, move || {
        for ranks in rank_counts(&counts) {
            let rig = Rig::new(ranks);
            let results = quick(slower(15.0), || {
                rig.run(|comm, stream| {
                    let result =
                        body(comm, stream).and_then(|()| stream.synchronize_timeout(slower(15.0))).and_then(|()| {
                            // A rank that only sends may be done with its part before another one comes.
                            let until = Instant::now() + slower(10.0);
                            while comm.is_active() && Instant::now() < until {
                                std::thread::sleep(Duration::from_millis(1));
                            }
                            comm.async_error()
                        });
                    Ok(result)
                })
            });
            let later = |at: usize| rig.clique.rank(at).async_error();
            let errors: Vec<Error> = results
                .into_iter()
                .enumerate()
                .map(|(at, result)| if rank == Rank::MayBeDone { result.and_then(|()| later(at)) } else { result })
                .map(|result| result.expect_err("a rank did not notice"))
                .collect();
            let found = errors.iter().find(|error| matches!(error, Error::Disagreement { .. }));
            let found = found.unwrap_or_else(|| panic!("nobody reports a disagreement: {errors:?}"));
            let named = named(ranks);
            assert_names(found, &named.iter().map(String::as_str).collect::<Vec<_>>());
            assert_names(found, &["expected", "got"]);
            let verdict = verdict(found);
            for error in errors.iter().chain(&(0..ranks).map(|at| later(at).unwrap_err()).collect::<Vec<_>>()) {
                assert_eq!(self::verdict(error), verdict, "{error:?}");
            }
            drop(rig);
            still_works(ranks);
        }
    });
}

/// Who is at fault, says an error: the rank, one that it differs from, what was expected and what came.
fn verdict(error: &Error) -> (usize, usize, String, String) {
    match error {
        Error::Disagreement { rank, peer, expected, got, .. } => (*rank, *peer, expected.clone(), got.clone()),
        _ => panic!("no disagreement: {error:?}"),
    }
}

pub fn names(parts: &[&str]) -> impl Fn(usize) -> Vec<String> + Send + 'static {
    let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    move |_| parts.clone()
}

pub fn buffer<T: gpucomm::Element>(stream: &Stream, len: usize) -> Result<DeviceBuffer<T>> {
    DeviceBuffer::zeroed(stream, len)
}

/// Whether this is the one rank that does something else.
pub fn odd_one(comm: &Communicator) -> bool {
    comm.rank() == comm.size() - 1
}

#[test]
fn another_count() {
    disagree(&[2, 3, 4], Rank::NeedsAll, names(&["all_reduce", "8", "9"]), |comm, stream| {
        let mut x = buffer::<f32>(stream, if odd_one(comm) { 9 } else { 8 })?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
    });
}

#[test]
fn another_type() {
    disagree(&[2, 4], Rank::NeedsAll, names(&["all_reduce", "f32", "i32"]), |comm, stream| {
        if odd_one(comm) {
            comm.all_reduce(InPlace(&mut buffer::<i32>(stream, 8)?), ReduceOp::Sum, stream)
        } else {
            comm.all_reduce(InPlace(&mut buffer::<f32>(stream, 8)?), ReduceOp::Sum, stream)
        }
    });
}

#[test]
fn another_reduction() {
    disagree(&[2, 4], Rank::NeedsAll, names(&["all_reduce"]), |comm, stream| {
        let op = if odd_one(comm) { ReduceOp::Max } else { ReduceOp::Sum };
        comm.all_reduce(InPlace(&mut buffer::<f32>(stream, 8)?), op, stream)
    });
}

#[test]
fn another_root() {
    disagree(&[2, 4], Rank::MayBeDone, names(&["broadcast", "root"]), |comm, stream| {
        let root = usize::from(odd_one(comm));
        let x = buffer::<u64>(stream, 8)?;
        let mut y = buffer::<u64>(stream, 8)?;
        comm.broadcast((&x, &mut y), root, stream)
    });
}

#[test]
fn another_root_of_a_reduce() {
    disagree(&[2, 3], Rank::MayBeDone, names(&["reduce", "root"]), |comm, stream| {
        let x = buffer::<u64>(stream, 8)?;
        let mut y = buffer::<u64>(stream, 8)?;
        comm.reduce((&x, &mut y), ReduceOp::Sum, usize::from(odd_one(comm)), stream)
    });
}

#[test]
fn another_operation() {
    disagree(&[2, 4], Rank::MayBeDone, names(&["all_reduce", "broadcast"]), |comm, stream| {
        let mut x = buffer::<f32>(stream, 8)?;
        if odd_one(comm) {
            comm.broadcast(InPlace(&mut x), 0, stream)
        } else {
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
        }
    });
}

#[test]
fn another_order() {
    disagree(&[2], Rank::MayBeDone, names(&["all_gather", "reduce_scatter"]), |comm, stream| {
        let n = comm.size();
        let (x, mut all) = (buffer::<f32>(stream, 8)?, buffer::<f32>(stream, 8 * n)?);
        let (whole, mut part) = (buffer::<f32>(stream, 8 * n)?, buffer::<f32>(stream, 8)?);
        if odd_one(comm) {
            comm.reduce_scatter((&whole, &mut part), ReduceOp::Sum, stream)?;
            comm.all_gather((&x, &mut all), stream)
        } else {
            comm.all_gather((&x, &mut all), stream)?;
            comm.reduce_scatter((&whole, &mut part), ReduceOp::Sum, stream)
        }
    });
}

/// The tenth call differs, after nine that agree.
#[test]
fn a_later_call() {
    let named = names(&["all_reduce of 100 i8", "all_reduce of 101 i8", " (collective "]);
    disagree(&[2, 4], Rank::NeedsAll, named, |comm, stream| {
        let mut x = buffer::<i8>(stream, 101)?;
        for round in 0..10 {
            let len = if round == 9 && odd_one(comm) { 101 } else { 100 };
            comm.all_reduce(InPlace(x.slice_mut(0..len)), ReduceOp::Sum, stream)?;
        }
        Ok(())
    });
}

#[test]
fn more_sent_than_the_other_side_takes() {
    let named = names(&["of 5 f32", "of 4 f32", " (message ", " from rank 0 to rank 1), got "]);
    disagree(&[2], Rank::MayBeDone, named, |comm, stream| {
        if comm.rank() == 0 {
            comm.send(&buffer::<f32>(stream, 5)?, 1, stream)
        } else {
            comm.recv(&mut buffer::<f32>(stream, 4)?, 0, stream)
        }
    });
}

#[test]
fn less_sent_than_the_other_side_takes() {
    disagree(&[2], Rank::MayBeDone, names(&["3", "4"]), |comm, stream| {
        if comm.rank() == 0 {
            comm.send(&buffer::<f32>(stream, 3)?, 1, stream)
        } else {
            comm.recv(&mut buffer::<f32>(stream, 4)?, 0, stream)
        }
    });
}

#[test]
fn sent_as_another_type() {
    disagree(&[2], Rank::MayBeDone, names(&["f32", "u32"]), |comm, stream| {
        if comm.rank() == 0 {
            comm.send(&buffer::<f32>(stream, 4)?, 1, stream)
        } else {
            comm.recv(&mut buffer::<u32>(stream, 4)?, 0, stream)
        }
    });
}

#[test]
fn an_exchange_in_a_group_with_other_counts() {
    disagree(&[2, 3, 4], Rank::MayBeDone, names(&["16", "17"]), |comm, stream| {
        let (next, before) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
        let x = buffer::<f32>(stream, if odd_one(comm) { 17 } else { 16 })?;
        let mut y = buffer::<f32>(stream, 16)?;
        group(|g| {
            g.send(comm, &x, next, stream)?;
            g.recv(comm, &mut y, before, stream)
        })
    });
}

#[test]
fn layouts_that_contradict_each_other() {
    disagree(&[2], Rank::MayBeDone, names(&["2", "3"]), |comm, stream| {
        let x = buffer::<f32>(stream, 100)?;
        let mut y = buffer::<f32>(stream, 100)?;
        // Rank 0 sends two elements to rank 1, which expects three.
        let (out, into) = if comm.rank() == 0 { ([1, 2], [1, 4]) } else { ([4, 1], [3, 1]) };
        let layout = |counts| Layout { counts, offsets: None };
        comm.all_to_all_v((&x, &mut y), layout(&out), layout(&into), stream)
    });
}

#[test]
fn gathers_of_other_counts() {
    disagree(&[2, 3], Rank::MayBeDone, names(&["7", "8"]), |comm, stream| {
        let x = buffer::<f32>(stream, if odd_one(comm) { 7 } else { 8 })?;
        let mut y = buffer::<f32>(stream, 8 * comm.size())?;
        if comm.rank() == 0 { comm.gather((&x, &mut y), 0, stream) } else { comm.gather(SendOnly(&x), 0, stream) }
    });
}

#[test]
fn scatters_of_other_counts() {
    disagree(&[2, 3], Rank::MayBeDone, names(&["7", "8"]), |comm, stream| {
        let x = buffer::<f32>(stream, 8 * comm.size())?;
        let mut y = buffer::<f32>(stream, if odd_one(comm) { 7 } else { 8 })?;
        if comm.rank() == 0 { comm.scatter((&x, &mut y), 0, stream) } else { comm.scatter(RecvOnly(&mut y), 0, stream) }
    });
}

/// Several operations in a group, of which the last differs: nothing of the group is run.
#[test]
fn the_last_of_a_group() {
    disagree(&[2, 4], Rank::NeedsAll, names(&["all_reduce", "20", "21"]), |comm, stream| {
        let mut x = buffer::<f32>(stream, 20)?;
        let mut y = buffer::<f32>(stream, if odd_one(comm) { 21 } else { 20 })?;
        group(|g| {
            g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
            g.all_reduce(comm, InPlace(&mut y), ReduceOp::Sum, stream)
        })
    });
}

/// Memory beyond the shorter buffer stays as it was on every rank: the guards of `Guarded` are checked after the failure.
#[test]
fn nothing_beyond_the_shorter_buffer_is_written() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let len = if odd_one(comm) { 4000 } else { 16 };
                let mut x = crate::support::Guarded::holding(stream, &vec![1.0f32; len])?;
                let result = comm
                    .all_reduce(InPlace(x.inner_mut()), ReduceOp::Sum, stream)
                    .and_then(|()| stream.synchronize_timeout(slower(15.0)))
                    .and_then(|()| comm.async_error());
                assert!(result.is_err());
                x.accept();
                // Reads the guards as well.
                assert_eq!(x.read(stream)?.len(), len);
                Ok(())
            });
            drop(rig);
            still_works(ranks);
        }
    });
}

/// The rank that is alone with what it issues is at fault, whoever comes first, and all ranks say so in the same words.
#[test]
fn the_minority_is_named_on_every_rank() {
    watched(240.0, || {
        let mut random = random::rng("the minority");
        for ranks in rank_counts(&[3, 4]) {
            for _ in 0..12 {
                let (wrong, calls) = (random.usize(..ranks), random.usize(..5));
                let pauses: Vec<_> = (0..ranks).map(|_| random.u64(..3)).collect();
                let rig = Rig::new(ranks);
                let errors = rig.run(|comm, stream| {
                    let rank = comm.rank();
                    let mut x = buffer::<f32>(stream, 100)?;
                    for _ in 0..calls {
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    }
                    std::thread::sleep(Duration::from_millis(5 * pauses[rank]));
                    let len = if rank == wrong { 99 } else { 100 };
                    let result = comm
                        .all_reduce(InPlace(x.slice_mut(0..len)), ReduceOp::Max, stream)
                        .and_then(|()| stream.synchronize_timeout(slower(20.0)));
                    Ok(result.expect_err("a rank did not notice"))
                });
                for error in &errors {
                    let (rank, peer, expected, got) = verdict(error);
                    assert_eq!(rank, wrong, "{error}");
                    assert_ne!(peer, wrong, "{error}");
                    // The rig has made some collectives before.
                    assert!(expected.starts_with("all_reduce of 100 f32, max (collective "), "{error}");
                    assert_eq!(got, "all_reduce of 99 f32, max");
                    assert_eq!(verdict(error), verdict(&errors[0]));
                }
                drop(rig);
            }
            still_works(ranks);
        }
    });
}

/// One thread that drives all ranks in one group finds out as well, at once.
#[test]
fn the_minority_is_named_by_one_thread() {
    watched(60.0, || {
        for ranks in rank_counts(&[3, 4]) {
            for wrong in 0..ranks {
                let rig = Rig::new(ranks);
                let comms = rig.clique.ranks();
                let streams: Vec<_> = comms.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
                let mut buffers: Vec<_> = streams.iter().map(|stream| buffer::<u32>(stream, 7).unwrap()).collect();
                let result = quick(slower(5.0), || {
                    group(|g| {
                        for ((comm, buffer), stream) in comms.iter().zip(&mut buffers).zip(&streams) {
                            let len = if comm.rank() == wrong { 6 } else { 7 };
                            g.all_reduce(comm, InPlace(buffer.slice_mut(0..len)), ReduceOp::Sum, stream)?;
                        }
                        Ok(())
                    })
                });
                assert_eq!(verdict(&result.expect_err("nobody noticed")).0, wrong);
            }
            still_works(ranks);
        }
    });
}

/// What `spmd` returns is what the rank at fault has returned, though the others may be first.
#[test]
fn spmd_returns_the_error_of_the_rank_at_fault() {
    watched(120.0, || {
        for ranks in rank_counts(&[3, 4]) {
            for wrong in 0..ranks {
                let rig = Rig::new(ranks);
                let result = rig.try_run(|comm, stream| {
                    let mut x = buffer::<f32>(stream, 8)?;
                    if comm.rank() == wrong {
                        comm.broadcast(InPlace(&mut x), 0, stream)?;
                    } else {
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    }
                    stream.synchronize_timeout(slower(20.0))?;
                    comm.all_gather_v((x.slice(0..1), &mut buffer::<f32>(stream, ranks)?), &vec![1; ranks], stream)
                });
                let error = result.expect_err("nobody noticed");
                let (rank, _, expected, got) = verdict(&error);
                assert_eq!(rank, wrong, "{error}");
                assert!(expected.starts_with("all_reduce") && got.starts_with("broadcast"), "{error}");
                assert!(!matches!(error, Error::Disagreement { operation: "all_reduce", .. }), "{error}");
                drop(rig);
            }
            still_works(ranks);
        }
    });
}
