//! Reductions of values of the host.

use gpucomm::{Error, ReduceOp, Stream};

use fastrand::Rng;

use crate::support::random::seed;
use crate::support::{Number, Op, Rig, assert_argument, each_type, quick, rank_counts, slower, still_works, watched};

/// One more than its rank: what comes of it is a small number, whatever the type.
fn one<T: Number>(ranks: usize) {
    if !T::holds_sums_of(ranks) {
        return;
    }
    let rig = Rig::new(ranks);
    let value = |number: usize| T::of(number as u8);
    rig.run(|comm, stream| {
        let mine = value(comm.rank() + 1);
        let sum = value((1..=ranks).sum());
        assert_eq!(comm.all_reduce_scalar(mine, ReduceOp::Sum, stream)?.to_f64(), sum.to_f64());
        assert_eq!(comm.all_reduce_scalar(mine, ReduceOp::Max, stream)?.to_f64(), value(ranks).to_f64());
        assert_eq!(comm.all_reduce_scalar(mine, ReduceOp::Min, stream)?.to_f64(), value(1).to_f64());
        if Op::of::<T>(ranks).contains(&Op::PreMul) {
            let twice = comm.pre_mul_sum(value(2))?;
            let [sum, none] = comm.all_reduce_scalars([mine, value(0)], &twice, stream)?;
            assert_eq!((sum.to_f64(), none.to_f64()), (value((1..=ranks).map(|it| 2 * it).sum()).to_f64(), 0.0));
        }
        let several = comm.all_reduce_scalars([mine, value(3), value(0)], ReduceOp::Max, stream)?;
        assert_eq!(several.map(T::to_f64), [value(ranks), value(3), value(0)].map(T::to_f64));
        let nothing: [T; 0] = comm.all_reduce_scalars([], ReduceOp::Sum, stream)?;
        assert!(nothing.is_empty());
        Ok(())
    });
    rig.close();
}

#[test]
fn all_types() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            each_type!(one(ranks));
        }
    });
}

/// Vectors come back, slices are reduced where they are.
#[test]
fn of_any_length() {
    watched(120.0, || {
        let seed = seed();
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            // From one block of staging memory to several, odd ones too.
            for len in [0, 1, 7, 1001, 100_003] {
                let value =
                    |rank: usize, at: usize| Rng::with_seed(seed ^ (rank * 1_000_003 + at) as u64).u64(..1 << 32);
                let all = |rank: usize| (0..len).map(|at| value(rank, at)).collect::<Vec<_>>();
                let sums: Vec<u64> = (0..len).map(|at| (0..ranks).map(|rank| value(rank, at)).sum()).collect();
                let largest: Vec<u64> =
                    (0..len).map(|at| (0..ranks).map(|rank| value(rank, at)).max().unwrap()).collect();
                rig.run(|comm, stream| {
                    let mut here = [vec![u64::MAX], all(comm.rank()), vec![u64::MAX]].concat();
                    let part = comm.all_reduce_scalars(&mut here[1..=len], ReduceOp::Sum, stream)?;
                    assert_eq!(part.len(), len);
                    assert_eq!(
                        here,
                        [vec![u64::MAX], sums.clone(), vec![u64::MAX]].concat(),
                        "{len} values, seed {seed}"
                    );
                    let back: Vec<u64> = comm.all_reduce_scalars(all(comm.rank()), ReduceOp::Max, stream)?;
                    assert_eq!(back, largest, "{len} values, seed {seed}");
                    Ok(())
                });
            }
            rig.close();
        }
    });
}

/// The deadline is that of the communicator, and a group has no room for what waits.
#[test]
fn bad_input() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let grouped = gpucomm::group(|_| {
                let stream = Stream::new(rig.clique.rank(0).device())?;
                rig.clique.rank(0).all_reduce_scalar(1, ReduceOp::Sum, &stream)
            });
            let operation = "all_reduce_scalar";
            assert!(
                matches!(&grouped, Err(Error::InvalidUsage { operation: of, .. }) if *of == operation),
                "{grouped:?}"
            );
            let elsewhere = Stream::new(rig.clique.rank(1).device()).unwrap();
            let result = rig.clique.rank(0).all_reduce_scalar(1, ReduceOp::Sum, &elsewhere);
            assert_argument(result, operation, "device 0", "device 1");
            let result = quick(slower(3.0), || {
                rig.try_run(|comm, stream| {
                    comm.set_timeout(slower(1.0));
                    comm.all_reduce_scalar(1i32, ReduceOp::Sum, stream)?;
                    if comm.rank() == 1 { Ok(0) } else { comm.all_reduce_scalar(1i32, ReduceOp::Sum, stream) }
                })
            });
            let error = result.expect_err("rank 1 has not come");
            assert!(matches!(&error, Error::Timeout { operation: of, .. } if *of == operation), "{error:?}");
            crate::support::assert_names(&error, &["rank 1"]);
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}
