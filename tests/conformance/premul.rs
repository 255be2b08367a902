//! Reductions that multiply first: scalars from the host and from the device, and their lifetime.

use gpucomm::{DeviceBuffer, InPlace, group};

use crate::support::{Case, Guarded, Number, Op, Rig, each_type, number::scalar_of, rank_counts, watched};

/// A scalar that lies on the device must give what the same scalar from the host gives.
fn device_scalar_of<T: Number>(rig: &Rig) {
    if !Op::of::<T>(rig.size()).contains(&Op::PreMul) {
        return;
    }
    for len in [0, 1, 1021] {
        let case = Case::reducing::<T>("all_reduce, scalar on the device", Op::PreMul, rig.size(), len, false);
        let inputs = case.inputs::<T>(rig.size(), len);
        let want = crate::support::reference::reduce(&inputs, Op::PreMul);
        rig.run(|comm, stream| {
            // Not the first element, so that an offset which is ignored is noticed.
            let scalars = DeviceBuffer::from_slice(stream, &[T::of(9), scalar_of::<T>(comm.rank()), T::of(7)])?;
            let operator = comm.pre_mul_sum_device(scalars.slice(1..2))?;
            let send = Guarded::holding(stream, &inputs[comm.rank()])?;
            let mut recv = Guarded::poisoned(stream, len)?;
            comm.all_reduce((send.inner(), recv.inner_mut()), &operator, stream)?;
            crate::support::reference::check(&case, comm.rank(), &recv.read(stream)?, &want);
            Ok(())
        });
    }
}

#[test]
fn scalars_on_the_device() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            each_type!(device_scalar_of(&rig));
            rig.close();
        }
    });
}

#[test]
fn several_operators_at_once_and_each_used_often() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let operators =
                    (1..=20).map(|n| comm.pre_mul_sum(f64::from(n))).collect::<gpucomm::Result<Vec<_>>>()?;
                for _ in 0..3 {
                    for (at, operator) in operators.iter().enumerate() {
                        let mut x = DeviceBuffer::from_slice(stream, &[comm.rank() as f64 + 1.0; 3])?;
                        comm.all_reduce(InPlace(&mut x), operator, stream)?;
                        let want = (at + 1) as f64 * (ranks * (ranks + 1) / 2) as f64;
                        assert_eq!(x.to_vec(stream)?, [want; 3]);
                    }
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// The operator is gone before the device has done the work: NCCL took the scalar when the operation was enqueued.
#[test]
fn an_operator_may_go_before_the_work_is_done() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &vec![1.0f32; 100_000])?;
                for _ in 0..5 {
                    let operator = comm.pre_mul_sum(0.5f32)?;
                    comm.all_reduce(InPlace(&mut x), &operator, stream)?;
                }
                let got = x.to_vec(stream)?;
                assert!(got.iter().all(|value| *value == 1.0), "half of two, five times: {:?}", &got[..4]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// A device scalar may be overwritten and freed as soon as the call has returned: stream order keeps it for the operation.
#[test]
fn a_device_scalar_is_kept_by_stream_order() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &vec![1i64; 50_000])?;
                {
                    let scalar = DeviceBuffer::from_slice(stream, &[3i64])?;
                    let operator = comm.pre_mul_sum_device(&scalar)?;
                    comm.all_reduce(InPlace(&mut x), &operator, stream)?;
                }
                let other = DeviceBuffer::from_slice(stream, &[77i64; 64])?;
                assert!(x.to_vec(stream)?.iter().all(|value| *value == 6));
                assert_eq!(other.to_vec(stream)?, [77; 64]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// A graph reads the factor when it runs. The graph keeps it, and takes what was written to it until then.
#[test]
fn a_captured_device_scalar() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1.0f32; 8])?;
                let capture = |x: &mut DeviceBuffer<f32>, scalar: &DeviceBuffer<f32>| {
                    let operator = comm.pre_mul_sum_device(scalar)?;
                    stream.capture(|stream| comm.all_reduce(InPlace(x), &operator, stream))
                };
                let scalar = DeviceBuffer::from_slice(stream, &[3.0f32])?;
                let graph = capture(&mut x, &scalar)?;
                drop(scalar);
                // What would take its place.
                let others: gpucomm::Result<Vec<_>> =
                    (0..200).map(|_| DeviceBuffer::from_slice(stream, &[100.0f32])).collect();
                graph.launch(stream)?;
                assert_eq!(x.to_vec(stream)?, [6.0; 8]);
                drop(others?);
                let mut scalar = DeviceBuffer::from_slice(stream, &[3.0f32])?;
                let graph = capture(&mut x, &scalar)?;
                scalar.fill(stream, 0.5)?;
                graph.launch(stream)?;
                assert_eq!(x.to_vec(stream)?, [6.0; 8]);
                scalar.fill(stream, 2.0)?;
                graph.launch(stream)?;
                assert_eq!(x.to_vec(stream)?, [24.0; 8]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// One operator for all calls of a group, and it is gone with its factor when the group has been submitted.
#[test]
fn a_device_scalar_in_a_group() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[2.0f32; 8])?;
                let mut y = DeviceBuffer::from_slice(stream, &[1.0f32; 1021])?;
                {
                    let scalar = DeviceBuffer::from_slice(stream, &[5.0f32])?;
                    let operator = comm.pre_mul_sum_device(&scalar)?;
                    group(|g| {
                        g.all_reduce(comm, InPlace(&mut x), &operator, stream)?;
                        g.all_reduce(comm, InPlace(&mut y), &operator, stream)
                    })?;
                }
                let other = DeviceBuffer::from_slice(stream, &[100.0f32; 64])?;
                assert_eq!((x.to_vec(stream)?, y.to_vec(stream)?), (vec![20.0; 8], vec![10.0; 1021]));
                drop(other);
                Ok(())
            });
            rig.close();
        }
    });
}
