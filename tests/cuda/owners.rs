//! Owners of memory that buffers are made over: they go when the work is done, and nobody minds what they do then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::ThreadId;
use std::time::Duration;

use gpucomm::{Device, DeviceBuffer, Stream};

use crate::{Gate, LONG, random, stream};

/// An owner that says on which thread it is dropped.
pub struct Told(pub Sender<ThreadId>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send(std::thread::current().id());
    }
}

/// A buffer over memory of a pool, whose owner tells of its end and has that memory until then.
pub fn told(stream: &Stream, len: usize) -> (DeviceBuffer<u32>, Receiver<ThreadId>) {
    let (tell, end) = channel();
    let memory = DeviceBuffer::<u32>::zeroed(stream, len).unwrap();
    stream.synchronize().unwrap();
    let (device, ptr) = (memory.device(), memory.as_raw());
    // SAFETY: the memory goes with its owner, and what was done with it before is done.
    (unsafe { DeviceBuffer::from_raw_parts(device, ptr, len, (Told(tell), memory)) }.unwrap(), end)
}

pub fn lives(end: &Receiver<ThreadId>) -> bool {
    end.try_recv() == Err(TryRecvError::Empty)
}

#[test]
fn an_owner_goes_when_the_work_is_done() {
    let (a, b) = (stream(), stream());
    let (mut x, end) = told(&a, 1000);
    x.fill(&a, 1).unwrap();
    a.synchronize().unwrap();
    drop(x);
    assert_eq!(end.recv_timeout(LONG).unwrap(), std::thread::current().id(), "there is nothing to wait for");
    for elsewhere in [false, true] {
        let (mut x, end) = told(&a, 1000);
        // SAFETY: this thread alone uses both, one after the other.
        let mut alias = unsafe { x.alias(5..) }.unwrap();
        let (gate, later) = (Gate::close(&a), Gate::close(&b));
        x.fill(&a, 1).unwrap();
        alias.fill(&b, 2).unwrap();
        let here = std::thread::current().id();
        if elsewhere {
            std::thread::spawn(move || drop(x)).join().unwrap();
        } else {
            drop(x);
        }
        drop(alias);
        std::thread::sleep(Duration::from_millis(30));
        assert!(lives(&end));
        gate.open();
        a.synchronize().unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert!(lives(&end));
        later.open();
        assert_ne!(end.recv_timeout(LONG).unwrap(), here);
    }
}

/// What panics when it is dropped, and then once more.
struct Bomb(#[allow(dead_code, reason = "tells when it is dropped")] Told);

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Again);
    }
}

struct Again;

impl Drop for Again {
    fn drop(&mut self) {
        panic!("a panic that panics");
    }
}

#[test]
fn a_panic_of_an_owner_ends_there() {
    let stream = stream();
    for busy in [false, true, false, true] {
        let (tell, end) = channel();
        let memory = DeviceBuffer::<u32>::zeroed(&stream, 100).unwrap();
        stream.synchronize().unwrap();
        let (device, ptr) = (memory.device(), memory.as_raw());
        let owner = (memory, Bomb(Told(tell)));
        // SAFETY: the memory goes with its owner, and what was done with it before is done.
        let mut x = unsafe { DeviceBuffer::<u32>::from_raw_parts(device, ptr, 100, owner) }.unwrap();
        let gate = busy.then(|| Gate::close(&stream));
        x.fill(&stream, 1).unwrap();
        if !busy {
            stream.synchronize().unwrap();
        }
        drop(x);
        assert_eq!(lives(&end), busy);
        if let Some(gate) = gate {
            gate.open();
            end.recv_timeout(LONG).unwrap();
        }
    }
    let (x, end) = told(&stream, 10);
    drop(x);
    assert!(!lives(&end));
}

/// Blocks when it is dropped, as long as the sender of the channel is there.
struct Blocks(Told, Receiver<()>);

impl Drop for Blocks {
    fn drop(&mut self) {
        let _ = self.0.0.send(std::thread::current().id());
        let _ = self.1.recv_timeout(LONG);
    }
}

/// A destructor that blocks holds up no other owner.
#[test]
fn an_owner_that_blocks() {
    let stream = stream();
    let ((tell, begins), (let_go, waits)) = (channel(), channel());
    let memory = DeviceBuffer::<u32>::zeroed(&stream, 100).unwrap();
    stream.synchronize().unwrap();
    let (device, ptr) = (memory.device(), memory.as_raw());
    let owner = (Blocks(Told(tell), waits), memory);
    // SAFETY: the memory goes with its owner, and what was done with it before is done.
    let mut x = unsafe { DeviceBuffer::<u32>::from_raw_parts(device, ptr, 100, owner) }.unwrap();
    let (mut y, end) = told(&stream, 100);
    let gate = Gate::close(&stream);
    x.fill(&stream, 1).unwrap();
    drop(x);
    gate.open();
    begins.recv_timeout(LONG).unwrap();
    let gate = Gate::close(&stream);
    y.fill(&stream, 1).unwrap();
    drop(y);
    gate.open();
    end.recv_timeout(LONG / 2).expect("the other owner is dropped");
    drop(let_go);
}

#[test]
fn a_forgotten_buffer_keeps_its_owner() {
    let (x, end) = told(&stream(), 10);
    std::mem::forget(x);
    std::thread::sleep(Duration::from_millis(50));
    assert!(lives(&end));
}

#[test]
fn owners_outlive_random_work() {
    let mut random = random("owners_outlive_random_work");
    let streams: Vec<Stream> = (0..4).map(|_| stream()).collect();
    let mut ends = Vec::new();
    for _ in 0..30 {
        let len = random.usize(1..2000);
        let mut all: Vec<_> = (0..4).map(|_| told(random.choice(&streams).unwrap(), len)).collect();
        for _ in 0..random.usize(..20) {
            random.shuffle(&mut all);
            let stream = random.choice(&streams).unwrap();
            let [x, y, ..] = &mut all[..] else { panic!("four") };
            match random.u32(..3) {
                0 => x.0.fill(stream, 7).unwrap(),
                1 => x.0.copy_from(stream, &y.0).unwrap(),
                _ => drop(x.0.slice(..len / 2).to_vec(stream).unwrap()),
            }
        }
        // The emulator says what is freed while it is in use.
        ends.extend(all.into_iter().map(|(_, end)| end));
    }
    for end in ends {
        end.recv_timeout(LONG).unwrap();
    }
}

/// Each buffer owns the one before: letting go of the last lets go of all, on a small stack.
#[test]
fn a_long_chain_of_owners_goes_one_by_one() {
    let gone = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&gone);
    let chain = move || {
        struct Link(Option<DeviceBuffer<u8>>, Arc<AtomicUsize>);

        impl Drop for Link {
            fn drop(&mut self) {
                drop(self.0.take());
                self.1.fetch_add(1, Ordering::SeqCst);
            }
        }

        let stream = Stream::new(Device::new(0).unwrap()).unwrap();
        let mut last = DeviceBuffer::<u8>::zeroed(&stream, 64).unwrap();
        stream.synchronize().unwrap();
        for _ in 0..LINKS {
            let (device, ptr) = (last.device(), last.as_raw());
            let owner = Link(Some(last), Arc::clone(&count));
            // SAFETY: the memory goes with its owner, which nobody else has.
            last = unsafe { DeviceBuffer::from_raw_parts(device, ptr, 64, owner).unwrap() };
        }
        assert_eq!(last.to_vec(&stream).unwrap(), [0; 64]);
        drop(last);
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(chain).unwrap().join().unwrap();
    assert_eq!(gone.load(Ordering::SeqCst), LINKS);
}

/// More than a stack takes where each is dropped within the one before.
const LINKS: usize = 5000;
