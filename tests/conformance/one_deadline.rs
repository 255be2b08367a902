//! Calls that wait for several things in turn have one deadline for all of that.

use std::thread;
use std::time::Instant;

use gpucomm::{Communicator, DeviceBuffer, Error, Result, Stream, group};

use crate::support::{Rig, rank_counts, slower, watched};

type Call = fn(&Communicator, &DeviceBuffer<u32>) -> Result<()>;

const CALLS: &[(&str, Call)] = &[
    ("split", |comm, _| comm.split(Some(0), 0).map(drop)),
    ("window", |comm, memory| comm.window(memory).map(drop)),
    #[cfg(nccl_ge_2_28_7)]
    ("shrink", |comm, _| comm.shrink(&[1]).map(drop)),
];

/// A stream is busy for most of the time that a call has, and the other ranks never come.
#[test]
fn what_is_enqueued_and_ranks_that_do_not_come() {
    watched(90.0, || {
        for ranks in rank_counts(&[3]) {
            for (name, call) in CALLS {
                let rig = Rig::new(ranks);
                let comm = rig.clique.rank(0);
                let stream = Stream::new(comm.device()).unwrap();
                let memory = gpucomm::nccl::alloc::<u32>(&stream, 1024).unwrap();
                let mut to = gpucomm::nccl::alloc::<u32>(&stream, 1024).unwrap();
                let busy = slower(3.0);
                stream.launch_host(move || thread::sleep(busy)).unwrap();
                group(|g| {
                    g.send(comm, &memory, 0, &stream)?;
                    g.recv(comm, &mut to, 0, &stream)
                })
                .unwrap();
                comm.set_timeout(slower(3.5));
                let begin = Instant::now();
                let late = call(comm, &memory).expect_err(name);
                let took = begin.elapsed();
                assert!(matches!(late, Error::Timeout { .. }), "{name}: {late:?}");
                assert!((slower(3.5)..slower(5.5)).contains(&took), "{name}: {took:?}");
                drop((memory, to));
            }
        }
    });
}
