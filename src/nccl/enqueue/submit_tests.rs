use std::time::Duration;

use super::*;
use crate::cuda::{Device, DeviceBuffer, Stream};
use crate::nccl::{Clique, InPlace};
use crate::reduce_op::ReduceOp;

/// A group that waits for the lock of one communicator has none of those that come after it, whatever order its calls are in.
#[test]
fn groups_take_locks_in_the_order_of_all_threads() {
    let clique = Clique::init_all(&Device::all().unwrap()[..3]).unwrap();
    let inner = |rank| -> &Inner { clique.rank(rank).inner() };
    let held = inner(1).try_lock().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let ranks = [2, 1, 0].map(|rank| clique.rank(rank));
            let streams = ranks.map(|comm| Stream::new(comm.device()).unwrap());
            let buffers = streams.each_ref().map(|stream| DeviceBuffer::from_slice(stream, &[1u32]).unwrap());
            let mut all: Vec<_> = ranks.into_iter().zip(&streams).zip(buffers).collect();
            crate::nccl::group(|group| {
                let mut calls = all.iter_mut();
                calls.try_for_each(|((comm, stream), sum)| group.all_reduce(comm, InPlace(sum), ReduceOp::Sum, stream))
            })?;
            all.iter().map(|((_, stream), sum)| sum.to_vec(stream)).collect::<Result<Vec<_>>>()
        });
        while inner(0).try_lock().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(inner(2).try_lock().is_some());
        drop(held);
        assert_eq!(waits.join().unwrap().unwrap(), [[3], [3], [3]]);
    });
}
