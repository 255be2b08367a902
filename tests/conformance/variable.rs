//! Collectives in which every rank has a length of its own: packed and with gaps, and with ranks that have nothing.

use gpucomm::{InPlace, Layout, RecvOnly, SendOnly};

use crate::support::reference::{check, reduce};
use crate::support::{Case, Guarded, Number, Op, OpExt, Rig, each_type, rank_counts, takes, watched};

/// Where the parts lie in one buffer.
#[derive(Debug, Clone)]
struct Parts {
    counts: Vec<usize>,
    offsets: Option<Vec<usize>>,
}

impl Parts {
    /// One behind the other.
    fn packed(counts: Vec<usize>) -> Self {
        Self { counts, offsets: None }
    }

    /// In reverse order, with gaps of different widths.
    fn scattered(counts: Vec<usize>) -> Self {
        let mut offsets = vec![0; counts.len()];
        let mut at = 3;
        for rank in (0..counts.len()).rev() {
            offsets[rank] = at;
            at += counts[rank] + 1 + rank;
        }
        Self { counts, offsets: Some(offsets) }
    }

    fn both(counts: &[usize]) -> [Self; 2] {
        [Self::packed(counts.to_vec()), Self::scattered(counts.to_vec())]
    }

    fn layout(&self) -> Layout<'_> {
        Layout { counts: &self.counts, offsets: self.offsets.as_deref() }
    }

    fn range(&self, rank: usize) -> std::ops::Range<usize> {
        let start = match &self.offsets {
            Some(offsets) => offsets[rank],
            None => self.counts[..rank].iter().sum(),
        };
        start..start + self.counts[rank]
    }

    fn extent(&self) -> usize {
        (0..self.counts.len()).map(|rank| self.range(rank).end).max().unwrap_or(0)
    }

    /// A buffer of poison with these parts filled in.
    fn filled<T: Number>(&self, parts: impl Fn(usize) -> Option<Vec<T>>) -> Vec<T> {
        let mut all = vec![T::poison(); self.extent()];
        for rank in 0..self.counts.len() {
            if let Some(part) = parts(rank) {
                all[self.range(rank)].copy_from_slice(&part);
            }
        }
        all
    }
}

/// Lengths a rank may have; some have nothing, and one time all have nothing.
fn sets(ranks: usize) -> Vec<Vec<usize>> {
    let take = |counts: [usize; 4]| counts[..ranks].to_vec();
    vec![take([7, 0, 1021, 3]), take([0, 513, 1, 64]), take([0; 4]), take([8000, 4001, 0, 12_345])]
}

fn every<T: Number>(name: &str, ranks: usize, mut body: impl FnMut(&Parts, bool)) {
    for counts in sets(ranks) {
        for parts in Parts::both(&counts) {
            for in_place in [false, true] {
                if takes((name, T::KIND, &parts.counts, &parts.offsets, in_place)) {
                    body(&parts, in_place);
                }
            }
        }
    }
}

fn all_gather_v_of<T: Number>(rig: &Rig) {
    every::<T>("all_gather_v", rig.size(), |parts, in_place| {
        let case = Case::moving::<T>(&format!("all_gather_v {parts:?}"), rig.size(), parts.extent(), in_place);
        let input = |rank: usize| case.input::<T>(rank, parts.counts[rank]);
        let want = parts.filled(|rank| Some(input(rank)));
        rig.run(|comm, stream| {
            let rank = comm.rank();
            if in_place {
                let mine = parts.filled(|part| (part == rank).then(|| input(rank)));
                let mut both = Guarded::holding(stream, &mine)?;
                comm.all_gather_v(InPlace(both.inner_mut()), parts.layout(), stream)?;
                case.same(rank, &both.read(stream)?, &want);
            } else {
                let send = Guarded::holding(stream, &input(rank))?;
                let mut recv = Guarded::poisoned(stream, want.len())?;
                comm.all_gather_v((send.inner(), recv.inner_mut()), parts.layout(), stream)?;
                case.same(rank, &recv.read(stream)?, &want);
            }
            Ok(())
        });
    });
}

fn gather_v_of<T: Number>(rig: &Rig) {
    let mut turn = 0;
    every::<T>("gather_v", rig.size(), |parts, in_place| {
        turn += 1;
        let root = turn % rig.size();
        let case = Case::moving::<T>(&format!("gather_v {parts:?}"), rig.size(), parts.extent(), in_place);
        let input = |rank: usize| case.input::<T>(rank, parts.counts[rank]);
        let want = parts.filled(|rank| Some(input(rank)));
        rig.run(|comm, stream| {
            let rank = comm.rank();
            let send = Guarded::holding(stream, &input(rank))?;
            if rank != root {
                comm.gather_v(SendOnly(send.inner()), parts.layout(), root, stream)?;
            } else if in_place {
                let mine = parts.filled(|part| (part == rank).then(|| input(rank)));
                let mut both = Guarded::holding(stream, &mine)?;
                comm.gather_v(InPlace(both.inner_mut()), parts.layout(), root, stream)?;
                case.same(rank, &both.read(stream)?, &want);
            } else {
                let mut recv = Guarded::poisoned(stream, want.len())?;
                comm.gather_v((send.inner(), recv.inner_mut()), parts.layout(), root, stream)?;
                case.same(rank, &recv.read(stream)?, &want);
            }
            Ok(())
        });
    });
}

fn scatter_v_of<T: Number>(rig: &Rig) {
    let mut turn = 0;
    every::<T>("scatter_v", rig.size(), |parts, in_place| {
        turn += 1;
        let root = turn % rig.size();
        let case = Case::moving::<T>(&format!("scatter_v {parts:?}"), rig.size(), parts.extent(), in_place);
        let input = case.input::<T>(root, parts.extent());
        rig.run(|comm, stream| {
            let rank = comm.rank();
            let want = &input[parts.range(rank)];
            if rank == root && in_place {
                let mut both = Guarded::holding(stream, &input)?;
                comm.scatter_v(InPlace(both.inner_mut()), parts.layout(), root, stream)?;
                case.same(rank, &both.read(stream)?, &input);
                return Ok(());
            }
            let mut recv = Guarded::poisoned(stream, want.len())?;
            if rank == root {
                let send = Guarded::holding(stream, &input)?;
                comm.scatter_v((send.inner(), recv.inner_mut()), parts.layout(), root, stream)?;
            } else {
                comm.scatter_v(RecvOnly(recv.inner_mut()), parts.layout(), root, stream)?;
            }
            case.same(rank, &recv.read(stream)?, want);
            Ok(())
        });
    });
}

fn reduce_scatter_v_of<T: Number>(rig: &Rig) {
    let (mut turn, ops) = (0, Op::of::<T>(rig.size()));
    every::<T>("reduce_scatter_v", rig.size(), |parts, in_place| {
        turn += 1;
        let op = ops[turn % ops.len()];
        let case =
            Case::reducing::<T>(&format!("reduce_scatter_v {parts:?}"), op, rig.size(), parts.extent(), in_place);
        let inputs = case.inputs::<T>(rig.size(), parts.extent());
        let want = reduce(&inputs, op);
        rig.run(|comm, stream| {
            let rank = comm.rank();
            let want = &want[parts.range(rank)];
            if in_place {
                let mut both = Guarded::holding(stream, &inputs[rank])?;
                op.with(comm, |op| comm.reduce_scatter_v(InPlace(both.inner_mut()), parts.layout(), op, stream))?;
                check(&case, rank, &both.read(stream)?[parts.range(rank)], want);
            } else {
                let send = Guarded::holding(stream, &inputs[rank])?;
                let mut recv = Guarded::poisoned(stream, want.len())?;
                op.with(comm, |op| {
                    comm.reduce_scatter_v((send.inner(), recv.inner_mut()), parts.layout(), op, stream)
                })?;
                check(&case, rank, &recv.read(stream)?, want);
                case.same(rank, &send.read(stream)?, &inputs[rank]);
            }
            Ok(())
        });
    });
}

/// What `from` has for `to`: different for each pair, nothing for some.
fn count(from: usize, to: usize, scale: usize) -> usize {
    if (from + 2 * to) % 3 == 1 { 0 } else { scale * (from + 1) + 7 * to }
}

fn all_to_all_v_of<T: Number>(rig: &Rig) {
    let ranks = rig.size();
    for scale in [0, 1, 1021] {
        for gaps in [false, true] {
            let counts = |rank: usize, sends: bool| -> Vec<usize> {
                (0..ranks).map(|peer| if sends { count(rank, peer, scale) } else { count(peer, rank, scale) }).collect()
            };
            let parts = |rank: usize, sends: bool| {
                if gaps { Parts::scattered(counts(rank, sends)) } else { Parts::packed(counts(rank, sends)) }
            };
            let case = Case::moving::<T>(&format!("all_to_all_v, gaps: {gaps}"), ranks, scale, false);
            let inputs: Vec<Vec<T>> = (0..ranks).map(|rank| case.input(rank, parts(rank, true).extent())).collect();
            rig.run(|comm, stream| {
                let rank = comm.rank();
                let (out, into) = (parts(rank, true), parts(rank, false));
                let want = into.filled(|peer| Some(inputs[peer][parts(peer, true).range(rank)].to_vec()));
                let send = Guarded::holding(stream, &inputs[rank])?;
                let mut recv = Guarded::poisoned(stream, into.extent())?;
                comm.all_to_all_v((send.inner(), recv.inner_mut()), out.layout(), into.layout(), stream)?;
                case.same(rank, &recv.read(stream)?, &want);
                case.same(rank, &send.read(stream)?, &inputs[rank]);
                Ok(())
            });
        }
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
    all_gather_v => all_gather_v_of;
    gather_v => gather_v_of;
    scatter_v => scatter_v_of;
    reduce_scatter_v => reduce_scatter_v_of;
    all_to_all_v => all_to_all_v_of;
}
