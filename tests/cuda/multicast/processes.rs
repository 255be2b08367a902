//! Objects of several processes: this program, started again.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use gpucomm::cuda::multicast::{BindSource, Channel, Complete, Multicast, ObjectProperties, Refusal};
use gpucomm::exchange::{Directory, Exchange, FdSocket};
use gpucomm::{Error, Result, Stream};

use super::ranks::shareable;
use super::{GRAIN, buffer, devices, emulated, fill, values};
use crate::LONG;
use crate::child::{command, is_child};

const PLACE: &str = "GPUCOMM_TEST_PLACE";
const RANK: &str = "GPUCOMM_TEST_RANK";

struct Rank {
    me: usize,
    exchange: Exchange,
    socket: FdSocket,
}

impl Rank {
    fn join(&self) -> Result<Multicast<Complete>> {
        let properties = ObjectProperties::new(self.exchange.size(), GRAIN);
        Multicast::join(Channel::Fds(&self.socket), &properties, &[devices(4)[self.me]])
    }
}

/// The other ranks of a test, and their place, which go with this.
struct Others {
    place: PathBuf,
    all: Vec<Child>,
}

impl Others {
    fn assert_success(mut self) {
        for child in &mut self.all {
            assert!(child.wait().unwrap().success());
        }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.all {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// This process as a rank of so many of the test `name`; rank 0 starts the others, each with its settings of multicast.
fn rank(name: &str, settings: &[&str], timeout: Duration) -> (Rank, Option<Others>) {
    let size = settings.len();
    let (me, others, place) = if is_child(name) {
        let me = std::env::var(RANK).unwrap().parse().unwrap();
        (me, None, PathBuf::from(std::env::var_os(PLACE).unwrap()))
    } else {
        let name_of = format!("gpucomm-multicast-{}-{:x}", std::process::id(), fastrand::u32(..));
        let place = std::env::temp_dir().join(name_of);
        std::fs::create_dir(&place).unwrap();
        let start = |rank: usize| {
            let mut command = command(name);
            command.env(PLACE, &place).env(RANK, rank.to_string()).env("GPUCOMM_EMULATOR_MULTICAST", settings[rank]);
            command.stdin(Stdio::null()).spawn().unwrap()
        };
        let all = (1..size).map(start).collect();
        (0, Some(Others { place: place.clone(), all }), place)
    };
    let store = Directory::open(place.join("x"), me, size).unwrap();
    let exchange = Exchange::join_timeout(store, LONG).unwrap();
    let socket = FdSocket::new(&exchange.with_timeout(timeout), &place).unwrap();
    (Rank { me, exchange: exchange.with_timeout(timeout), socket }, others)
}

#[test]
fn one_write_comes_to_all_processes() {
    const NAME: &str = "multicast::processes::one_write_comes_to_all_processes";
    if !emulated() {
        return;
    }
    // Rank 2 has to ask again, and all ask with it.
    let (rank, others) = rank(NAME, &["", "", "add=802*2", "v2"], LONG);
    let (me, device) = (rank.me, devices(4)[rank.me]);
    let memory = shareable(me);
    let object = rank.join().unwrap().bind(BindSource::memory(&memory)).unwrap().map().unwrap();
    let (stream, own) = (Stream::new(device).unwrap(), buffer::<u8>(memory));
    for writer in 0..4 {
        if me == writer {
            fill(&stream, &mut object.ptr::<u8>(device).unwrap(), 10 + writer as u8);
            stream.synchronize().unwrap();
        }
        rank.exchange.barrier().unwrap();
        assert!(values(&own).iter().all(|byte| *byte == 10 + writer as u8));
        rank.exchange.barrier().unwrap();
    }
    object.close().unwrap();
    others.into_iter().for_each(Others::assert_success);
}

#[test]
fn one_dies() {
    const NAME: &str = "multicast::processes::one_dies";
    if !emulated() {
        return;
    }
    let timeout = Duration::from_secs(10);
    let (rank, others) = rank(NAME, &["", "", ""], timeout);
    let complete = rank.join().unwrap();
    if rank.me == 1 {
        // As if by a signal: nothing is told to anybody.
        std::process::abort();
    }
    let (memory, since) = (shareable(rank.me), Instant::now());
    let error = complete.bind(BindSource::memory(&memory)).unwrap().map().unwrap_err();
    assert!(matches!(error, Error::Departed { rank: 1, .. } | Error::Timeout { .. }), "{error}");
    assert!(since.elapsed() < timeout + LONG / 2);
    if let Some(mut others) = others {
        let ends: Vec<_> = others.all.iter_mut().map(|child| child.wait().unwrap().success()).collect();
        assert_eq!(ends, [false, true]);
    }
}

#[test]
fn one_is_refused() {
    const NAME: &str = "multicast::processes::one_is_refused";
    if !emulated() {
        return;
    }
    let (rank, others) = rank(NAME, &["", "add=401", ""], LONG);
    let error = rank.join().unwrap_err();
    let want = if rank.me == 1 { Refusal::FabricState } else { Refusal::Peer };
    assert!(matches!(error, Error::Multicast { why, .. } if why == want), "{error}");
    assert!(rank.me == 1 || error.to_string().contains("rank 1 says no"), "{error}");
    others.into_iter().for_each(Others::assert_success);
}
