//! Ranks of a clique that group their calls differently where NCCL needs them alike: a disagreement.

use std::sync::Barrier;

use gpucomm::{Error, InPlace, RecvOnly, ReduceOp, Result, group};

use crate::disagreement::{Rank, buffer, disagree, names, odd_one};
use crate::support::{Rig, assert_names, rank_counts, watched};

/// NCCL reorders and merges the collectives of a group, so ranks have to group them alike.
fn grouped_differently(small: usize, large: usize) {
    let named = names(&["all_reduce", ", in a group of 2 collectives", ", by itself"]);
    disagree(&[2, 3, 4], Rank::NeedsAll, named, move |comm, stream| {
        let (mut x, mut y) = (buffer::<u32>(stream, small)?, buffer::<u32>(stream, large)?);
        if odd_one(comm) {
            group(|g| {
                g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
                g.all_reduce(comm, InPlace(&mut y), ReduceOp::Sum, stream)
            })
        } else {
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
            comm.all_reduce(InPlace(&mut y), ReduceOp::Sum, stream)
        }
    });
}

#[test]
fn another_grouping() {
    grouped_differently(4, 400_000);
}

#[test]
fn another_grouping_of_equal_sizes() {
    grouped_differently(100, 100);
}

/// Three collectives, cut after the first here and after the second there.
#[test]
fn groups_cut_elsewhere() {
    let named = names(&["in a group of 2 collectives", "by itself"]);
    disagree(&[2, 4], Rank::NeedsAll, named, |comm, stream| {
        let mut all: Vec<_> = (0..3).map(|_| buffer::<i64>(stream, 50)).collect::<Result<_>>()?;
        let (before, after) = all.split_at_mut(if odd_one(comm) { 1 } else { 2 });
        for part in [before, after] {
            group(|g| {
                for x in part {
                    g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    });
}

/// The last rank groups one more.
#[test]
fn a_longer_group() {
    let named = names(&["in a group of 3 collectives", "in a group of 2 collectives"]);
    disagree(&[2, 4], Rank::NeedsAll, named, |comm, stream| {
        let mut all: Vec<_> = (0..3).map(|_| buffer::<i64>(stream, 50)).collect::<Result<_>>()?;
        group(|g| {
            for x in &mut all[..if odd_one(comm) { 3 } else { 2 }] {
                g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream)?;
            }
            Ok(())
        })
    });
}

/// An operation that is a group of several.
#[test]
fn an_operation_of_several_beside_its_parts() {
    disagree(&[2, 3], Rank::MayBeDone, names(&["broadcast", "by itself"]), |comm, stream| {
        let (rank, n) = (comm.rank(), comm.size());
        let (x, mut y) = (buffer::<f32>(stream, 5)?, buffer::<f32>(stream, 5 * n)?);
        if odd_one(comm) {
            for root in 0..n {
                let part = y.slice_mut(5 * root..5 * root + 5);
                if root == rank {
                    comm.broadcast((&x, part), root, stream)?;
                } else {
                    comm.broadcast(RecvOnly(part), root, stream)?;
                }
            }
            Ok(())
        } else {
            comm.all_gather_v((&x, &mut y), &vec![5; n], stream)
        }
    });
}

/// NCCL makes messages of an all_to_all, a gather, a scatter (since it has them), between the others of the same two ranks.
#[test]
fn a_message_before_and_after_an_all_to_all() {
    if gpucomm::nccl::built_version().minor < 28 {
        return;
    }
    disagree(&[2, 4], Rank::MayBeDone, names(&["4 u8", "all_to_all"]), |comm, stream| {
        let (x, mut y) = (buffer::<u8>(stream, 4 * comm.size())?, buffer::<u8>(stream, 4 * comm.size())?);
        let mut message = buffer::<u8>(stream, 4)?;
        match comm.rank() {
            0 => {
                comm.send(&message, 1, stream)?;
                comm.all_to_all((&x, &mut y), stream)
            }
            1 => {
                comm.all_to_all((&x, &mut y), stream)?;
                comm.recv(&mut message, 0, stream)
            }
            _ => comm.all_to_all((&x, &mut y), stream),
        }
    });
}

/// Whichever of the two comes first: the other one is refused as it is issued, before anything waits for it.
#[test]
fn a_message_and_an_all_to_all_are_told_apart_at_once() {
    if gpucomm::nccl::built_version().minor < 28 {
        return;
    }
    watched(60.0, || {
        for message_first in [false, true] {
            let Some(rig) = rank_counts(&[2]).first().map(|&ranks| Rig::new(ranks)) else { return };
            let turn = Barrier::new(2);
            let ended = rig.try_run(|comm, stream| {
                let (x, mut y, mut message) =
                    (buffer::<u8>(stream, 8)?, buffer::<u8>(stream, 8)?, buffer::<u8>(stream, 4)?);
                // Nobody waits for a connection later on.
                comm.all_to_all((&x, &mut y), stream)?;
                if comm.rank() == 0 {
                    comm.send(&message, 1, stream)?
                } else {
                    comm.recv(&mut message, 0, stream)?
                }
                stream.synchronize()?;
                let comes = (comm.rank() == 0) == message_first;
                if !comes {
                    turn.wait();
                }
                let issued = if comm.rank() == 0 {
                    comm.send(&message, 1, stream)
                } else {
                    comm.all_to_all((&x, &mut y), stream)
                };
                if comes {
                    turn.wait();
                    return issued;
                }
                let error = issued.expect_err("it comes behind the other");
                assert!(matches!(error, Error::Disagreement { .. }), "message first: {message_first}: {error}");
                Err(error)
            });
            assert_names(&ended.expect_err("ranks disagree"), &["4 u8", "all_to_all"]);
        }
    });
}

/// Within a group the messages of an all_to_all come after the collectives: grouped here, one by one there, each would wait for the other.
#[test]
fn an_all_to_all_in_a_group_with_a_collective() {
    if gpucomm::nccl::built_version().minor < 28 {
        return;
    }
    let named = names(&["all_to_all", ", in a group of 2 collectives", ", by itself"]);
    disagree(&[2, 4], Rank::NeedsAll, named, |comm, stream| {
        let (x, mut y) = (buffer::<u8>(stream, 4 * comm.size())?, buffer::<u8>(stream, 4 * comm.size())?);
        let mut sum = buffer::<u32>(stream, 5)?;
        if odd_one(comm) {
            group(|g| {
                g.all_to_all(comm, (&x, &mut y), stream)?;
                g.all_reduce(comm, InPlace(&mut sum), ReduceOp::Sum, stream)
            })
        } else {
            comm.all_to_all((&x, &mut y), stream)?;
            comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, stream)
        }
    });
}
