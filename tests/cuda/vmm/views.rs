//! Mapped memory as buffers: everywhere that others go, on several devices, at several addresses.

use gpucomm::cuda::vmm::{Access, AddressRange, HandleTypes, MemoryProperties, PhysicalMemory};
use gpucomm::{DeviceBuffer, PinnedBuffer, Stream};

use super::{GRAIN, mapped, own};
use crate::{Gate, Sample, device, random, samples, stream, two_devices};

#[test]
fn what_it_is() {
    let device = device();
    for handles in [HandleTypes::NONE, HandleTypes::FD] {
        let properties = MemoryProperties::new(device).with_handle_types(handles);
        let steps = properties.granularity().unwrap();
        assert!(steps.minimum.is_power_of_two() && steps.recommended.is_multiple_of(steps.minimum), "{steps:?}");
        assert_eq!(properties.round_up(1).unwrap(), steps.recommended);
        assert_eq!(properties.round_up(steps.recommended + 1).unwrap(), 2 * steps.recommended);
        let memory = PhysicalMemory::new_with(&properties, 1).unwrap();
        assert_eq!((memory.bytes(), memory.device()), (steps.recommended, device));
        assert_eq!(memory.properties(), &properties);
        assert!(memory.as_raw() != 0);
        let text = format!("{memory:?}");
        assert!(text.starts_with(&format!("PhysicalMemory {{ bytes: {}, properties: ", memory.bytes())), "{text}");
        let mapping = memory.map(&[Access::read_write(device)]).unwrap();
        let text = format!("{mapping:?}");
        let told = format!(
            "bytes: {0}, capacity: {0}, access: [Access {{ device: {device:?}, writes: true }}]",
            steps.recommended
        );
        assert!(text.starts_with("Mapping {") && text.contains(&told), "{text}");
    }
    assert!((HandleTypes::FD | HandleTypes::FABRIC).contains(HandleTypes::FABRIC));
    assert!(!HandleTypes::FD.contains(HandleTypes::FABRIC) && HandleTypes::FD.contains(HandleTypes::NONE));
    for alignment in [0, 1, 4096, GRAIN, 64 << 20] {
        let range = AddressRange::reserve_aligned(3 * GRAIN, alignment).unwrap();
        assert!(range.bytes() == 3 * GRAIN && range.as_raw().addr().is_multiple_of(alignment.max(GRAIN)));
    }
}

fn works<T: Sample>() {
    let (stream, other) = (stream(), stream());
    let mut random = random("vmm::views::works");
    let len = GRAIN / size_of::<T>();
    let mut x = own::<T>(stream.device(), 1);
    assert_eq!((x.len(), x.capacity(), x.device()), (len, len, stream.device()));
    let values: Vec<T> = samples(&mut random, len);
    x.copy_from_slice(&stream, &values).unwrap();
    assert_eq!(x.to_vec(&other).unwrap(), values);
    let begin = random.usize(..len - 100);
    x.slice_mut(begin..begin + 100).fill(&other, T::ZERO).unwrap();
    let mut pool = DeviceBuffer::<T>::zeroed(&stream, len).unwrap();
    pool.copy_from(&stream, &x).unwrap();
    let mut y = own::<T>(stream.device(), GRAIN);
    y.copy_from(&other, &pool).unwrap();
    let mut pinned = PinnedBuffer::<T>::zeroed(len).unwrap();
    y.copy_to_pinned(&other, &mut pinned).unwrap();
    let expected = |at: usize| if (begin..begin + 100).contains(&at) { T::ZERO } else { values[at] };
    assert!(pinned.as_slice().unwrap().iter().enumerate().all(|(at, value)| *value == expected(at)));
    x.copy_from_pinned(&stream, &pinned).unwrap();
    assert_eq!(x.slice(begin..begin + 100).to_vec(&stream).unwrap(), vec![T::ZERO; 100]);
}

#[test]
fn it_goes_where_others_go() {
    works::<u8>();
    works::<f32>();
    works::<f64>();
    works::<gpucomm::bf16>();
}

/// A use on one stream comes after a conflicting one on another, whatever devices they are of.
#[test]
fn several_devices_see_it() {
    let Some((a, b)) = two_devices() else { return };
    for home in [a, b] {
        let (first, second) = (Stream::new(a).unwrap(), Stream::new(b).unwrap());
        let mut x = mapped::<u32>(home, GRAIN, &[Access::read_write(a), Access::read_write(b)]);
        assert_eq!(x.device(), home);
        for round in 0..5 {
            let gate = Gate::close(&first);
            x.fill(&first, round).unwrap();
            x.slice_mut(1..2).fill(&second, round + 100).unwrap();
            assert!(!second.query().unwrap(), "it came before what is held up");
            gate.open();
            assert_eq!(x.slice(..3).to_vec(&first).unwrap(), [round, round + 100, round]);
        }
        // Between devices without a peer copy, and by one where the streams see it otherwise.
        let mut here = DeviceBuffer::<u32>::zeroed(&first, 7).unwrap();
        let mut there = DeviceBuffer::<u32>::zeroed(&second, 7).unwrap();
        here.copy_from(&first, x.slice(..7)).unwrap();
        there.copy_from(&second, x.slice(..7)).unwrap();
        assert_eq!(here.to_vec(&first).unwrap(), there.to_vec(&second).unwrap());
        there.copy_from(&first, &here).unwrap();
        // A stream of a third party copies nothing: neither end is of its device, which sees one of them only.
        assert_eq!(x.slice_mut(7..14).copy_from(&first, &there).is_ok(), home == a);
    }
}

#[test]
fn who_may_read_does_not_write() {
    let Some((a, b)) = two_devices() else { return };
    let (first, second) = (Stream::new(a).unwrap(), Stream::new(b).unwrap());
    let mut x = mapped::<u32>(a, GRAIN, &[Access::read_write(a), Access::read(b)]);
    x.fill(&first, 7).unwrap();
    assert_eq!(x.slice(5..7).to_vec(&second).unwrap(), [7, 7]);
    let error = x.fill(&second, 8).unwrap_err().to_string();
    let told = format!(
        "SliceMut::fill: stream: expected one of a device that may write to memory of {a} that is mapped for {a} and {b} (to read only), \
         got one of {b}"
    );
    assert_eq!(error, told);
    // The other one alone may use this.
    let mut y = mapped::<u32>(a, GRAIN, &[Access::read_write(b)]);
    y.fill(&second, 9).unwrap();
    assert_eq!(y.slice(..1).to_vec(&second).unwrap(), [9]);
    for error in [y.fill(&first, 1).unwrap_err(), y.to_vec(&first).map(drop).unwrap_err()] {
        assert!(error.to_string().contains(&format!("memory of {a} that is mapped for {b}")), "{error}");
    }
    for error in
        [first.launch(&y, |_, _| panic!("ran")).unwrap_err(), second.launch(&mut x, |_, _| panic!("ran")).unwrap_err()]
    {
        assert!(error.to_string().contains(&format!("got memory of {a} that is mapped for ")), "{error}");
    }
    let error = x.copy_from(&first, &y).unwrap_err().to_string();
    assert!(error.contains(", and read memory of ") && error.contains(&format!("got one of {a}")), "{error}");
    x.slice_mut(..1).copy_from(&second, y.slice(..1)).unwrap_err();
}

/// The same memory at two addresses has one order.
#[test]
fn at_two_addresses_it_is_one_memory() {
    let (a, b) = (stream(), stream());
    let memory = PhysicalMemory::new(device(), 2 * GRAIN).unwrap();
    // SAFETY: this thread alone uses both, one after the other.
    let again = unsafe { memory.alias() };
    let access = [Access::read_write(device())];
    let mut x: DeviceBuffer<u32> = memory.map(&access).unwrap().into_buffer();
    let mut y: DeviceBuffer<u32> = again.map(&access).unwrap().into_buffer();
    assert_ne!(x.as_raw(), y.as_raw());
    let gate = Gate::close(&a);
    x.fill(&a, 1).unwrap();
    y.slice_mut(3..4).fill(&b, 2).unwrap();
    assert!(!b.query().unwrap());
    // One of them goes while the other's work is on its way.
    drop(y);
    gate.open();
    assert_eq!(x.slice(2..5).to_vec(&a).unwrap(), [1, 2, 1]);
}
