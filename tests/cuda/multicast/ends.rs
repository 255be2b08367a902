//! However an object ends, what it took is given back, in an order that the driver takes; forgotten, it is lost, and nothing else.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use gpucomm::cuda::multicast::{BindSource, Multicast, ObjectProperties};
use gpucomm::cuda::vmm::PhysicalMemory;
use gpucomm::{Device, DeviceBuffer, Stream};

use super::{GRAIN, buffer, complete, copy, devices, emulated, fill, mapped, values};
use crate::{Gate, LONG, child::alone};

fn free() -> Vec<usize> {
    devices(2).iter().map(|device| device.memory_info().unwrap().free).collect()
}

/// Waits until all memory is free again that was.
#[track_caller]
fn all_is_back(before: &[usize]) {
    let start = Instant::now();
    while free() != before {
        assert!(start.elapsed() < LONG, "{:?} of {before:?} bytes are free", free());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a program may hold, to be dropped one by one.
fn pieces() -> Vec<Option<Box<dyn std::any::Any>>> {
    let (object, memory) = mapped(2, GRAIN);
    let stream = Stream::new(devices(2)[0]).unwrap();
    let gate = Gate::close(&stream);
    fill(&stream, &mut object.ptr::<u8>(stream.device()).unwrap(), 1);
    // The memory of one device is shown by a buffer, that of the other by nothing.
    let [a, b] = memory.try_into().unwrap();
    let a: DeviceBuffer<u8> = buffer(a);
    gate.open();
    vec![Some(Box::new(object)), Some(Box::new(a)), Some(Box::new(b)), Some(Box::new(stream))]
}

/// Calls `each` with all orders of so many things.
fn orders(count: usize, each: &mut impl FnMut(&[usize])) {
    fn rest(left: &mut Vec<usize>, order: &mut Vec<usize>, each: &mut impl FnMut(&[usize])) {
        if left.is_empty() {
            return each(order);
        }
        for at in 0..left.len() {
            let next = left.remove(at);
            order.push(next);
            rest(left, order, each);
            order.pop();
            left.insert(at, next);
        }
    }
    rest(&mut (0..count).collect(), &mut Vec::new(), each);
}

#[test]
fn drops_in_every_order() {
    if !emulated() {
        return;
    }
    alone("multicast::ends::drops_in_every_order", || {
        let before = free();
        orders(4, &mut |order| {
            let mut pieces = pieces();
            order.iter().for_each(|at| drop(pieces[*at].take()));
            all_is_back(&before);
        });
    });
}

/// The memory is unmapped by the program while it is bound: the end is in order all the same.
#[test]
fn mappings_that_go_first() {
    if !emulated() {
        return;
    }
    alone("multicast::ends::mappings_that_go_first", || {
        let before = free();
        let (object, memory) = mapped(2, GRAIN);
        let mut buffers: Vec<DeviceBuffer<u32>> = memory.into_iter().map(buffer).collect();
        let stream = Stream::new(devices(2)[1]).unwrap();
        buffers[1].fill(&stream, 4).unwrap();
        stream.synchronize().unwrap();
        drop(buffers);
        std::thread::sleep(Duration::from_millis(20));
        // As B200s do, the emulator would refuse this had the mappings gone.
        object.close().unwrap();
        drop(stream);
        all_is_back(&before);
    });
}

#[test]
fn while_unwinding() {
    if !emulated() {
        return;
    }
    alone("multicast::ends::while_unwinding", || {
        let before = free();
        for state in 0..5 {
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let memory = PhysicalMemory::new(devices(1)[0], GRAIN).unwrap();
                let _building = Multicast::create(&ObjectProperties::new(2, GRAIN)).unwrap();
                assert_ne!(state, 0);
                let complete = complete(2, GRAIN);
                assert_ne!(state, 1);
                let bound = complete.bind(BindSource::memory(&memory)).unwrap();
                assert_ne!(state, 2);
                let _mapped = bound.map().unwrap();
                assert_ne!(state, 3);
                let _pieces = pieces();
                panic!("in the end");
            }));
            assert!(unwound.is_err());
            all_is_back(&before);
        }
        // A launch that panics has used it all the same.
        let (object, memory) = mapped(2, GRAIN);
        let stream = Stream::new(devices(2)[0]).unwrap();
        let mut all = object.ptr::<u8>(stream.device()).unwrap();
        let panicked =
            catch_unwind(AssertUnwindSafe(|| stream.launch(&mut all, |_, _| panic!("in a launch")).unwrap()));
        assert!(panicked.is_err());
        drop((object, memory, stream));
        all_is_back(&before);
    });
}

/// What is forgotten is lost: nothing of it is given back, and nobody is disturbed.
#[test]
fn forgotten() {
    if !emulated() {
        return;
    }
    alone("multicast::ends::forgotten", || {
        let [a, b] = devices(2)[..] else { unreachable!() };
        forget(Multicast::create(&ObjectProperties::new(2, GRAIN)).unwrap());
        forget(complete(2, GRAIN));
        let memory = PhysicalMemory::new(a, GRAIN).unwrap();
        let bound = complete(2, GRAIN).bind(BindSource::memory(&memory)).unwrap();
        forget(bound);
        // It is bound for good, and can be used all the same, and bound elsewhere.
        let other = PhysicalMemory::new(b, GRAIN).unwrap();
        let mut bound = complete(2, GRAIN).bind(BindSource::memory(&memory)).unwrap();
        bound.bind_more(BindSource::memory(&other)).unwrap();
        let object = bound.map().unwrap();
        let stream = Stream::new(b).unwrap();
        let mut all = object.ptr::<u8>(b).unwrap();
        fill(&stream, &mut all, 8);
        let own: DeviceBuffer<u8> = buffer(memory);
        assert_eq!(values(&own)[..2], [8, 8]);
        drop(own);
        let source = DeviceBuffer::from_slice(&stream, &vec![9u8; GRAIN]).unwrap();
        copy(&stream, &mut object.ptr(b).unwrap(), &source);
        forget(object);
        let own: DeviceBuffer<u8> = buffer(other);
        assert_eq!(values(&own)[GRAIN - 2..], [9, 9]);
        forget(own);
        let (object, _memory) = mapped(2, GRAIN);
        object.close().unwrap();
        assert!(Device::new(0).is_ok() && gpucomm::emulator_violations() == 0);
    });
}
