//! Memory that processes share: this program, started again.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use gpucomm::cuda::vmm::{Access, HandleTypes, MemoryProperties, PhysicalMemory};
use gpucomm::exchange::{Directory, Exchange, FdSocket};
use gpucomm::{Device, DeviceBuffer, Error, Stream};

use super::GRAIN;
use crate::child::{command, is_child};

const PLACE: &str = "GPUCOMM_TEST_PLACE";

/// A directory that goes with this.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("gpucomm-vmm-{}-{:x}", std::process::id(), fastrand::u32(..)));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Rank 1 of the test `name`.
fn other(name: &str, place: &Path) -> Child {
    command(name).env(PLACE, place).stdin(Stdio::null()).spawn().unwrap()
}

/// The exchange of the two processes of a test, and this process's end of its socket.
fn join(place: &Path, rank: usize, timeout: Duration) -> (Exchange, FdSocket) {
    let exchange = Exchange::join_timeout(Directory::open(place.join("x"), rank, 2).unwrap(), timeout).unwrap();
    let socket = FdSocket::new(&exchange, place).unwrap();
    (exchange, socket)
}

/// The place of this process, if it is rank 1 of the test `name`.
fn place_of(name: &str) -> Option<PathBuf> {
    is_child(name).then(|| std::env::var_os(PLACE).expect(PLACE).into())
}

fn shared(bytes: usize) -> PhysicalMemory {
    let device = *Device::all().unwrap().last().unwrap();
    PhysicalMemory::new_with(&MemoryProperties::new(device).with_handle_types(HandleTypes::FD), bytes).unwrap()
}

fn buffer(memory: PhysicalMemory) -> (DeviceBuffer<u32>, Stream) {
    let device = memory.device();
    (memory.map(&[Access::read_write(device)]).unwrap().into_buffer(), Stream::new(device).unwrap())
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn one_memory_in_two_processes() {
    const NAME: &str = "vmm::processes::one_memory_in_two_processes";
    if let Some(place) = place_of(NAME) {
        let (exchange, socket) = join(&place, 1, LONG);
        // SAFETY: barriers keep the two processes apart.
        let memory = unsafe { PhysicalMemory::receive(&socket, 0, "memory") }.unwrap();
        assert_eq!((memory.bytes(), memory.device()), (2 * GRAIN, *Device::all().unwrap().last().unwrap()));
        let (mut x, stream) = buffer(memory);
        for round in 0..10 {
            exchange.barrier().unwrap();
            assert_eq!(x.slice(round..round + 3).to_vec(&stream).unwrap(), [round as u32; 3]);
            x.fill(&stream, round as u32 + 100).unwrap();
            stream.synchronize().unwrap();
            exchange.barrier().unwrap();
        }
        exchange.barrier().unwrap();
        // The other process has let go of it.
        assert_eq!(x.slice(..1).to_vec(&stream).unwrap(), [77]);
        exchange.barrier().unwrap();
        return;
    }
    let place = Place::new();
    let mut child = other(NAME, &place.0);
    let (exchange, socket) = join(&place.0, 0, LONG);
    let memory = shared(2 * GRAIN);
    memory.send(&socket, 1, "memory").unwrap();
    let (mut x, stream) = buffer(memory);
    for round in 0..10 {
        x.fill(&stream, round).unwrap();
        stream.synchronize().unwrap();
        exchange.barrier().unwrap();
        exchange.barrier().unwrap();
        assert_eq!(x.slice(x.len() - 2..).to_vec(&stream).unwrap(), [round + 100; 2]);
    }
    x.fill(&stream, 77).unwrap();
    stream.synchronize().unwrap();
    drop(x);
    exchange.barrier().unwrap();
    exchange.barrier().unwrap();
    assert!(child.wait().unwrap().success());
}

/// Who has died leaves the memory behind; who has not sent any is told of as gone.
#[test]
fn a_process_that_dies() {
    const NAME: &str = "vmm::processes::a_process_that_dies";
    if let Some(place) = place_of(NAME) {
        let (exchange, socket) = join(&place, 1, LONG);
        let memory = shared(GRAIN);
        memory.send(&socket, 0, "last").unwrap();
        let (mut x, stream) = buffer(memory);
        x.fill(&stream, 42).unwrap();
        stream.synchronize().unwrap();
        exchange.barrier().unwrap();
        std::thread::sleep(LONG);
        return;
    }
    let place = Place::new();
    let mut child = other(NAME, &place.0);
    let (exchange, socket) = join(&place.0, 0, LONG);
    exchange.barrier().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // SAFETY: the other process is dead.
    let memory = unsafe { PhysicalMemory::receive(&socket, 1, "last") }.unwrap();
    let (mut x, stream) = buffer(memory);
    assert_eq!(x.slice(5..7).to_vec(&stream).unwrap(), [42, 42]);
    x.fill(&stream, 1).unwrap();
    assert_eq!(x.slice(5..7).to_vec(&stream).unwrap(), [1, 1]);
    // SAFETY: as above.
    let error = unsafe { PhysicalMemory::receive(&socket, 1, "more") }.unwrap_err();
    assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error}");
    let error = shared(GRAIN).send(&socket, 1, "late").unwrap_err();
    assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error}");
}

/// Who never sends is a timeout; what is no memory is an error.
#[test]
fn a_process_that_sends_nothing_or_something_else() {
    const NAME: &str = "vmm::processes::a_process_that_sends_nothing_or_something_else";
    if let Some(place) = place_of(NAME) {
        let (exchange, socket) = join(&place, 1, LONG);
        let file = std::fs::File::open("/dev/null").unwrap();
        socket.send(0, "nothing is said", &[file.as_fd()]).unwrap();
        let device = Device::all().unwrap().last().unwrap().pci_bus_id().unwrap();
        for about in [format!("{GRAIN} {device}"), format!("{GRAIN} 0000:ff:1f.0"), format!("many {device}")] {
            socket.send_with(0, "no memory", about.as_bytes(), &[file.as_fd()]).unwrap();
        }
        let memory = shared(GRAIN);
        let fd = memory.export_fd().unwrap();
        socket.send_with(0, "too much", format!("{} {device}", 2 * GRAIN).as_bytes(), &[fd.as_fd()]).unwrap();
        exchange.barrier().unwrap();
        exchange.barrier().unwrap();
        return;
    }
    let place = Place::new();
    let mut child = other(NAME, &place.0);
    let (exchange, socket) = join(&place.0, 0, LONG);
    exchange.barrier().unwrap();
    let receive = |socket: &FdSocket, purpose: &str| {
        // SAFETY: nobody uses what comes.
        unsafe { PhysicalMemory::receive(socket, 1, purpose) }.map(drop).unwrap_err()
    };
    let error = receive(&socket, "nothing is said");
    assert!(matches!(error, Error::Exchange { operation: "PhysicalMemory::receive", .. }), "{error}");
    assert!(matches!(receive(&socket, "no memory"), Error::Cuda { .. }));
    let error = receive(&socket, "no memory");
    assert!(matches!(&error, Error::Exchange { reason, .. } if reason.contains("0000:ff:1f.0")), "{error}");
    assert!(matches!(receive(&socket, "no memory"), Error::Exchange { .. }));
    let error = receive(&socket, "too much");
    assert!(matches!(error, Error::InvalidArgument { what: "bytes", .. }), "{error}");
    exchange.barrier().unwrap();
    assert!(child.wait().unwrap().success());
}

/// Who lives and sends nothing is told of at the deadline.
#[test]
fn a_process_that_never_sends() {
    const NAME: &str = "vmm::processes::a_process_that_never_sends";
    const SOON: Duration = Duration::from_secs(3);
    let join = |place: &Path, rank| {
        let exchange = Exchange::join_timeout(Directory::open(place.join("x"), rank, 2).unwrap(), LONG).unwrap();
        let socket = FdSocket::new(&exchange.with_timeout(SOON), place);
        (exchange, socket.unwrap())
    };
    if let Some(place) = place_of(NAME) {
        let (exchange, _socket) = join(&place, 1);
        exchange.barrier().unwrap();
        return;
    }
    let place = Place::new();
    let mut child = other(NAME, &place.0);
    let (exchange, socket) = join(&place.0, 0);
    // SAFETY: nobody uses what comes.
    let error = unsafe { PhysicalMemory::receive(&socket, 1, "memory") }.unwrap_err();
    assert!(matches!(&error, Error::Timeout { timeout: SOON, .. }), "{error}");
    assert!(error.to_string().contains("rank 1 has not sent \"memory\""), "{error}");
    exchange.barrier().unwrap();
    assert!(child.wait().unwrap().success());
}
