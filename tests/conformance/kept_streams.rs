//! Streams that outlive a failed communicator, or are shared with one: whom they tell of it, and how often.

use gpucomm::{Clique, DeviceBuffer, Error, InPlace, ReduceOp, Stream, group};

use crate::failures::{REASON, abort, assert_aborted};
use crate::support::{Rig, places, quick, rank_counts, slower, watched};

/// A clique that was aborted with work that nobody has waited for, and a new one on the same streams, whose program waits through
/// `wait` alone.
fn a_new_clique_on_kept_streams(wait: impl Fn(&Stream) -> Result<(), Error>) {
    for ranks in rank_counts(&[2, 4]) {
        let devices = &places()[..ranks];
        let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
        let others: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
        let sum = |clique: &Clique, value: i32| {
            let start = |stream| DeviceBuffer::from_slice(stream, &[value; 4]);
            let mut x = streams.iter().map(start).collect::<Result<Vec<_>, _>>()?;
            group(|g| {
                let calls = clique.ranks().iter().zip(&mut x).zip(&streams);
                calls
                    .into_iter()
                    .try_for_each(|((comm, x), stream)| g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream))
            })?;
            Ok::<_, Error>(x)
        };
        let old = Clique::init_all(devices).unwrap();
        let kept = sum(&old, 1).unwrap();
        for (stream, other) in streams.iter().zip(&others) {
            other.wait_event(&stream.record().unwrap()).unwrap();
        }
        let _ = old.abort(REASON);
        let new = Clique::init_all(devices).unwrap();
        for turn in 0..3 {
            let x = sum(&new, turn).unwrap();
            for ((x, stream), other) in x.iter().zip(&streams).zip(&others) {
                wait(stream).unwrap();
                assert_eq!(x.to_vec(stream).unwrap(), [turn * ranks as i32; 4]);
                // What nothing new was begun on tells of the old clique, and hands that to nobody.
                stream.wait_event(&other.record().unwrap()).unwrap();
                wait(stream).unwrap();
                assert_aborted(other.synchronize());
            }
        }
        for (x, stream) in kept.iter().zip(&streams) {
            assert_aborted(x.to_vec(stream));
            wait(stream).unwrap();
        }
        new.close_timeout(gpucomm::default_timeout()).unwrap();
    }
}

#[test]
fn a_new_clique_whose_program_waits_for_streams() {
    watched(60.0, || a_new_clique_on_kept_streams(Stream::synchronize));
}

#[test]
fn a_new_clique_whose_program_waits_for_events() {
    watched(60.0, || {
        a_new_clique_on_kept_streams(|stream| {
            let (event, fresh) = (stream.record()?, Stream::new(stream.device())?);
            fresh.wait_event(&event)?;
            event.synchronize()?;
            assert!(event.query()?);
            fresh.synchronize()
        });
    });
}

/// A clique that was there before the failure is told of it, by an event as well as by its stream, and once.
#[test]
fn an_event_tells_for_its_stream() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let devices = &places()[..ranks];
            let (first, second) = (Rig::new(ranks), Clique::init_all(devices).unwrap());
            let others = second.ranks();
            first.run(|comm, stream| {
                let other = &others[comm.rank()];
                let mut x = DeviceBuffer::from_slice(stream, &[7; 4])?;
                let mut y = DeviceBuffer::from_slice(stream, &[1; 4])?;
                if comm.rank() == 0 {
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    abort(comm);
                }
                for turn in 0..3 {
                    other.all_reduce(InPlace(&mut y), ReduceOp::Max, stream)?;
                    let event = stream.record()?;
                    if comm.rank() == 0 && turn == 0 {
                        (0..3).for_each(|_| assert_aborted(event.synchronize()));
                        assert_aborted(event.query());
                    } else {
                        event.synchronize()?;
                    }
                    assert_eq!(y.to_vec(stream)?, [1; 4]);
                }
                Ok(())
            });
            second.close_timeout(gpucomm::default_timeout()).unwrap();
            quick(slower(20.0), || drop(first));
        }
    });
}
