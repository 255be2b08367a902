//! The work of a stream as a future: it ends with what a wait would have said.

use std::sync::Barrier;
use std::time::Duration;

use gpucomm::nccl::AbortOutcome;
use gpucomm::{DeviceBuffer, Error, InPlace, ReduceOp, Stream};

use crate::support::block_on::block_on;
use crate::support::{Rig, assert_names, quick, rank_counts, slower, still_works, watched};

/// Every rank's results are there when its future is ready; one thread waits for all of them.
#[test]
fn of_collectives() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                for round in 1..=10 {
                    let mut x = DeviceBuffer::from_slice(stream, &[round; 1000])?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    block_on(stream.done())?;
                    assert!(stream.query()?);
                    assert_eq!(x.to_vec(stream)?, [round * ranks as i32; 1000]);
                }
                Ok(())
            });
            let streams: Vec<_> = rig.clique.ranks().iter().map(|rank| Stream::new(rank.device()).unwrap()).collect();
            rig.clique.barrier_on_stream(&streams).unwrap();
            let all: Vec<_> = streams.iter().map(Stream::done).collect();
            all.into_iter().for_each(|done| block_on(done).unwrap());
            rig.close();
        }
    });
}

/// Rank 1 does not come: the device never gets there, and no callback would fire.
#[test]
fn of_a_rank_that_waits_in_vain() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let (rig, all) = (Rig::new(ranks), Barrier::new(ranks));
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[7i32; 4])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                stream.synchronize()?;
                // The abort ends all ranks.
                all.wait();
                if comm.rank() != 0 {
                    return Ok(());
                }
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                let late =
                    quick(slower(1.0), || block_on(stream.done_timeout(slower(0.5)))).expect_err("it is never done");
                assert!(matches!(late, Error::Timeout { operation: "Stream::done_timeout", .. }), "{late:?}");
                assert_names(&late, &["all_reduce", "rank 1"]);
                // One that waits is told of an abort; so is one that comes later.
                let waits = std::thread::spawn({
                    let done = stream.done_timeout(slower(30.0));
                    || block_on(done)
                });
                let event = stream.record()?;
                std::thread::sleep(Duration::from_millis(20));
                assert_ne!(comm.aborter().abort("the test has had enough"), AbortOutcome::Already);
                for result in [quick(slower(5.0), || waits.join().expect("no panic")), block_on(stream.done())] {
                    let error = result.expect_err("it was aborted");
                    assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                    assert_names(&error, &["the test has had enough", "Stream::done"]);
                }
                let error = block_on(event.done()).expect_err("it comes after what was aborted");
                assert!(matches!(error, Error::Aborted { operation: "Event::done", .. }), "{error:?}");
                Ok(())
            });
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}
