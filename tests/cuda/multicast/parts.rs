//! Memory in parts, at offsets, by handle and by address; and taken away again.

use gpucomm::cuda::multicast::BindSource;
use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
use gpucomm::{Device, DeviceBuffer, Stream, sys};

use super::{GRAIN, buffer, complete, devices, emulated, fill, values};

fn memory(device: Device, steps: usize) -> PhysicalMemory {
    PhysicalMemory::new(device, steps * GRAIN).unwrap()
}

#[test]
fn parts_at_offsets() {
    if !emulated() {
        return;
    }
    let [a, b] = devices(2)[..] else { unreachable!() };
    let (one, two, other) = (memory(a, 3), memory(a, 1), memory(b, 4));
    // The object: of a, steps 1 and 2 of `one`, then `two`; of b, its last three steps.
    let mut bound = complete(2, 4 * GRAIN).bind(BindSource::memory(&one).skip(GRAIN).at(GRAIN)).unwrap();
    bound.bind_more(BindSource::memory(&two).at(3 * GRAIN)).unwrap();
    bound.bind_more(BindSource::memory(&other).skip(GRAIN).at(GRAIN).bytes(3 * GRAIN)).unwrap();
    let mut mapped = bound.map().unwrap();
    let stream = Stream::new(b).unwrap();
    for step in 1..4 {
        fill(&stream, &mut mapped.part::<u8>(b, step * GRAIN, GRAIN).unwrap(), 10 + step as u8);
    }
    // Over the seam of two bindings.
    fill(&stream, &mut mapped.part::<u8>(b, 3 * GRAIN - 4, 8).unwrap(), 99);
    stream.synchronize().unwrap();
    let error = mapped.ptr::<u8>(b).unwrap_err().to_string();
    assert!(error.contains("nothing at 0 for device 0"), "{error}");

    let (one, two, other): (DeviceBuffer<u8>, DeviceBuffer<u8>, DeviceBuffer<u8>) =
        (buffer(one), buffer(two), buffer(other));
    let at = |buffer: &DeviceBuffer<u8>, step: usize| {
        let all = values(buffer);
        (all[step * GRAIN + GRAIN / 2], all[step * GRAIN], all[(step + 1) * GRAIN - 1])
    };
    assert_eq!((at(&one, 1), at(&one, 2)), ((11, 11, 11), (12, 12, 99)));
    assert_eq!(at(&two, 0), (13, 99, 13));
    assert_eq!((at(&other, 1), at(&other, 2), at(&other, 3)), ((11, 11, 11), (12, 12, 99), (13, 99, 13)));

    // Just what was bound is taken away, and other memory takes its place.
    let error = mapped.unbind(a, 2 * GRAIN).unwrap_err().to_string();
    assert!(error.contains("at: expected where something begins") && error.contains("2097152"), "{error}");
    mapped.unbind(a, 3 * GRAIN).unwrap();
    assert!(mapped.part::<u8>(b, 3 * GRAIN, GRAIN).is_err());
    let three = memory(a, 1);
    mapped.bind_more(BindSource::memory(&three).at(3 * GRAIN)).unwrap();
    fill(&stream, &mut mapped.part::<u8>(b, 3 * GRAIN, GRAIN).unwrap(), 77);
    stream.synchronize().unwrap();
    assert_eq!((at(&buffer(three), 0), at(&two, 0), at(&other, 3)), ((77, 77, 77), (13, 99, 13), (77, 77, 77)));
    mapped.close().unwrap();
}

#[test]
fn buffers_by_their_address() {
    if !emulated() {
        return;
    }
    let [a, b] = devices(2)[..] else { unreachable!() };
    let (stream, other) = (Stream::new(a).unwrap(), Stream::new(b).unwrap());
    // Of a pool, which begins anywhere.
    let mut pool = DeviceBuffer::<u8>::zeroed(&stream, 3 * GRAIN).unwrap();
    let skip = pool.as_raw().addr().next_multiple_of(GRAIN) - pool.as_raw().addr();
    // Mapped, and a part of it.
    let range = AddressRange::reserve(4 * GRAIN).unwrap();
    let mut own: DeviceBuffer<u8> = range.map(memory(b, 2), &[Access::read_write(b)]).unwrap().into_buffer();
    own.fill(&other, 1).unwrap();

    let part = BindSource::buffer(pool.slice(skip..)).bytes(GRAIN);
    let mut bound = complete(2, GRAIN).bind(part).unwrap();
    bound.bind_more(BindSource::buffer(own.slice(GRAIN..))).unwrap();
    let mapped = bound.map().unwrap();
    fill(&stream, &mut mapped.ptr::<u8>(a).unwrap(), 6);
    stream.synchronize().unwrap();
    assert!(values(&pool)[skip..skip + GRAIN].iter().all(|byte| *byte == 6));
    assert!(values(&pool)[..skip].iter().chain(&values(&pool)[skip + GRAIN..]).all(|byte| *byte == 0));
    assert!(values(&own)[..GRAIN].iter().all(|byte| *byte == 1));
    assert!(values(&own)[GRAIN..].iter().all(|byte| *byte == 6));
    pool.fill(&stream, 0).unwrap();
    // What is bound stays, though nobody else has it.
    let places = [(&stream, pool.as_raw().wrapping_byte_add(skip)), (&other, own.as_raw().wrapping_byte_add(GRAIN))];
    drop((pool, own));
    fill(&other, &mut mapped.ptr::<u8>(b).unwrap(), 7);
    other.synchronize().unwrap();
    for (stream, place) in places {
        let mut read = vec![0u8; GRAIN];
        let kind = sys::cudaMemcpyKind::cudaMemcpyDeviceToHost;
        let to = read.as_mut_ptr().cast();
        let copied = stream.launch((), |stream, ()| {
            // SAFETY: so many bytes of device memory, which stays while it is bound, and which nobody writes; and as many of the host, which
            // are waited for below.
            unsafe { sys::cudaMemcpyAsync(to, place.cast(), GRAIN, kind, stream.as_raw()) }
        });
        assert_eq!(copied.unwrap(), sys::cudaError::cudaSuccess);
        stream.synchronize().unwrap();
        assert!(read.iter().all(|byte| *byte == 7));
    }
    mapped.close().unwrap();
}
