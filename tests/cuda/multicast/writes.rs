//! What is written once comes to all devices, and in the order of streams.

use std::time::Duration;

use gpucomm::cuda::multicast::{Multicast, ObjectProperties};
use gpucomm::cuda::vmm::PhysicalMemory;
use gpucomm::{DeviceBuffer, Error, Stream};

use super::{GRAIN, buffer, complete, copy, devices, emulated, fill, mapped, values};
use crate::child::child;
use crate::{Gate, random};

#[test]
fn one_write_comes_to_all() {
    if !emulated() {
        return;
    }
    let mut random = random("multicast::writes::one_write_comes_to_all");
    for count in 2..=4 {
        let (object, memory) = mapped(count, GRAIN);
        assert_eq!(object.devices(), devices(count));
        let mut own: Vec<DeviceBuffer<u32>> = memory.into_iter().map(buffer).collect();
        let mut want = vec![0xabab_abab; GRAIN / 4];
        for own in &mut own {
            own.fill(&Stream::new(own.device()).unwrap(), want[0]).unwrap();
        }
        for _ in 0..8 {
            let writer = devices(count)[random.usize(..count)];
            let stream = Stream::new(writer).unwrap();
            let (from, len) = (random.usize(..GRAIN / 8), random.usize(1..GRAIN / 8));
            let data: Vec<u32> = (0..len).map(|_| random.u32(..)).collect();
            let source = DeviceBuffer::from_slice(&stream, &data).unwrap();
            let all = object.ptr::<u32>(writer).unwrap();
            copy(&stream, &mut all.slice(from..from + len), &source);
            want[from..from + len].copy_from_slice(&data);
            let (from, byte) = (random.usize(..GRAIN / 4), random.u8(..));
            fill(&stream, &mut all.slice(from..), byte);
            want[from..].fill(u32::from_ne_bytes([byte; 4]));
        }
        for own in &own {
            assert!(values(own) == want, "on {}", own.device());
        }
        object.close().unwrap();
        for own in &own {
            assert!(values(own) == want, "on {}, afterwards", own.device());
        }
    }
}

/// Uses by the one address come after uses by the other, whatever stream they are on.
#[test]
fn in_the_order_of_other_uses() {
    if !emulated() {
        return;
    }
    let (object, memory) = mapped(2, GRAIN);
    let own: Vec<DeviceBuffer<u8>> = memory.into_iter().map(buffer).collect();
    let stream = Stream::new(devices(2)[0]).unwrap();
    let gate = Gate::close(&stream);
    let mut all = object.ptr::<u8>(stream.device()).unwrap();
    fill(&stream, &mut all, 9);
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        gate.open();
    });
    for own in &own {
        assert_eq!(own.slice(GRAIN - 2..).to_vec(&Stream::new(own.device()).unwrap()).unwrap(), [9, 9]);
    }
    opener.join().unwrap();
    object.close().unwrap();
}

/// The end waits for the devices, and no longer than its deadline.
#[test]
fn an_end_while_a_device_writes() {
    if !emulated() {
        return;
    }
    let (object, memory) = mapped(2, GRAIN);
    let object = object.with_timeout(Duration::from_millis(50));
    let own: Vec<DeviceBuffer<u8>> = memory.into_iter().map(buffer).collect();
    let stream = Stream::new(devices(2)[1]).unwrap();
    let gate = Gate::close(&stream);
    fill(&stream, &mut object.ptr::<u8>(stream.device()).unwrap(), 3);
    let error = object.close().unwrap_err();
    assert!(matches!(error, Error::Timeout { operation: "Multicast::close", .. }), "{error}");
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(values(&own[0])[..2], [3, 3]);
}

/// What was bound stays where a device is not done with it.
#[test]
fn an_unbind_while_a_device_writes() {
    if !emulated() {
        return;
    }
    let (object, memory) = mapped(2, GRAIN);
    let mut object = object.with_timeout(Duration::from_millis(50));
    let own: Vec<DeviceBuffer<u8>> = memory.into_iter().map(buffer).collect();
    let stream = Stream::new(devices(2)[1]).unwrap();
    let gate = Gate::close(&stream);
    fill(&stream, &mut object.ptr::<u8>(stream.device()).unwrap(), 4);
    let error = object.unbind(devices(1)[0], 0).unwrap_err();
    assert!(matches!(error, Error::Timeout { operation: "Multicast::unbind", .. }), "{error}");
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!((values(&own[0])[GRAIN - 1], values(&own[1])[GRAIN - 1]), (4, 4));
    let mut object = object.with_timeout(crate::LONG);
    object.unbind(devices(1)[0], 0).unwrap();
    object.close().unwrap();
}

/// What is used within a launch was noted for that launch alone.
#[test]
fn a_launch_within_a_launch() {
    if !emulated() {
        return;
    }
    let (object, _memory) = mapped(2, GRAIN);
    let (stream, other) = (Stream::new(devices(2)[0]).unwrap(), Stream::new(devices(2)[0]).unwrap());
    let mut all = object.ptr::<u8>(stream.device()).unwrap();
    let errors = stream.launch(&mut all, |_, mut all| {
        let part = all.slice(..100);
        let errors = [other.launch(&part, |_, _| ()), other.launch(&mut all, |_, _| ())];
        errors.map(|result| result.unwrap_err().to_string())
    });
    for error in errors.unwrap() {
        assert!(error.contains("another launch was lent"), "{error}");
    }
    object.close().unwrap();
}

/// CUDA is not called where it must not be; what was to end is given to others.
#[test]
fn within_a_host_function() {
    if !emulated() {
        return;
    }
    let refused = |error: Error| {
        assert!(matches!(error, Error::InvalidUsage { .. }) && error.to_string().contains("host function"), "{error}");
    };
    let device = devices(1)[0];
    let stream = Stream::new(device).unwrap();
    let (object, memory) = mapped(2, GRAIN);
    let (closed, mut unbound) = (mapped(2, GRAIN), mapped(2, GRAIN));
    let properties = ObjectProperties::new(2, GRAIN).with_handle_types(gpucomm::cuda::vmm::HandleTypes::FD);
    let shared = Multicast::create(&properties).unwrap();
    let (bind, map) = (complete(2, GRAIN), complete(2, GRAIN).bind_all(&memory).unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    stream
        .launch_host(move || {
            let errors = [
                closed.0.close().unwrap_err(),
                unbound.0.unbind(device, 0).unwrap_err(),
                shared.export_fd().unwrap_err(),
                bind.bind_all(&memory).unwrap_err(),
                map.map().unwrap_err(),
            ];
            drop((object, unbound.0, shared));
            tell.send((errors, closed.1, unbound.1, memory)).unwrap();
        })
        .unwrap();
    told.recv_timeout(crate::LONG).unwrap().0.into_iter().for_each(refused);
}

/// An address is of the device that it was mapped for, and no capture keeps it.
#[test]
fn streams_that_cannot_have_it() {
    if !emulated() {
        return;
    }
    let (object, _memory) = mapped(2, GRAIN);
    let stream = Stream::new(devices(2)[1]).unwrap();
    let mut other = object.ptr::<u8>(devices(2)[0]).unwrap();
    let error = stream.launch(&mut other, |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("an address for device 1") && error.contains("device 0"), "{error}");
    let mut own = object.ptr::<u8>(stream.device()).unwrap();
    let captured = stream.capture(|stream| stream.launch(&mut own, |_, _| ()));
    assert!(captured.is_err());
}

#[test]
fn the_second_version_of_the_calls() {
    const NAME: &str = "multicast::writes::the_second_version_of_the_calls";
    if !emulated() {
        return;
    }
    child(NAME, &[("GPUCOMM_EMULATOR_MULTICAST", "v2")], || {
        let (object, memory) = mapped(3, 2 * GRAIN);
        let stream = Stream::new(devices(3)[2]).unwrap();
        fill(&stream, &mut object.ptr::<u8>(stream.device()).unwrap(), 5);
        stream.synchronize().unwrap();
        for memory in memory {
            assert!(values(&buffer::<u8>(memory)).iter().all(|byte| *byte == 5));
        }
        object.close().unwrap();
        Multicast::probe(&devices(4)).unwrap();
    })
    .assert_success();
}

/// Devices that were added one by one, by hand.
#[test]
fn from_state_to_state() {
    if !emulated() {
        return;
    }
    let properties = ObjectProperties::new(2, GRAIN);
    let mut building = Multicast::create(&properties).unwrap();
    assert!(format!("{building:?}").contains("building"));
    assert_ne!(building.as_raw(), 0);
    for device in devices(2) {
        building.add(device).unwrap();
    }
    let complete = building.complete().unwrap();
    assert_eq!((complete.properties(), complete.granularity().minimum), (&properties, GRAIN));
    let memory: Vec<_> = devices(2).iter().map(|device| PhysicalMemory::new(*device, GRAIN).unwrap()).collect();
    let bound = complete.bind_all(&memory).unwrap();
    assert!(format!("{bound:?}").contains("bindings: 2"));
    let mapped = bound.map().unwrap();
    let addresses: Vec<_> = devices(2).iter().map(|device| mapped.ptr::<u8>(*device).unwrap().as_raw()).collect();
    assert_ne!(addresses[0], addresses[1]);
    mapped.close().unwrap();
    // Each state ends in order.
    Multicast::create(&properties).unwrap().close().unwrap();
    self::complete(2, GRAIN).close().unwrap();
    self::complete(2, GRAIN).bind_all(&memory).unwrap().close().unwrap();
    Multicast::probe(&devices(2)).unwrap();
}

/// Large objects come in larger steps.
#[test]
fn steps() {
    if !emulated() {
        return;
    }
    let rounded = |bytes| ObjectProperties::new(2, bytes).rounded().unwrap().bytes();
    assert_eq!((rounded(0), rounded(1), rounded(GRAIN + 1)), (GRAIN, GRAIN, 2 * GRAIN));
    assert_eq!(rounded((512 << 20) + 1), 1 << 30);
    let large = complete(2, 600 << 20);
    assert_eq!((large.properties().bytes(), large.granularity().recommended), (1 << 30, 512 << 20));
    let memory: Vec<_> = devices(2).iter().map(|device| PhysicalMemory::new(*device, 1 << 30).unwrap()).collect();
    let mapped = large.bind_all(&memory).unwrap().map().unwrap();
    assert_eq!(mapped.ptr::<u8>(devices(2)[0]).unwrap().as_raw().addr() % (512 << 20), 0);
    mapped.close().unwrap();
}
