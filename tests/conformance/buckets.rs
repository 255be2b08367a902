//! One reduction over many buffers.

use std::sync::mpsc::channel;

use gpucomm::{DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, group};

use crate::support::{Rig, assert_names, rank_counts, slower, watched};

/// The value of element `at` of buffer `bucket` on `rank`.
fn value(rank: usize, bucket: usize, at: usize) -> i64 {
    ((rank + 1) * (bucket + 3) + at) as i64
}

fn values(rank: usize, lens: &[usize]) -> Vec<Vec<i64>> {
    lens.iter().enumerate().map(|(bucket, &len)| (0..len).map(|at| value(rank, bucket, at)).collect()).collect()
}

fn sums(ranks: usize, lens: &[usize]) -> Vec<Vec<i64>> {
    let mut sums: Vec<Vec<i64>> = lens.iter().map(|&len| vec![0; len]).collect();
    for rank in 0..ranks {
        let mine = values(rank, lens);
        sums.iter_mut().flatten().zip(mine.iter().flatten()).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// None, one, several, and more than a group has room for on the stack, or a queue; out of place and in place.
#[test]
fn in_and_out_of_place() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            for buckets in [0, 1, 3, 17, 150] {
                let lens: Vec<_> = (0..buckets).map(|bucket| [5, 1021, 0, 64][bucket % 4]).collect();
                let want = sums(ranks, &lens);
                rig.run(|comm, stream| {
                    let on_device = |values: &Vec<i64>| DeviceBuffer::from_slice(stream, values);
                    let of = |buffers: &[DeviceBuffer<i64>]| -> Result<Vec<Vec<i64>>> {
                        buffers.iter().map(|buffer| buffer.to_vec(stream)).collect()
                    };
                    let mut x: Vec<_> = values(comm.rank(), &lens).iter().map(on_device).collect::<Result<_>>()?;
                    let mut y: Vec<_> = lens.iter().map(|len| on_device(&vec![-7; *len])).collect::<Result<_>>()?;
                    comm.all_reduce_many(x.iter().zip(&mut y), ReduceOp::Sum, stream)?;
                    assert_eq!(of(&y)?, want, "{buckets} buffers out of place");
                    assert_eq!(of(&x)?, values(comm.rank(), &lens));
                    group(|g| g.all_reduce_many(comm, x.iter_mut().map(InPlace), ReduceOp::Sum, stream))?;
                    assert_eq!(of(&x)?, want, "{buckets} buffers in place");
                    // Beside other operations of a group.
                    let mut z = DeviceBuffer::from_slice(stream, &[1i64])?;
                    group(|g| {
                        g.all_reduce(comm, InPlace(&mut z), ReduceOp::Sum, stream)?;
                        g.all_reduce_many(comm, y.iter_mut().map(InPlace), ReduceOp::Max, stream)
                    })?;
                    assert_eq!((of(&y)?, z.to_vec(stream)?), (want.clone(), vec![ranks as i64]));
                    Ok(())
                });
            }
            rig.close();
        }
    });
}

/// Which buffer it is about, and nothing is submitted or recorded.
#[test]
fn bad_input() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let x: Vec<_> =
                    (1..4).map(|len| DeviceBuffer::from_slice(stream, &vec![1u32; len])).collect::<Result<_>>()?;
                let mut y: Vec<_> = [1, 2, 1]
                    .map(|len| DeviceBuffer::from_slice(stream, &vec![9u32; len]))
                    .into_iter()
                    .collect::<Result<_>>()?;
                let error = comm.all_reduce_many(x.iter().zip(&mut y), ReduceOp::Sum, stream).expect_err("too short");
                assert!(
                    matches!(error, Error::InvalidArgument { operation: "all_reduce_many", what: "recv", .. }),
                    "{error:?}"
                );
                assert_names(&error, &["at least 3 elements", "got 1 elements", "of buffer 2"]);
                group(|g| {
                    let error =
                        g.all_reduce_many(comm, x.iter().zip(&mut y), ReduceOp::Sum, stream).expect_err("too short");
                    assert_names(&error, &["of buffer 2"]);
                    assert!(g.is_empty());
                    Ok(())
                })?;
                for y in &y {
                    assert_eq!(y.to_vec(stream)?, vec![9; y.len()]);
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// Buckets of one flat buffer: one is reduced on a stream of its own while the next one is still being written.
#[test]
fn a_bucket_is_reduced_while_the_next_is_written() {
    const LEN: usize = 1021;
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let kernels = Stream::new(comm.device())?;
                let mut flat = DeviceBuffer::<f32>::zeroed(&kernels, 3 * LEN)?;
                comm.all_reduce(InPlace(flat.as_slice_mut()), ReduceOp::Sum, stream)?;
                for round in 1..4_u8 {
                    flat.slice_mut(..LEN).fill(&kernels, f32::from(round))?;
                    let (open, opened) = channel::<()>();
                    // A bucket that is written for long.
                    comm.all_reduce(InPlace(flat.slice_mut(..LEN)), ReduceOp::Sum, stream)?;
                    kernels.launch_host(move || drop(opened.recv_timeout(slower(30.0))))?;
                    flat.slice_mut(LEN..2 * LEN).fill(&kernels, 7.0)?;
                    let mut first = vec![0.0; LEN];
                    flat.slice(..LEN).copy_to_slice_timeout(stream, &mut first, slower(20.0))?;
                    assert_eq!(first, vec![f32::from(round) * ranks as f32; LEN]);
                    assert!(!kernels.query()?, "the other bucket is not written yet");
                    drop(open);
                    comm.all_reduce(InPlace(flat.slice_mut(LEN..)), ReduceOp::Max, stream)?;
                    assert_eq!(flat.to_vec(&kernels)?[LEN..2 * LEN], [7.0; LEN]);
                }
                Ok(())
            });
            rig.close();
        }
    });
}
