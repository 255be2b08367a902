//! Objects of several ranks, which are threads here: all come, or none goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucomm::cuda::multicast::{BindSource, Bound, Channel, Complete, Multicast, ObjectProperties, Refusal};
use gpucomm::cuda::vmm::{self, HandleTypes, PhysicalMemory};
use gpucomm::exchange::{Exchange, FdSocket, Threads};
use gpucomm::{Error, Result, Stream};

use super::{GRAIN, buffer, devices, emulated, fill, values};
use crate::LONG;

/// What one rank does with its end of the exchange.
pub struct Rank {
    pub exchange: Exchange,
    pub socket: FdSocket,
}

impl Rank {
    fn properties(&self) -> ObjectProperties {
        ObjectProperties::new(self.exchange.size(), GRAIN)
    }

    pub fn join(&self) -> Result<Multicast<Complete>> {
        self.join_with(&self.properties(), self.exchange.rank())
    }

    fn join_with(&self, properties: &ObjectProperties, device: usize) -> Result<Multicast<Complete>> {
        Multicast::join(Channel::Fds(&self.socket), properties, &[devices(device + 1)[device]])
    }
}

/// Memory that can be shared.
pub fn shareable(device: usize) -> PhysicalMemory {
    let properties = vmm::MemoryProperties::new(devices(device + 1)[device]).with_handle_types(HandleTypes::FD);
    PhysicalMemory::new_with(&properties, GRAIN).unwrap()
}

/// Runs so many ranks, whose calls wait so long: what each came to.
pub fn ranks<T: Send>(size: usize, timeout: Duration, each: impl Fn(Rank) -> T + Sync) -> Vec<T> {
    let place = Threads::new(size);
    std::thread::scope(|scope| {
        let run = |rank: usize| {
            let exchange = Exchange::join_timeout(place.store(rank).unwrap(), LONG).unwrap();
            // So that what follows is not late because of this.
            exchange.with_timeout(LONG).barrier().unwrap();
            let socket = FdSocket::new(&exchange.with_timeout(timeout), std::env::temp_dir()).unwrap();
            each(Rank { exchange: exchange.with_timeout(timeout), socket })
        };
        let run = Arc::new(run);
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let run = Arc::clone(&run);
                scope.spawn(move || run(rank))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn all_come() {
    if !emulated() {
        return;
    }
    for size in 2..=4 {
        ranks(size, LONG, |rank| {
            let (me, device) = (rank.exchange.rank(), devices(4)[rank.exchange.rank()]);
            let memory = shareable(me);
            let object = rank.join().unwrap().bind(BindSource::memory(&memory)).unwrap().map().unwrap();
            let stream = Stream::new(device).unwrap();
            let own = buffer::<u8>(memory);
            // Each rank writes its part, to all.
            fill(&stream, &mut object.ptr::<u8>(device).unwrap().slice(100 * me..100 * me + 100), me as u8 + 1);
            stream.synchronize().unwrap();
            rank.exchange.barrier().unwrap();
            let all = values(&own);
            for peer in 0..size {
                assert!(all[100 * peer..100 * peer + 100].iter().all(|byte| *byte == peer as u8 + 1), "{peer}");
            }
            object.close().unwrap();
        });
    }
}

/// What `result` is an error of, and how long it took.
#[track_caller]
fn late<T>(result: Result<T>, since: Instant, timeout: Duration) {
    let Err(error) = result else { panic!("it went well") };
    let told = matches!(error, Error::Timeout { .. } | Error::Departed { .. });
    assert!(told, "{error:?}");
    assert!(since.elapsed() < timeout + Duration::from_secs(20), "{:?}", since.elapsed());
}

const SHORT: Duration = Duration::from_secs(1);

#[test]
fn one_never_comes() {
    if !emulated() {
        return;
    }
    for absent in [0, 2] {
        let place = std::sync::Barrier::new(3);
        ranks(3, SHORT, |rank| {
            if rank.exchange.rank() != absent {
                let since = Instant::now();
                late(rank.join(), since, SHORT);
            }
            // It is there all the time.
            place.wait();
        });
    }
}

/// It has imported the object, and adds no device: it does not come to that.
#[test]
fn one_never_adds_its_device() {
    if !emulated() {
        return;
    }
    let place = std::sync::Barrier::new(3);
    ranks(3, SHORT, |rank| {
        let properties = rank.properties().with_handle_types(HandleTypes::FD);
        let building = if rank.exchange.rank() == 0 {
            let building = Multicast::create(&properties).unwrap();
            let fd = building.export_fd().unwrap();
            for peer in 1..3 {
                rank.socket.send(peer, "object", &[std::os::fd::AsFd::as_fd(&fd)]).unwrap();
            }
            building
        } else {
            let fd = rank.socket.receive(0, "object").unwrap().remove(0);
            // SAFETY: rank 0 has made it with these properties.
            unsafe { Multicast::import_fd(&fd, &properties) }.unwrap()
        };
        if rank.exchange.rank() != 1 {
            let since = Instant::now();
            late(building.agree(&rank.exchange, &[devices(3)[rank.exchange.rank()]]), since, SHORT);
        }
        place.wait();
    });
}

/// It goes when it has added its device, and the others are about to map the object.
#[test]
fn one_leaves() {
    if !emulated() {
        return;
    }
    ranks(3, SHORT, |rank| {
        let me = rank.exchange.rank();
        let complete = rank.join().unwrap();
        if me == 1 {
            return;
        }
        let memory = shareable(me);
        let since = Instant::now();
        late(complete.bind(BindSource::memory(&memory)).unwrap().map(), since, SHORT);
    });
}

#[test]
fn one_comes_late() {
    if !emulated() {
        return;
    }
    for slow in [0, 1] {
        let place = std::sync::Barrier::new(3);
        ranks(3, SHORT, |rank| {
            if rank.exchange.rank() == slow {
                std::thread::sleep(3 * SHORT);
            }
            let since = Instant::now();
            late(rank.join(), since, SHORT);
            place.wait();
        });
    }
}

/// All go on with the next object after one that has failed.
#[test]
fn one_cannot_go_on() {
    if !emulated() {
        return;
    }
    ranks(3, LONG, |rank| {
        let me = rank.exchange.rank();
        // Two of them have the same device.
        let error = rank.join_with(&rank.properties(), me.min(1)).unwrap_err();
        let Error::Multicast { why, .. } = error else { panic!("{error}") };
        assert!([Refusal::Peer, Refusal::NotConnected].contains(&why), "{why:?}");
        assert!(me != 0 || error.to_string().contains("says no"), "{error}");

        // Memory that cannot be shared: the others learn it when they map.
        let private = PhysicalMemory::new(devices(3)[me], GRAIN).unwrap();
        let memory = if me == 2 { private } else { shareable(me) };
        let mapped = rank.join().unwrap().bind(BindSource::memory(&memory)).and_then(Multicast::<Bound>::map);
        let Err(Error::Multicast { why, .. }) = mapped else { panic!("{mapped:?}") };
        assert_eq!(why, if me == 2 { Refusal::NotShareable } else { Refusal::Peer });

        let memory = shareable(me);
        rank.join().unwrap().bind(BindSource::memory(&memory)).unwrap().map().unwrap().close().unwrap();
    });
}

#[test]
fn ranks_that_disagree() {
    if !emulated() {
        return;
    }
    ranks(2, LONG, |rank| {
        let me = rank.exchange.rank();
        let error = rank.join_with(&ObjectProperties::new(2, GRAIN * (me + 1)), me).unwrap_err();
        assert!(matches!(error, Error::Disagreement { .. }), "{error}");
        let error = rank.join_with(&ObjectProperties::new(3, GRAIN), me).unwrap_err();
        assert!(error.to_string().contains("expected 3 of all ranks together") && error.to_string().contains("got 2"));
        let channel = Channel::Fabric(&rank.exchange);
        let error = Multicast::join(channel, &rank.properties(), &[devices(2)[me]]).unwrap_err();
        match me {
            0 => assert!(matches!(error, Error::Unsupported { operation: "cuMulticastCreate", .. }), "{error:?}"),
            _ => {
                assert!(matches!(error, Error::Multicast { why: Refusal::Peer, .. }), "{error:?}");
                assert!(error.to_string().contains("rank 0 says") && error.to_string().contains("IMEX"), "{error}");
            }
        }
        // Who has no device could not map it, and all would wait.
        let own = if me == 0 { devices(2) } else { Vec::new() };
        let error = Multicast::join(Channel::Fds(&rank.socket), &rank.properties(), &own).unwrap_err();
        assert!(
            matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains("none of rank 1"),
            "{error}"
        );
    });
}
