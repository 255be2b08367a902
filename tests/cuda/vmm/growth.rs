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
    // Parts that were split off would be shown twice.
    for mid in [0, 100] {
        let (mut first, rest) = room(4 * GRAIN, GRAIN).into_split(mid);
        let error = first.grow(more()).unwrap_err();
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error}");
        drop(rest);
        first.grow(more()).unwrap_err();
    }
    // What is mapped elsewhere has another order.
    let mut y = room(4 * GRAIN, GRAIN);
    let memory = more();
    // SAFETY: as above.
    let again = unsafe { memory.alias() };
    let _elsewhere: DeviceBuffer<u8> = memory.map(&[Access::read_write(device())]).unwrap().into_buffer();
    let error = y.grow(again).unwrap_err();
    assert!(matches!(&error, Error::InvalidUsage { reason, .. } if reason.contains("mapped elsewhere")), "{error}");
    y.grow(more()).unwrap();
    // An alias would keep its length.
    // SAFETY: as above.
    let old = unsafe { y.alias(..).unwrap() };
    let error = y.grow(more()).unwrap_err();
    assert!(matches!(&error, Error::InvalidUsage { reason, .. } if reason.contains("other buffers")), "{error}");
    drop(old);
    y.grow(more()).unwrap();
    assert_eq!(y.len(), 3 * GRAIN / 4);
    // Nor on a thread of CUDA.
    let (sender, told) = std::sync::mpsc::channel();
    let memory = more();
    stream.launch_host(move || sender.send(y.grow(memory)).unwrap()).unwrap();
    stream.synchronize().unwrap();
    let refused = told.recv().unwrap();
    assert!(matches!(refused, Err(Error::InvalidUsage { .. })), "{refused:?}");
    drop(own::<u8>(device(), GRAIN));
}
