//! How mapped memory ends: in every order, while it is used, while unwinding, and not at all.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use gpucomm::cuda::vmm::{Access, AddressRange, HandleTypes, MemoryProperties, PhysicalMemory};
use gpucomm::{Device, DeviceBuffer, Error};

use super::{GRAIN, free, own};
use crate::child::child;
use crate::{Gate, LONG, device, random, stream};

/// Until as much memory is free as before.
fn settles(device: Device, before: usize) {
    let limit = Instant::now() + LONG;
    while free(device) < before {
        assert!(Instant::now() < limit, "{} bytes are missing", before - free(device));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// In a process of its own, as others would allocate meanwhile.
#[test]
fn nothing_is_left() {
    child("vmm::ends::nothing_is_left", &[], || {
        let device = device();
        let (mut before, mut random) = (0, random("vmm::ends::nothing_is_left"));
        for round in 0..60 {
            if round == 10 {
                // What CUDA keeps for itself it has by now, but for a little.
                before = free(device) - 4 * GRAIN;
            }
            let (a, b) = (stream(), stream());
            let gate = random.bool().then(|| Gate::close(&a));
            let properties = MemoryProperties::new(device).with_handle_types(HandleTypes::FD);
            let memory = PhysicalMemory::new_with(&properties, GRAIN).unwrap();
            let fd = memory.export_fd().unwrap();
            // SAFETY: one thread uses all of them, one after the other.
            let again = unsafe { memory.alias() };
            let range = AddressRange::reserve(4 * GRAIN).unwrap();
            let mut x: DeviceBuffer<u32> = range.map(memory, &[Access::read_write(device)]).unwrap().into_buffer();
            x.fill(&a, 1).unwrap();
            x.grow(PhysicalMemory::new(device, GRAIN).unwrap()).unwrap();
            let mut y = own::<u32>(device, 2 * GRAIN);
            y.copy_from(&b, &x).unwrap();
            // SAFETY: as above.
            let part = unsafe { x.alias(3..9).unwrap() };
            let mut things: Vec<Box<dyn Send>> =
                vec![Box::new(a), Box::new(b), Box::new(x), Box::new(y), Box::new(again), Box::new(fd), Box::new(part)];
            random.shuffle(&mut things);
            if random.bool() {
                drop(things);
            } else {
                let threads: Vec<_> = things.into_iter().map(|one| std::thread::spawn(move || drop(one))).collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            }
            drop(gate);
        }
        settles(device, before);
    })
    .assert_success();
}

/// The memory stays until the device is done with it.
#[test]
fn nothing_goes_while_it_is_used() {
    child("vmm::ends::nothing_goes_while_it_is_used", &[], || {
        let (stream, device) = (stream(), device());
        drop(own::<u8>(device, GRAIN));
        let before = free(device);
        let gate = Gate::close(&stream);
        let mut x = own::<u8>(device, 8 * GRAIN);
        x.fill(&stream, 3).unwrap();
        drop(x);
        assert!(free(device) <= before - 8 * GRAIN, "it was released under the fill");
        gate.open();
        stream.synchronize().unwrap();
        settles(device, before);
    })
    .assert_success();
}

#[test]
fn while_unwinding() {
    let stream = stream();
    let gate = Gate::close(&stream);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _range = AddressRange::reserve(GRAIN).unwrap();
        let _memory = PhysicalMemory::new(device(), GRAIN).unwrap();
        let _mapping = PhysicalMemory::new(device(), GRAIN).unwrap().map(&[Access::read(device())]).unwrap();
        let mut x = own::<u8>(device(), GRAIN);
        x.fill(&stream, 1).unwrap();
        panic!("as wanted");
    }));
    assert!(unwound.is_err());
    gate.open();
    assert_eq!(own::<u8>(device(), 1).len(), GRAIN);
}

#[test]
fn what_is_forgotten_leaks_and_nothing_else() {
    let stream = stream();
    forget(AddressRange::reserve(GRAIN).unwrap());
    forget(PhysicalMemory::new(device(), GRAIN).unwrap());
    forget(PhysicalMemory::new(device(), GRAIN).unwrap().map(&[Access::read(device())]).unwrap());
    let mut x = own::<u32>(device(), GRAIN);
    x.fill(&stream, 5).unwrap();
    // SAFETY: this thread alone uses both, one after the other.
    let part = unsafe { x.alias(1..4).unwrap() };
    forget(x);
    assert_eq!(part.to_vec(&stream).unwrap(), [5; 3]);
}

/// Within a host function CUDA must not be called: what goes there is lost.
#[test]
fn within_a_host_function() {
    let stream = stream();
    let (range, memory) = (AddressRange::reserve(GRAIN).unwrap(), PhysicalMemory::new(device(), GRAIN).unwrap());
    let mapping = PhysicalMemory::new(device(), GRAIN).unwrap().map(&[Access::read(device())]).unwrap();
    let buffer = own::<u8>(device(), GRAIN);
    stream.launch_host(move || drop((range, memory, mapping, buffer))).unwrap();
    stream.synchronize().unwrap();
    let (device, (sender, told)) = (device(), std::sync::mpsc::channel());
    stream.launch_host(move || sender.send(PhysicalMemory::new(device, 1).map(drop)).unwrap()).unwrap();
    stream.synchronize().unwrap();
    // On a thread that has never called CUDA, which the first call would set up.
    let refused = told.recv().unwrap();
    assert!(matches!(refused, Err(Error::InvalidUsage { .. })), "{refused:?}");
}
