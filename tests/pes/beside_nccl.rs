//! NCCL and NVSHMEM in one process, on one device.

use std::time::Instant;

use gpucomm::nvshmem::{Comparison, Pe, SignalOp, Status};
use gpucomm::{Clique, Communicator, Device, DeviceBuffer, InPlace, ReduceOp, Stream, UniqueId};

use crate::support::random::same;
use crate::support::{as_pes, slower, with_context};

/// Elements on each PE.
const LEN: usize = 4001;

/// Each reads what the other has written, on one stream and with nothing in between; a communicator is made and closed while the context is there.
#[test]
fn each_takes_what_the_other_has_made() {
    with_context(|here| {
        if here.ctx.status() != Status::Initialized {
            // NCCL wants a device for each rank.
            return;
        }
        let (ctx, stream, n, pe) = (here.ctx, here.stream, here.n_pes(), here.pe());
        for round in 0..3u32 {
            let id = UniqueId::shared(&here.seat.exchange).unwrap();
            // SAFETY: all PEs make these calls, in this order.
            let comm = unsafe { Communicator::init_rank(here.seat.device, n, &id, pe) }.unwrap();
            let mut world = ctx.world().unwrap();
            let values = |of: usize| -> Vec<u32> {
                let mut rng = here.rng_of(&format!("round {round}"), of);
                (0..LEN).map(|_| rng.u32(..1 << 20)).collect()
            };
            let all: Vec<Vec<u32>> = (0..n).map(values).collect();
            let sums: Vec<u32> = (0..LEN).map(|at| all.iter().map(|one| one[at]).sum()).collect();
            let mut symmetric = ctx.alloc::<u32>(LEN).unwrap();
            let (mut arrived, mut most) = (ctx.alloc::<u32>(LEN).unwrap(), ctx.alloc::<u32>(LEN).unwrap());
            let mut plain = DeviceBuffer::<u32>::zeroed(stream, n * LEN).unwrap();
            for _ in 0..5 {
                // What NCCL has summed in symmetric memory is put to the next one, and gathered by NCCL from there.
                symmetric.copy_from_slice(stream, &all[pe]).unwrap();
                comm.all_reduce(InPlace(&mut symmetric), ReduceOp::Sum, stream).unwrap();
                ctx.on(stream).put(&arrived, &symmetric, here.next(1)).unwrap();
                ctx.on(stream).barrier_all().unwrap();
                comm.all_gather((&arrived, &mut plain), stream).unwrap();
                // And a collective of each, one behind the other.
                world.on(stream).reduce(&mut most, &arrived, ReduceOp::Max).unwrap();
                comm.all_reduce(InPlace(&mut most), ReduceOp::Sum, stream).unwrap();
                world.on(stream).barrier().unwrap();
                same("summed by NCCL, put by NVSHMEM", &arrived.to_vec(stream).unwrap(), &sums);
                same("gathered by NCCL", &plain.to_vec(stream).unwrap(), &sums.repeat(n));
                let times: Vec<u32> = sums.iter().map(|sum| sum.wrapping_mul(n as u32)).collect();
                same("reduced by both", &most.to_vec(stream).unwrap(), &times);
                arrived.fill(stream, u32::MAX).unwrap();
                here.settle();
            }
            drop((symmetric, arrived, most));
            comm.close_timeout(slower(20.0)).unwrap();
            ctx.reclaim().unwrap();
        }
    });
}

/// A stream waits for a signal that does not come. A clique ends beside it, and nobody else waits.
#[test]
fn a_clique_ends_beside_a_wait_for_a_signal() {
    as_pes(&[1], |seat| {
        let devices: Vec<_> = Device::all().unwrap().into_iter().take(2).collect();
        let ctx = seat.start().unwrap();
        let (waits, other) = (Stream::new(seat.device).unwrap(), Stream::new(seat.device).unwrap());
        let signals = ctx.alloc_signals(1).unwrap();
        let clique = Clique::init_all(&devices).unwrap();
        clique.ranks().iter().for_each(|comm| comm.set_timeout(slower(2.0)));
        ctx.on(&waits).signal_wait_until(signals.at(0), Comparison::Eq, 1, ()).unwrap();
        let begin = Instant::now();
        drop(clique);
        let memory = DeviceBuffer::<u8>::zeroed(&other, 10).unwrap();
        assert_eq!(memory.to_vec(&other).unwrap(), [0; 10]);
        assert!(begin.elapsed() < slower(8.0), "{:?}", begin.elapsed());
        assert!(!waits.query().unwrap());
        ctx.on(&other).signal_op(signals.at(0), SignalOp::Set(1), Pe(0)).unwrap();
        waits.synchronize().unwrap();
        drop(signals);
        assert!(ctx.close().unwrap().is_empty());
    });
}
