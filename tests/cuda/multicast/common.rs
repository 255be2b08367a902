//! How objects end that ranks have in common: nobody takes away what others may write to.

use std::time::Duration;

use gpucomm::cuda::multicast::{BindSource, Mapped, Multicast, Refusal};
use gpucomm::{DeviceBuffer, Error, Stream};

use super::ranks::{Rank, ranks, shareable};
use super::{GRAIN, buffer, devices, emulated, fill, values};
use crate::{Gate, LONG};

/// An object that all have mapped, and what this rank sees of it.
fn common(rank: &Rank) -> (Multicast<Mapped>, DeviceBuffer<u8>, Stream) {
    let memory = shareable(rank.exchange.rank());
    let object = rank.join().unwrap().bind(BindSource::memory(&memory)).unwrap().map().unwrap();
    (object, buffer(memory), Stream::new(devices(4)[rank.exchange.rank()]).unwrap())
}

/// A destructor cannot ask the others, who may write at any time.
#[test]
fn one_drops_it() {
    if !emulated() {
        return;
    }
    ranks(2, LONG, |rank| {
        let (object, own, stream) = common(&rank);
        if rank.exchange.rank() == 0 {
            drop(object);
            rank.exchange.barrier().unwrap();
        } else {
            rank.exchange.barrier().unwrap();
            // Long enough for a thread that would take it down.
            std::thread::sleep(Duration::from_millis(50));
            fill(&stream, &mut object.ptr::<u8>(stream.device()).unwrap(), 5);
            stream.synchronize().unwrap();
        }
        rank.exchange.barrier().unwrap();
        assert_eq!(values(&own)[GRAIN - 1], 5);
    });
}

/// One is not done: all leave it behind, and what is written late finds the memory of all.
#[test]
fn one_is_not_done() {
    if !emulated() {
        return;
    }
    ranks(2, LONG, |rank| {
        let (object, own, stream) = common(&rank);
        if rank.exchange.rank() == 0 {
            let gate = Gate::close(&stream);
            fill(&stream, &mut object.ptr::<u8>(stream.device()).unwrap(), 6);
            let error = object.with_timeout(Duration::from_millis(50)).close().unwrap_err();
            assert!(matches!(error, Error::Timeout { operation: "Multicast::close", .. }), "{error}");
            rank.exchange.barrier().unwrap();
            gate.open();
            stream.synchronize().unwrap();
        } else {
            let error = object.close().unwrap_err();
            assert!(matches!(error, Error::Multicast { why: Refusal::Peer, .. }), "{error}");
            assert!(error.to_string().contains("rank 0 says no"), "{error}");
            rank.exchange.barrier().unwrap();
        }
        rank.exchange.barrier().unwrap();
        assert_eq!(values(&own)[GRAIN - 1], 6);
    });
}

#[test]
fn one_unbinds() {
    if !emulated() {
        return;
    }
    ranks(2, LONG, |rank| {
        let (mut object, _own, stream) = common(&rank);
        let error = object.unbind(stream.device(), 0).unwrap_err();
        assert!(matches!(error, Error::InvalidUsage { .. }) && error.to_string().contains("other ranks"), "{error}");
        object.close().unwrap();
    });
}

/// It goes before it maps the object, and what it says yes to later is something else.
#[test]
fn one_gives_up_before_it_is_mapped() {
    if !emulated() {
        return;
    }
    for closes in [true, false] {
        ranks(2, LONG, |rank| {
            let memory = shareable(rank.exchange.rank());
            let bound = rank.join().unwrap().bind(BindSource::memory(&memory)).unwrap();
            if rank.exchange.rank() == 1 {
                let error = bound.map().unwrap_err();
                assert!(matches!(error, Error::Multicast { why: Refusal::Peer, .. }), "{error}");
                let why = if closes { "is closed before it was mapped" } else { "something of the program" };
                assert!(error.to_string().contains(why), "{error}");
            } else if closes {
                bound.close().unwrap();
            } else {
                drop(bound);
                let vote = rank.exchange.vote(Ok(())).unwrap();
                assert!(!vote.unanimous());
            }
        });
    }
}
