//! Buffers of a communicator: allocated by NCCL, registered as windows where the version has them.

use std::sync::Arc;
use std::time::Instant;

use gpucomm::nccl::PreMulSum;
use gpucomm::{CommBuffer, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Stream, group};

use crate::support::{Case, Number, Op, OpExt, Rig, assert_names, each_type, rank_counts, slower, takes, watched};

#[test]
fn a_new_buffer_holds_zeros_or_what_it_was_made_from() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                // Dirty memory first, so that zeros are not an accident.
                let mut dirty = comm.alloc::<u32>(stream, 4096)?;
                dirty.fill(stream, 0xdead_beef)?;
                stream.synchronize()?;
                drop(dirty);
                for len in [0, 1, 1021, 4096] {
                    let zeros = comm.alloc::<u32>(stream, len)?;
                    assert_eq!((zeros.len(), zeros.is_empty()), (len, len == 0));
                    assert_eq!(zeros.device(), comm.device());
                    assert_eq!(zeros.to_vec(stream)?, vec![0; len]);
                    let values: Vec<u32> = (0..len as u32).collect();
                    assert_eq!(comm.alloc_from(stream, &values)?.to_vec(stream)?, values);
                }
                Ok(())
            });
            rig.close();
        }
    });
}

fn all_reduce_of<T: Number>(rig: &Rig) {
    for op in Op::ALL {
        for len in [0, 1, 1021, 60_001].into_iter().filter(|len| takes(("windows", T::KIND, rig.size(), op, len))) {
            let case = Case::reducing::<T>("all_reduce of windows", op, rig.size(), len, true);
            let inputs = case.inputs::<T>(rig.size(), len);
            let want = crate::support::reference::reduce(&inputs, op);
            rig.run(|comm, stream| {
                let mut x = comm.alloc_from(stream, &inputs[comm.rank()])?;
                let mut y = comm.alloc::<T>(stream, len)?;
                op.with(comm, |op| comm.all_reduce((&x, &mut y), op, stream))?;
                op.with(comm, |op| comm.all_reduce(InPlace(&mut x), op, stream))?;
                crate::support::reference::check(&case, comm.rank(), &y.to_vec(stream)?, &want);
                crate::support::reference::check(&case, comm.rank(), &x.to_vec(stream)?, &want);
                Ok(())
            });
        }
    }
}

#[test]
fn all_reduce_of_windows() {
    watched(180.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            all_reduce_of::<f32>(&rig);
            all_reduce_of::<gpucomm::bf16>(&rig);
            all_reduce_of::<i8>(&rig);
            rig.close();
        }
    });
}

fn other_operations_of<T: Number>(rig: &Rig) {
    let (ranks, len) = (rig.size(), 1021);
    let case = Case::moving::<T>("operations on windows", ranks, len, false);
    let inputs = case.inputs::<T>(ranks, len * ranks);
    rig.run(|comm, stream| {
        let rank = comm.rank();
        let mine = &inputs[rank];
        let whole = comm.alloc_from(stream, mine)?;
        let mut all = comm.alloc::<T>(stream, len * ranks)?;
        let mut part = comm.alloc::<T>(stream, len)?;

        comm.all_gather((whole.slice(0..len), &mut all), stream)?;
        let want: Vec<T> = inputs.iter().flat_map(|input| input[..len].to_vec()).collect();
        case.same(rank, &all.to_vec(stream)?, &want);

        comm.reduce_scatter((&whole, &mut part), ReduceOp::Max, stream)?;
        let range = rank * len..(rank + 1) * len;
        let columns: Vec<Vec<T>> = inputs.iter().map(|input| input[range.clone()].to_vec()).collect();
        let want = crate::support::reference::reduce(&columns, Op::Max);
        crate::support::reference::check(&case, rank, &part.to_vec(stream)?, &want);

        comm.all_to_all((&whole, &mut all), stream)?;
        let want: Vec<T> = inputs.iter().flat_map(|input| input[range.clone()].to_vec()).collect();
        case.same(rank, &all.to_vec(stream)?, &want);

        comm.broadcast(InPlace(&mut all), 0, stream)?;
        let want: Vec<T> = inputs.iter().flat_map(|input| input[..len].to_vec()).collect();
        case.same(rank, &all.to_vec(stream)?, &want);

        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        group(|g| {
            g.send(comm, whole.slice(3..len), next, stream)?;
            g.recv(comm, part.slice_mut(0..len - 3), before, stream)
        })?;
        case.same(rank, &part.to_vec(stream)?[..len - 3], &inputs[before][3..len]);
        Ok(())
    });
}

#[test]
fn other_operations_on_windows() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            each_type!(other_operations_of(&rig));
            rig.close();
        }
    });
}

/// Windows and plain buffers in one operation.
#[test]
fn windows_mix_with_plain_buffers() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let window = comm.alloc_from(stream, &[comm.rank() as i64; 77])?;
                let mut plain = DeviceBuffer::<i64>::zeroed(stream, 77)?;
                comm.all_reduce((&window, &mut plain), ReduceOp::Sum, stream)?;
                assert_eq!(plain.to_vec(stream)?, [(ranks * (ranks - 1) / 2) as i64; 77]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// Only the last rank allocates: who waited for the others here would not come back.
#[test]
fn a_rank_allocates_by_itself() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mine = [comm.rank() as i64 + 1; 1021];
                let want = vec![(ranks * (ranks + 1) / 2) as i64; 1021];
                if comm.rank() + 1 < ranks {
                    let mut plain = DeviceBuffer::from_slice(stream, &mine)?;
                    comm.all_reduce(InPlace(&mut plain), ReduceOp::Sum, stream)?;
                    assert_eq!(plain.to_vec(stream)?, want);
                    return Ok(());
                }
                let mut dirty = comm.alloc_local::<i64>(stream, 1100)?;
                dirty.fill(stream, -7)?;
                stream.synchronize()?;
                drop(dirty);
                for len in [0, 1, 1100] {
                    let zeros = comm.alloc_local::<i64>(stream, len)?;
                    assert_eq!((zeros.len(), zeros.is_window(), zeros.device()), (len, false, comm.device()));
                    assert_eq!(zeros.to_vec(stream)?, vec![0; len]);
                }
                let (mut from, mut to) = (comm.alloc_local(stream, 1030)?, comm.alloc_local(stream, 1024)?);
                from.fill(stream, -7)?;
                from.slice_mut(5..1026).copy_from_slice(stream, &mine)?;
                to.fill(stream, -7)?;
                comm.all_reduce((from.slice(5..1026), to.slice_mut(3..)), ReduceOp::Sum, stream)?;
                assert_eq!(to.to_vec(stream)?, [&[-7; 3][..], &want].concat());
                Ok(())
            });
            rig.close();
        }
    });
}

/// A buffer goes while the operation that uses it may still run; what is allocated next must not disturb it.
#[test]
fn buffers_dropped_while_in_use() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut sum = DeviceBuffer::<f32>::zeroed(stream, 50_000)?;
                for round in 0..10 {
                    let window = comm.alloc_from(stream, &vec![round as f32 + comm.rank() as f32; 50_000])?;
                    comm.all_reduce((&window, &mut sum), ReduceOp::Sum, stream)?;
                    drop(window);
                    let plain = DeviceBuffer::from_slice(stream, &vec![round as f32; 50_000])?;
                    drop(plain);
                    let want = (round * ranks + ranks * (ranks - 1) / 2) as f32;
                    assert!(sum.to_vec(stream)?.iter().all(|value| *value == want), "round {round}");
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// Dropping a buffer that is in use neither waits for the device nor takes the memory away from it.
#[test]
fn drops_do_not_wait() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut window = comm.alloc_from(stream, &[1.0f32; 5000])?;
                let mut plain = DeviceBuffer::<f32>::zeroed(stream, 5000)?;
                let mut sum = DeviceBuffer::<f32>::zeroed(stream, 5000)?;
                stream.synchronize()?;
                let (open, opened) = std::sync::mpsc::channel::<()>();
                stream.launch_host(move || assert!(opened.recv_timeout(slower(20.0)).is_err()))?;
                comm.all_reduce((&window, &mut plain), ReduceOp::Sum, stream)?;
                comm.all_reduce((&plain, &mut sum), ReduceOp::Sum, stream)?;
                window.fill(stream, 7.0)?;
                let start = Instant::now();
                drop(window);
                drop(plain);
                let took = start.elapsed();
                assert!(!stream.query()?, "it waited until the stream went on");
                assert!(took < slower(10.0), "{took:?}");
                drop(open);
                assert_eq!(sum.to_vec(stream)?, vec![(ranks * ranks) as f32; 5000]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// A communicator and what belongs to it in one struct, through `Arc`.
struct Both {
    // Dropped first, before the communicator: the buffer holds it too, so that would not matter.
    comm: Arc<Communicator>,
    values: CommBuffer<'static, f32>,
    more: CommBuffer<'static, f32>,
    twice: PreMulSum<'static, f32>,
}

#[test]
fn a_struct_may_hold_a_communicator_and_its_buffers() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let threads: Vec<_> = Rig::new(ranks)
                .clique
                .into_ranks()
                .into_iter()
                .map(|comm| {
                    std::thread::spawn(move || -> gpucomm::Result<Vec<f32>> {
                        let stream = Stream::new(comm.device())?;
                        let comm = Arc::new(comm);
                        let values = comm.alloc_shared::<f32>(&stream, 100)?;
                        let more = comm.alloc_from(&stream, &[3.0f32; 7])?.into_shared(&comm)?;
                        let twice = comm.pre_mul_sum(2.0f32)?.into_shared(&comm)?;
                        let mut both = Both { comm, values, more, twice };
                        both.values.fill(&stream, 2.0)?;
                        both.comm.all_reduce(InPlace(&mut both.values), ReduceOp::Sum, &stream)?;
                        both.comm.all_reduce(InPlace(&mut both.more), &both.twice, &stream)?;
                        let result = both.values.to_vec(&stream)?;
                        let Both { comm, values, more, twice } = both;
                        drop(comm);
                        drop(values);
                        drop(twice);
                        // The last buffer keeps the communicator alive, and itself readable.
                        assert_eq!(more.to_vec(&stream)?, [6.0 * ranks as f32; 7]);
                        Ok(result)
                    })
                })
                .collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap().unwrap(), [2.0 * ranks as f32; 100]);
            }
        }
    });
}

/// What belongs to one communicator does not keep another one, and a factor on the device stays borrowed.
#[test]
fn only_its_own_communicator_is_shared() {
    watched(60.0, || {
        let mut ranks = Rig::new(1).clique.into_ranks().into_iter().chain(Rig::new(1).clique.into_ranks());
        let (one, other) = (Arc::new(ranks.next().unwrap()), Arc::new(ranks.next().unwrap()));
        let stream = Stream::new(one.device()).unwrap();
        let errors = [
            one.alloc::<u8>(&stream, 3).unwrap().into_shared(&other).unwrap_err(),
            one.alloc_local::<u8>(&stream, 3).unwrap().into_shared(&other).unwrap_err(),
            one.pre_mul_sum(3u8).unwrap().into_shared(&other).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert_names(&error, &["into_shared", "another one"]);
        }
        let factor = DeviceBuffer::from_slice(&stream, &[2.0f32]).unwrap();
        let error = one.pre_mul_sum_device(&factor).unwrap().into_shared(&one).unwrap_err();
        assert_names(&error, &["into_shared", "factor", "borrows"]);
    });
}
