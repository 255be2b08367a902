//! The collectives that reduce: each element type × reduction × in place or not × 1 to 4 ranks × lengths.

use gpucomm::{ElementKind, InPlace, SendOnly};

use crate::support::reference::{Want, bound, check, reduce};
use crate::support::{Case, Guarded, Number, Op, OpExt, Rig, each_type, harness::lengths, rank_counts, takes, watched};

/// How long the large case is on the emulator: a million for one type, enough for several chunks for the others.
fn large<T: Number>(op: Op) -> usize {
    if T::KIND == ElementKind::F32 && op == Op::Sum { 1_000_003 } else { 20_011 }
}

fn every<T: Number>(name: &str, ranks: usize, mut body: impl FnMut(Op, usize, bool)) {
    for op in Op::of::<T>(ranks) {
        for len in lengths(large::<T>(op)) {
            for in_place in [false, true] {
                if takes((name, T::KIND, op, ranks, len, in_place)) {
                    body(op, len, in_place);
                }
            }
        }
    }
}

fn all_reduce_of<T: Number>(rig: &Rig) {
    every::<T>("all_reduce", rig.size(), |op, len, in_place| {
        let case = Case::reducing::<T>("all_reduce", op, rig.size(), len, in_place);
        let inputs = case.inputs::<T>(rig.size(), len);
        let want = reduce(&inputs, op);
        rig.run(|comm, stream| {
            let mine = &inputs[comm.rank()];
            if in_place {
                let mut both = Guarded::holding(stream, mine)?;
                op.with(comm, |op| comm.all_reduce(InPlace(both.inner_mut()), op, stream))?;
                check(&case, comm.rank(), &both.read(stream)?, &want);
            } else {
                let send = Guarded::holding(stream, mine)?;
                let mut recv = Guarded::poisoned(stream, len)?;
                op.with(comm, |op| comm.all_reduce((send.inner(), recv.inner_mut()), op, stream))?;
                check(&case, comm.rank(), &recv.read(stream)?, &want);
                case.same(comm.rank(), &send.read(stream)?, mine);
            }
            Ok(())
        });
    });
}

#[test]
fn all_reduce() {
    watched(240.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            each_type!(all_reduce_of(&rig));
            rig.close();
        }
    });
}

fn reduce_of<T: Number>(rig: &Rig) {
    let mut turn = 0;
    every::<T>("reduce", rig.size(), |op, len, in_place| {
        turn += 1;
        let root = turn % rig.size();
        let case = Case::reducing::<T>(&format!("reduce to {root}"), op, rig.size(), len, in_place);
        let inputs = case.inputs::<T>(rig.size(), len);
        let want = reduce(&inputs, op);
        rig.run(|comm, stream| {
            let mine = &inputs[comm.rank()];
            if in_place && comm.rank() == root {
                let mut both = Guarded::holding(stream, mine)?;
                op.with(comm, |op| comm.reduce(InPlace(both.inner_mut()), op, root, stream))?;
                check(&case, root, &both.read(stream)?, &want);
                return Ok(());
            }
            let send = Guarded::holding(stream, mine)?;
            if comm.rank() == root {
                let mut recv = Guarded::poisoned(stream, len)?;
                op.with(comm, |op| comm.reduce((send.inner(), recv.inner_mut()), op, root, stream))?;
                check(&case, root, &recv.read(stream)?, &want);
            } else {
                op.with(comm, |op| comm.reduce(SendOnly(send.inner()), op, root, stream))?;
            }
            case.same(comm.rank(), &send.read(stream)?, mine);
            Ok(())
        });
    });
}

#[test]
fn reduce_to_each_root() {
    watched(240.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            each_type!(reduce_of(&rig));
            rig.close();
        }
    });
}

/// The part of `rank` when `all` is dealt out evenly.
fn part<T>(all: &[T], rank: usize, len: usize) -> &[T] {
    &all[rank * len..(rank + 1) * len]
}

fn reduce_scatter_of<T: Number>(rig: &Rig) {
    every::<T>("reduce_scatter", rig.size(), |op, total, in_place| {
        // The length of the matrix is that of the larger side, so that four ranks do not take four times as long.
        let ranks = rig.size();
        let len = if total > 1021 { total / ranks } else { total };
        let case = Case::reducing::<T>("reduce_scatter", op, ranks, len, in_place);
        let inputs = case.inputs::<T>(ranks, len * ranks);
        let want = reduce(&inputs, op);
        rig.run(|comm, stream| {
            let (rank, mine) = (comm.rank(), &inputs[comm.rank()]);
            if in_place {
                let mut both = Guarded::holding(stream, mine)?;
                op.with(comm, |op| comm.reduce_scatter(InPlace(both.inner_mut()), op, stream))?;
                check(&case, rank, part(&both.read(stream)?, rank, len), part(&want, rank, len));
            } else {
                let send = Guarded::holding(stream, mine)?;
                let mut recv = Guarded::poisoned(stream, len)?;
                op.with(comm, |op| comm.reduce_scatter((send.inner(), recv.inner_mut()), op, stream))?;
                check(&case, rank, &recv.read(stream)?, part(&want, rank, len));
                case.same(rank, &send.read(stream)?, mine);
            }
            Ok(())
        });
    });
}

#[test]
fn reduce_scatter() {
    watched(240.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            each_type!(reduce_scatter_of(&rig));
            rig.close();
        }
    });
}

/// Floats that do round: the answer lies within the bound that `reference::bound` derives.
fn rounding_of<T: Number>(rig: &Rig) {
    for op in [Op::Sum, Op::Prod, Op::Avg, Op::PreMul] {
        let len = 4099;
        let case = Case::reducing::<T>("all_reduce that rounds", op, rig.size(), len, false);
        let inputs: Vec<Vec<T>> = (0..rig.size())
            .map(|rank| {
                let mut rng = case.rng(rank);
                let mut draw = || T::nearest((rng.f64() * 1.5 + 0.5) * if rng.bool() { 1.0 } else { -1.0 });
                (0..len).map(|_| draw()).collect()
            })
            .collect();
        let column = |at: usize| -> Vec<T> { inputs.iter().map(|input| input[at]).collect() };
        let want: Vec<Want<T>> =
            (0..len).map(|at| Want { value: T::reduce(&column(at), op), tolerance: bound(&column(at), op) }).collect();
        let results = rig.run(|comm, stream| {
            let send = Guarded::holding(stream, &inputs[comm.rank()])?;
            let mut recv = Guarded::poisoned(stream, len)?;
            op.with(comm, |op| comm.all_reduce((send.inner(), recv.inner_mut()), op, stream))?;
            let got = recv.read(stream)?;
            check(&case, comm.rank(), &got, &want);
            Ok(got)
        });
        for (rank, result) in results.iter().enumerate() {
            case.same(rank, result, &results[0]);
        }
    }
}

#[test]
fn floats_round_within_the_bound_and_equally_on_all_ranks() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            rounding_of::<gpucomm::f16>(&rig);
            rounding_of::<gpucomm::bf16>(&rig);
            rounding_of::<f32>(&rig);
            rounding_of::<f64>(&rig);
            #[cfg(all(feature = "float8", nccl_ge_2_24))]
            if crate::support::harness::reduces_float8() {
                rounding_of::<gpucomm::F8E4M3>(&rig);
                rounding_of::<gpucomm::F8E5M2>(&rig);
            }
            rig.close();
        }
    });
}
