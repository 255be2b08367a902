//! Calls that wait for several things in turn have one deadline for all of that.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use gpucomm::{Clique, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, group};

use crate::support::{Rig, assert_names, places, rank_counts, slower, watched};

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

/// An enqueue waits for room on its stream for most of its time, and then for a lock that another thread has, or for ranks of a first
/// operation, which never come.
fn room_and(is_locked: bool) {
    let clique = Clique::init_all(&places()[..2]).unwrap();
    let (comm, limit) = (clique.rank(0), slower(2.0));
    let [stream, other] = [(); 2].map(|()| Stream::new(comm.device()).unwrap());
    let [mut x, mut y, mut z] = [(); 3].map(|()| DeviceBuffer::<u8>::zeroed(&stream, 5).unwrap());
    stream.synchronize().unwrap();
    thread::scope(|scope| {
        if is_locked {
            comm.set_timeout(slower(40.0));
            scope.spawn(|| comm.all_reduce(InPlace(&mut z), ReduceOp::Sum, &other).expect_err("rank 1 does not come"));
            let start = Instant::now();
            while !comm.dump().to_string().contains("rank 1 has not come") {
                assert!(start.elapsed() < slower(10.0), "{}", comm.dump());
                thread::yield_now();
            }
            // It reads its own timeout next.
            thread::sleep(slower(0.5));
        }
        comm.set_timeout(limit);
        let (open, opened) = channel::<()>();
        stream.launch_host(move || drop(opened.recv_timeout(limit.mul_f64(0.7)))).unwrap();
        // Until there is no room any more.
        let (start, full) = (Instant::now(), stream.clone());
        let fill = scope.spawn(move || {
            while start.elapsed() < limit.mul_f64(0.6) {
                x.fill(&full, 1).unwrap();
            }
        });
        thread::sleep(limit.mul_f64(0.2));
        let begin = Instant::now();
        let error = comm.all_reduce(InPlace(&mut y), ReduceOp::Sum, &stream).unwrap_err();
        let took = begin.elapsed();
        drop(open);
        fill.join().unwrap();
        // The other thread has the lock no longer.
        let _ = comm.aborter().abort("the test is over");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        let next = if is_locked { "another thread is inside a call" } else { "to which rank 1 has not come" };
        assert_names(&error, &["all_reduce", next]);
        assert!((limit..limit + slower(0.8)).contains(&took), "{took:?}");
    });
}

#[test]
fn room_and_ranks_that_do_not_come() {
    watched(60.0, || rank_counts(&[2]).iter().for_each(|_| room_and(false)));
}

#[test]
fn room_and_a_lock_that_another_thread_has() {
    watched(60.0, || rank_counts(&[2]).iter().for_each(|_| room_and(true)));
}
