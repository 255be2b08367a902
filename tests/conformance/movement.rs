//! The collectives that only move data: each element type × in place or not × 1 to 4 ranks × lengths.

use gpucomm::{DeviceBuffer, ElementKind, InPlace, RecvOnly, ReduceOp, SendOnly, Stream};

use crate::support::{
    Case, Guarded, Number, Rig, assert_argument, each_type, harness::lengths, rank_counts, takes, watched,
};

fn every<T: Number>(name: &str, ranks: usize, mut body: impl FnMut(usize, bool, usize)) {
    let large = if T::KIND == ElementKind::U8 { 1_000_003 } else { 20_011 };
    let mut turn = 0;
    for len in lengths(large) {
        for in_place in [false, true] {
            // The small ones with every root, the large ones with one.
            let roots = if len <= 1 { ranks } else { 1 };
            for root in 0..roots {
                turn += 1;
                if !takes((name, T::KIND, ranks, len, in_place, turn)) {
                    continue;
                }
                body(len, in_place, if roots == 1 { turn % ranks } else { root });
            }
        }
    }
}

fn part<T>(all: &[T], rank: usize, len: usize) -> &[T] {
    &all[rank * len..(rank + 1) * len]
}

/// Everybody's vectors, one behind the other.
fn joined<T: Copy>(inputs: &[Vec<T>]) -> Vec<T> {
    inputs.concat()
}

/// A full-length buffer in which only the part of `rank` holds something.
fn only<T: Number>(mine: &[T], rank: usize, ranks: usize) -> Vec<T> {
    let mut all = vec![T::poison(); mine.len() * ranks];
    all[rank * mine.len()..(rank + 1) * mine.len()].copy_from_slice(mine);
    all
}

fn broadcast_of<T: Number>(rig: &Rig) {
    every::<T>("broadcast", rig.size(), |len, in_place, root| {
        let case = Case::moving::<T>(&format!("broadcast from {root}"), rig.size(), len, in_place);
        let input = case.input::<T>(root, len);
        rig.run(|comm, stream| {
            if comm.rank() != root {
                let mut recv = Guarded::poisoned(stream, len)?;
                if in_place {
                    comm.broadcast(InPlace(recv.inner_mut()), root, stream)?;
                } else {
                    comm.broadcast(RecvOnly(recv.inner_mut()), root, stream)?;
                }
                case.same(comm.rank(), &recv.read(stream)?, &input);
            } else if in_place {
                let mut both = Guarded::holding(stream, &input)?;
                comm.broadcast(InPlace(both.inner_mut()), root, stream)?;
                case.same(root, &both.read(stream)?, &input);
            } else {
                let send = Guarded::holding(stream, &input)?;
                let mut recv = Guarded::poisoned(stream, len)?;
                comm.broadcast((send.inner(), recv.inner_mut()), root, stream)?;
                case.same(root, &recv.read(stream)?, &input);
                case.same(root, &send.read(stream)?, &input);
            }
            Ok(())
        });
    });
}

fn all_gather_of<T: Number>(rig: &Rig) {
    every::<T>("all_gather", rig.size(), |len, in_place, _| {
        let case = Case::moving::<T>("all_gather", rig.size(), len, in_place);
        let inputs = case.inputs::<T>(rig.size(), len);
        let want = joined(&inputs);
        rig.run(|comm, stream| {
            let (rank, mine) = (comm.rank(), &inputs[comm.rank()]);
            if in_place {
                let mut both = Guarded::holding(stream, &only(mine, rank, comm.size()))?;
                comm.all_gather(InPlace(both.inner_mut()), stream)?;
                case.same(rank, &both.read(stream)?, &want);
            } else {
                let send = Guarded::holding(stream, mine)?;
                let mut recv = Guarded::poisoned(stream, want.len())?;
                comm.all_gather((send.inner(), recv.inner_mut()), stream)?;
                case.same(rank, &recv.read(stream)?, &want);
                case.same(rank, &send.read(stream)?, mine);
            }
            Ok(())
        });
    });
}

fn gather_of<T: Number>(rig: &Rig) {
    every::<T>("gather", rig.size(), |len, in_place, root| {
        let case = Case::moving::<T>(&format!("gather to {root}"), rig.size(), len, in_place);
        let inputs = case.inputs::<T>(rig.size(), len);
        let want = joined(&inputs);
        rig.run(|comm, stream| {
            let (rank, mine) = (comm.rank(), &inputs[comm.rank()]);
            if rank == root && in_place {
                let mut both = Guarded::holding(stream, &only(mine, rank, comm.size()))?;
                comm.gather(InPlace(both.inner_mut()), root, stream)?;
                case.same(rank, &both.read(stream)?, &want);
                return Ok(());
            }
            let send = Guarded::holding(stream, mine)?;
            if rank == root {
                let mut recv = Guarded::poisoned(stream, want.len())?;
                comm.gather((send.inner(), recv.inner_mut()), root, stream)?;
                case.same(rank, &recv.read(stream)?, &want);
            } else {
                comm.gather(SendOnly(send.inner()), root, stream)?;
            }
            case.same(rank, &send.read(stream)?, mine);
            Ok(())
        });
    });
}

fn scatter_of<T: Number>(rig: &Rig) {
    every::<T>("scatter", rig.size(), |len, in_place, root| {
        let case = Case::moving::<T>(&format!("scatter from {root}"), rig.size(), len, in_place);
        let input = case.input::<T>(root, len * rig.size());
        rig.run(|comm, stream| {
            let rank = comm.rank();
            let want = part(&input, rank, len);
            if rank != root {
                let mut recv = Guarded::poisoned(stream, len)?;
                comm.scatter(RecvOnly(recv.inner_mut()), root, stream)?;
                case.same(rank, &recv.read(stream)?, want);
            } else if in_place {
                let mut both = Guarded::holding(stream, &input)?;
                comm.scatter(InPlace(both.inner_mut()), root, stream)?;
                case.same(rank, &both.read(stream)?, &input);
            } else {
                let send = Guarded::holding(stream, &input)?;
                let mut recv = Guarded::poisoned(stream, len)?;
                comm.scatter((send.inner(), recv.inner_mut()), root, stream)?;
                case.same(rank, &recv.read(stream)?, want);
                case.same(rank, &send.read(stream)?, &input);
            }
            Ok(())
        });
    });
}

fn all_to_all_of<T: Number>(rig: &Rig) {
    for len in lengths(20_011) {
        let case = Case::moving::<T>("all_to_all", rig.size(), len, false);
        let inputs = case.inputs::<T>(rig.size(), len * rig.size());
        rig.run(|comm, stream| {
            let rank = comm.rank();
            let want: Vec<T> = inputs.iter().flat_map(|input| part(input, rank, len)).copied().collect();
            let send = Guarded::holding(stream, &inputs[rank])?;
            let mut recv = Guarded::poisoned(stream, want.len())?;
            comm.all_to_all((send.inner(), recv.inner_mut()), stream)?;
            case.same(rank, &recv.read(stream)?, &want);
            case.same(rank, &send.read(stream)?, &inputs[rank]);
            Ok(())
        });
    }
}

macro_rules! tests {
    ($($name:ident => $function:ident;)*) => {$(
        #[test]
        fn $name() {
            watched(180.0, || {
                for ranks in rank_counts(&[1, 2, 3, 4]) {
                    let rig = Rig::new(ranks);
                    each_type!($function(&rig));
                    rig.close();
                }
            });
        }
    )*};
}

tests! {
    broadcast => broadcast_of;
    all_gather => all_gather_of;
    gather => gather_of;
    scatter => scatter_of;
    all_to_all => all_to_all_of;
}

/// Of two buffers, the ranks that are not the root use one. The other may have any length.
#[test]
fn the_other_ranks_use_one_buffer() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            for root in 0..ranks {
                for other in [0, 1, 9] {
                    rig.run(|comm, stream| {
                        let is_root = comm.rank() == root;
                        let len = |at_root: usize| if is_root { at_root } else { other };
                        let sent = |len: usize| DeviceBuffer::from_slice(stream, &vec![7u32; len]);
                        let mut recv = DeviceBuffer::<u32>::zeroed(stream, 3)?;
                        comm.broadcast((&sent(len(3))?, &mut recv), root, stream)?;
                        assert_eq!(recv.to_vec(stream)?, [7; 3]);
                        recv.fill(stream, 0)?;
                        comm.scatter((&sent(len(3 * ranks))?, &mut recv), root, stream)?;
                        assert_eq!(recv.to_vec(stream)?, [7; 3]);
                        let mut all = DeviceBuffer::<u32>::zeroed(stream, len(3 * ranks))?;
                        comm.gather((&sent(3)?, &mut all), root, stream)?;
                        assert!(!is_root || all.to_vec(stream)? == vec![7; 3 * ranks]);
                        comm.reduce((&sent(3)?, &mut all), ReduceOp::Max, root, stream)?;
                        assert!(!is_root || all.to_vec(stream)?[..3] == [7; 3]);
                        Ok(())
                    });
                }
            }
        }
    });
}

/// Each rank takes as many elements as its `recv` has, so the root has just as many for it.
#[test]
fn a_root_sends_as_much_as_it_receives() {
    watched(60.0, || {
        let rig = Rig::new(2);
        let comm = rig.clique.rank(0);
        let stream = &Stream::new(comm.device()).unwrap();
        let expected = "elements, as each rank takes as many as its recv has";
        for len in [0, 2, 4, 8] {
            let send = DeviceBuffer::from_slice(stream, &vec![7u32; len]).unwrap();
            let mut recv = DeviceBuffer::<u32>::zeroed(stream, 3).unwrap();
            let refused = comm.broadcast((&send, &mut recv), 0, stream);
            assert_argument(refused, "broadcast", &format!("3 {expected}"), &format!("{len} elements"));
            let refused = comm.scatter((&send, &mut recv), 0, stream);
            assert_argument(refused, "scatter", &format!("6 {expected}"), &format!("{len} elements"));
        }
        rig.run(|comm, stream| comm.barrier(stream));
    });
}
