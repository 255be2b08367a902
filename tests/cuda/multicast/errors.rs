//! What cannot be: each error says what was expected and what came.

use std::time::{Duration, Instant};

use gpucomm::cuda::multicast::{BindSource, Multicast, ObjectProperties, Refusal};
use gpucomm::cuda::vmm::{self, HandleTypes, PhysicalMemory};
use gpucomm::{CudaCode, DeviceBuffer, Error, Stream};

use super::{GRAIN, complete, devices, emulated, mapped, raw};
use crate::refused;

#[test]
fn objects() {
    if !emulated() {
        return;
    }
    refused(Multicast::create(&ObjectProperties::new(0, GRAIN)), &["devices", "1 to 4294967295 devices", "got 0"]);
    refused(Multicast::create(&ObjectProperties::new(2, GRAIN + 1)), &["bytes", "multiple of 2097152", "2097153"]);
    refused(Multicast::create(&ObjectProperties::new(2, 0)), &["bytes", "got 0"]);
    refused(ObjectProperties::new(2, usize::MAX).rounded(), &["bytes", "at most"]);
    let [a, b] = devices(2)[..] else { unreachable!() };
    refused(Multicast::single_process(&[], GRAIN), &["Multicast::single_process", "at least one device", "none"]);
    refused(Multicast::single_process(&[a, b, a], GRAIN), &["device", "once", "device 0 twice"]);
    let mut building = Multicast::create(&ObjectProperties::new(2, GRAIN)).unwrap();
    building.add(a).unwrap();
    refused(building.add(a), &["once", "device 0 twice"]);
    building.add(b).unwrap();
    refused(building.add(devices(3)[2]), &["no more than 2 devices", "device 2"]);
    let mut building = Multicast::create(&ObjectProperties::new(3, GRAIN)).unwrap();
    building.add(a).unwrap();
    let error = building.complete().unwrap_err().to_string();
    assert!(error.contains("all 3 devices") && error.contains("got 1"), "{error}");
    let building = Multicast::create(&ObjectProperties::new(2, GRAIN)).unwrap();
    refused(building.export_fd(), &["made for file descriptors", "no handles"]);
    refused(building.export_fabric(), &["made for fabric handles", "no handles"]);
}

#[test]
fn bindings() {
    if !emulated() {
        return;
    }
    let [a, b, c] = devices(3)[..] else { unreachable!() };
    let memory = PhysicalMemory::new(a, 2 * GRAIN).unwrap();
    let whole = BindSource::memory(&memory);
    let of_c = PhysicalMemory::new(c, GRAIN).unwrap();
    refused(complete(2, 4 * GRAIN).bind(BindSource::memory(&of_c)), &["has added", "device 2"]);
    refused(complete(2, 4 * GRAIN).bind(whole.at(1)), &["at", "multiple of 2097152", "got 1"]);
    refused(complete(2, 4 * GRAIN).bind(whole.skip(100)), &["skip", "multiple of 2097152", "got 100"]);
    refused(complete(2, 4 * GRAIN).bind(whole.bytes(GRAIN / 2)), &["bytes", "multiple of", "1048576"]);
    refused(complete(2, 4 * GRAIN).bind(whole.bytes(0)), &["bytes", "0 bytes from 0"]);
    refused(complete(2, 4 * GRAIN).bind(whole.bytes(4 * GRAIN)), &["4194304 bytes of the memory", "8388608 bytes"]);
    refused(complete(2, 4 * GRAIN).bind(whole.at(3 * GRAIN).bytes(2 * GRAIN)), &["8388608 bytes of the object"]);
    refused(complete(2, 4 * GRAIN).bind(whole.at(8 * GRAIN)), &["bytes"]);
    refused(complete(2, 4 * GRAIN).bind_all(&[]), &["memory", "none"]);
    let mut bound = complete(2, 4 * GRAIN).bind(whole).unwrap();
    refused(bound.bind_more(whole.at(GRAIN)), &["none are bound for device 0", "0 to 4194304"]);
    refused(bound.unbind(b, 0), &["bound for device 1", "[]"]);
    // What was refused changed nothing.
    bound.unbind(a, 0).unwrap();
    bound.bind_more(whole.at(GRAIN)).unwrap();
    bound.close().unwrap();
    let stream = Stream::new(a).unwrap();
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 3 * GRAIN).unwrap();
    let odd = buffer.as_raw().addr().next_multiple_of(GRAIN) - buffer.as_raw().addr() + 256;
    refused(
        complete(2, GRAIN).bind(BindSource::buffer(buffer.slice(odd..odd + GRAIN))),
        &["address", "multiple of 2097152"],
    );
}

#[test]
fn memory_that_cannot_be_shared() {
    if !emulated() {
        return;
    }
    let [a, b] = devices(2)[..] else { unreachable!() };
    let shared = || {
        let properties = ObjectProperties::new(2, GRAIN).with_handle_types(HandleTypes::FD);
        let mut building = Multicast::create(&properties).unwrap();
        building.add(a).unwrap();
        building.add(b).unwrap();
        building.complete().unwrap()
    };
    let private = PhysicalMemory::new(a, GRAIN).unwrap();
    let stream = Stream::new(a).unwrap();
    let pool = DeviceBuffer::<u8>::zeroed(&stream, 2 * GRAIN).unwrap();
    let skip = pool.as_raw().addr().next_multiple_of(GRAIN) - pool.as_raw().addr();
    for part in [BindSource::memory(&private), BindSource::buffer(pool.slice(skip..skip + GRAIN))] {
        let error = shared().bind(part).unwrap_err();
        assert!(matches!(error, Error::Multicast { why: Refusal::NotShareable, .. }), "{error}");
        assert!(error.to_string().contains("handle_types"), "{error}");
    }
    let properties = vmm::MemoryProperties::new(a).with_handle_types(HandleTypes::FD);
    let memory = PhysicalMemory::new_with(&properties, GRAIN).unwrap();
    shared().bind(BindSource::memory(&memory)).unwrap().close().unwrap();
    // The other way round is fine.
    complete(2, GRAIN).bind(BindSource::memory(&memory)).unwrap().close().unwrap();
}

#[test]
fn addresses() {
    if !emulated() {
        return;
    }
    let (object, _memory) = mapped(2, GRAIN);
    let [a, _, c] = devices(3)[..] else { unreachable!() };
    refused(object.ptr::<u8>(c), &["has added", "device 2"]);
    refused(object.part::<u32>(a, 2, 1), &["at", "multiple of 4", "got 2"]);
    refused(object.part::<u32>(a, 4, GRAIN / 4), &["length", "at most 524287", "524288"]);
    refused(object.part::<u32>(a, 0, usize::MAX), &["length", "at most"]);
    refused(object.part::<u8>(a, 2 * GRAIN, 1), &["length", "at most 0"]);
    assert!(object.part::<u8>(a, GRAIN, 0).unwrap().is_empty());
    let all = object.ptr::<u8>(a).unwrap();
    let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| all.slice(..GRAIN + 1).len()));
    assert!(outside.is_err());
}

/// The driver blocks until the last device was added: the deadline is found all the same, and nothing that the call may still use is taken
/// away.
#[test]
fn a_bind_that_does_not_return() {
    if !emulated() {
        return;
    }
    let [a, b] = devices(2)[..] else { unreachable!() };
    let properties = ObjectProperties::new(2, GRAIN);
    let memory = PhysicalMemory::new(a, GRAIN).unwrap();
    let half = || {
        let mut building = Multicast::create(&properties).unwrap();
        building.add(a).unwrap();
        let raw = building.as_raw();
        std::mem::forget(building);
        raw
    };
    for with_one in [true, false] {
        let handle = half();
        // SAFETY: it was made so, and nobody else releases it; that the second device is missing is found.
        let complete = unsafe { Multicast::from_raw(handle, &properties, &[a]) }.unwrap();
        let start = Instant::now();
        let complete = complete.with_timeout(Duration::from_millis(200));
        let error = complete.bind(BindSource::memory(&memory)).unwrap_err();
        assert!(matches!(error, Error::Timeout { operation: "Multicast::bind", .. }), "{error}");
        assert!(error.to_string().contains("before all devices were added"), "{error}");
        assert!((Duration::from_millis(200)..Duration::from_secs(20)).contains(&start.elapsed()));
        if with_one {
            // The last device comes, and the call returns.
            raw::add(handle, b);
        }
    }
    drop(memory);
}

/// What is bound when nobody waits any more stays: nobody could take it away.
#[test]
fn a_bind_that_ends_late() {
    if !emulated() {
        return;
    }
    let device = devices(1)[0];
    let stream = Stream::new(device).unwrap();
    let pool = || {
        let pool = DeviceBuffer::<u8>::zeroed(&stream, 2 * GRAIN).unwrap();
        stream.synchronize().unwrap();
        let skip = pool.as_raw().addr().next_multiple_of(GRAIN) - pool.as_raw().addr();
        (pool, skip)
    };
    for mapped_before in [false, true] {
        let mut late = 0;
        // Now and then it is not late after all.
        for _ in 0..8 {
            let (pool, skip) = pool();
            let part = BindSource::buffer(pool.slice(skip..skip + GRAIN));
            let result = if mapped_before {
                let mut object = mapped(2, 2 * GRAIN).0;
                object.unbind(device, 0).unwrap();
                let mut object = object.with_timeout(Duration::ZERO);
                object.bind_more(part)
            } else {
                complete(2, GRAIN)
                    .with_timeout(Duration::ZERO)
                    .bind(part)
                    .map(|bound| bound.with_timeout(crate::LONG).close().unwrap())
            };
            if let Err(error) = result {
                assert!(matches!(error, Error::Timeout { .. }), "{error}");
                late += 1;
            }
            std::thread::sleep(Duration::from_millis(30));
            // The emulator would say that it is bound.
            drop(pool);
            stream.synchronize().unwrap();
        }
        assert!(late > 0);
    }
}

/// Memory of a device that belongs to no part of the object.
#[test]
fn a_device_that_was_never_added() {
    if !emulated() {
        return;
    }
    let (properties, c) = (ObjectProperties::new(2, GRAIN), devices(3)[2]);
    let theirs = complete(2, GRAIN);
    let raw = theirs.as_raw();
    std::mem::forget(theirs);
    // SAFETY: it was made so, and is not used elsewhere; that this device was not added is found.
    let object = unsafe { Multicast::from_raw(raw, &properties, &[c]) }.unwrap();
    let memory = PhysicalMemory::new(c, GRAIN).unwrap();
    let error = object.bind(BindSource::memory(&memory)).unwrap_err();
    assert!(matches!(error, Error::Cuda { operation: "cuMulticastBindMem", code: CudaCode(101), .. }), "{error:?}");
}
