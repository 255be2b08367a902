//! Buffers that grow where they stand.

use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
use gpucomm::{DeviceBuffer, Error};

use super::{GRAIN, own};
use crate::{Gate, device, random, stream};

fn room(bytes: usize, first: usize) -> DeviceBuffer<u32> {
    let memory = PhysicalMemory::new(device(), first).unwrap();
    let mapping = AddressRange::reserve(bytes).unwrap().map(memory, &[Access::read_write(device())]).unwrap();
    assert_eq!((mapping.bytes(), mapping.capacity()), (first, bytes));
    assert_eq!((mapping.device(), mapping.access()), (device(), &[Access::read_write(device())][..]));
    mapping.into_buffer()
}

#[test]
fn what_was_there_stays() {
    let (a, b) = (stream(), stream());
    let mut random = random("growth::what_was_there_stays");
    let mut x = room(16 * GRAIN, GRAIN);
    let begin = x.as_raw();
    let mut expected = vec![0u32; x.len()];
    x.fill(&a, 0).unwrap();
    for round in 1..=5u32 {
        // While the device is at work with what there is.
        let gate = Gate::close(&a);
        x.fill(&a, round).unwrap();
        expected.fill(round);
        x.grow(PhysicalMemory::new(device(), random.usize(1..=3) * GRAIN).unwrap()).unwrap();
        assert_eq!((x.as_raw(), x.capacity()), (begin, 16 * GRAIN / 4));
        let at = expected.len();
        assert!(x.len() > at);
        expected.resize(x.len(), round + 100);
        x.slice_mut(at..).fill(&b, round + 100).unwrap();
        assert!(!b.query().unwrap(), "one order for all of it");
        // Across the seam.
        x.slice_mut(at - 3..at + 3).copy_from_slice(&b, &[9; 6]).unwrap_or_else(|error| panic!("{error}"));
        expected[at - 3..at + 3].fill(9);
        gate.open();
        assert!(x.to_vec(&a).unwrap() == expected, "round {round}");
    }
}

#[test]
fn what_cannot_grow() {
    let stream = stream();
    let more = || PhysicalMemory::new(device(), GRAIN).unwrap();
    let mut pool = DeviceBuffer::<u32>::zeroed(&stream, 9).unwrap();
    let error = pool.grow(more()).unwrap_err();
    assert!(matches!(error, Error::InvalidUsage { operation: "DeviceBuffer::grow", .. }), "{error}");
    assert_eq!((pool.len(), pool.capacity()), (9, 9));
    // As much as there are addresses for, and no more.
    let mut x = room(3 * GRAIN, GRAIN);
    let error = x.grow(PhysicalMemory::new(device(), 3 * GRAIN).unwrap()).unwrap_err().to_string();
    assert!(error.contains(&format!("at most {} bytes", 2 * GRAIN)), "{error}");
    x.grow(more()).unwrap();
    x.grow(more()).unwrap();
    x.grow(more()).unwrap_err();
    assert_eq!(x.len(), 3 * GRAIN / 4);
    // SAFETY: this thread alone uses both, one after the other.
    let mut part = unsafe { x.alias(5..10).unwrap() };
    assert!(matches!(part.grow(more()).unwrap_err(), Error::InvalidUsage { .. }));
    // What is mapped elsewhere has another order.
    let mut y = room(4 * GRAIN, GRAIN);
    let memory = more();
    // SAFETY: as above.
    let again = unsafe { memory.alias() };
    let _elsewhere: DeviceBuffer<u8> = memory.map(&[Access::read_write(device())]).unwrap().into_buffer();
    let error = y.grow(again).unwrap_err();
    assert!(matches!(&error, Error::InvalidUsage { reason, .. } if reason.contains("mapped elsewhere")), "{error}");
    y.grow(more()).unwrap();
    // An alias keeps its length.
    // SAFETY: as above.
    let old = unsafe { y.alias(..).unwrap() };
    y.grow(more()).unwrap();
    assert_eq!((old.len(), y.len()), (2 * GRAIN / 4, 3 * GRAIN / 4));
    drop(y);
    old.to_vec(&stream).map(drop).unwrap();
    drop(own::<u8>(device(), GRAIN));
}
