//! Views of buffers.

use std::cell::Cell;
use std::ops::{Bound, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::{DeviceBuffer, Error, PinnedBuffer};

use crate::{random, stream};

#[test]
fn ranges_are_those_of_std() {
    let stream = stream();
    let values: Vec<i32> = (0..10).collect();
    let mut buffer = DeviceBuffer::from_slice(&stream, &values).unwrap();
    assert_eq!(buffer.slice(..).to_vec(&stream).unwrap(), values);
    assert_eq!(buffer.slice(3..).to_vec(&stream).unwrap(), values[3..]);
    assert_eq!(buffer.slice(..=3).to_vec(&stream).unwrap(), values[..=3]);
    assert_eq!(buffer.slice(2..5).slice(1..2).to_vec(&stream).unwrap(), [3]);
    assert_eq!(buffer.slice(10..).len(), 0);
    let (low, high) = buffer.slice(1..9).split_at(3);
    assert_eq!((low.to_vec(&stream).unwrap(), high.to_vec(&stream).unwrap()), (vec![1, 2, 3], vec![4, 5, 6, 7, 8]));
    let mut part = buffer.slice_mut(2..8);
    part.slice_mut(1..3).fill(&stream, 70).unwrap();
    part.reborrow().slice_mut(..1).fill(&stream, 60).unwrap();
    assert_eq!(part.slice(..4).to_vec(&stream).unwrap(), [60, 70, 70, 5]);
    assert_eq!(buffer.to_vec(&stream).unwrap(), [0, 1, 60, 70, 70, 5, 6, 7, 8, 9]);
}

#[test]
fn ranges_out_of_bounds() {
    let stream = stream();
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 10).unwrap();
    #[allow(clippy::reversed_empty_ranges)]
    for (begin, end) in [(0, 11), (11, 11), (7, 6), (usize::MAX, usize::MAX), (0, usize::MAX)] {
        let error = buffer.try_slice(begin..end).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { what: "range", .. }), "{error}");
        assert!(error.to_string().contains("0..10"), "{error}");
        buffer.try_slice_mut(begin..end).unwrap_err();
        catch_unwind(AssertUnwindSafe(|| buffer.slice(begin..end).len())).unwrap_err();
        catch_unwind(AssertUnwindSafe(|| buffer.slice_mut(begin..end).len())).unwrap_err();
    }
    buffer.try_slice(..=usize::MAX).unwrap_err();
    let said = |outcome: std::thread::Result<usize>| *outcome.unwrap_err().downcast::<String>().unwrap();
    for (name, text) in [
        ("Slice::try_slice: ", buffer.try_slice(..11).unwrap_err().to_string()),
        ("SliceMut::try_slice_mut: ", buffer.try_slice_mut(..11).unwrap_err().to_string()),
        ("Slice::slice: ", said(catch_unwind(AssertUnwindSafe(|| buffer.slice(..11).len())))),
        ("Slice::split_at: ", said(catch_unwind(AssertUnwindSafe(|| buffer.as_slice().split_at(11).0.len())))),
        ("SliceMut::slice_mut: ", said(catch_unwind(AssertUnwindSafe(|| buffer.slice_mut(..11).len())))),
        ("SliceMut::split_at_mut: ", said(catch_unwind(AssertUnwindSafe(|| buffer.split_at_mut(11).0.len())))),
        (
            "SliceMut::into_split: ",
            said(catch_unwind(AssertUnwindSafe(|| buffer.as_slice_mut().into_split(11).0.len()))),
        ),
    ] {
        assert!(text.starts_with(name), "{name} says {text}");
    }
    catch_unwind(AssertUnwindSafe(|| buffer.split_at_mut(11).0.len())).unwrap_err();
    assert_eq!(buffer.slice(2..4).try_slice(..3).unwrap_err().to_string().matches("0..2").count(), 1);
}

#[test]
fn addresses_follow_the_ranges() {
    let mut random = random("addresses_follow_the_ranges");
    let stream = stream();
    let buffer = DeviceBuffer::<f64>::uninit(&stream, 100).unwrap();
    for _ in 0..50 {
        let at = random.usize(..=100);
        assert_eq!(buffer.slice(at..).as_raw().addr(), buffer.as_raw().addr() + 8 * at);
    }
    assert_eq!(buffer.as_raw().addr() % 256, 0);
    assert!(DeviceBuffer::<f64>::zeroed(&stream, 0).unwrap().as_raw().is_null());
}

#[test]
fn conversions() {
    fn reads<'a>(slice: impl Into<Slice<'a, u8>>) -> usize {
        slice.into().len()
    }
    fn writes<'a>(slice: impl Into<SliceMut<'a, u8>>) -> usize {
        slice.into().len()
    }
    let stream = stream();
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 9).unwrap();
    assert_eq!((reads(&buffer), writes(&mut buffer)), (9, 9));
    let mut part = buffer.slice_mut(1..8);
    assert_eq!((reads(&part), writes(&mut part), reads(part.slice(1..)), reads(part)), (7, 7, 6, 7));
    let part = buffer.slice(..5);
    let also = &part;
    assert_eq!((reads(part), reads(also), reads(part)), (5, 5, 5));
}

#[test]
fn debug_shows_no_contents() {
    let stream = stream();
    let mut buffer = DeviceBuffer::from_slice(&stream, &[123_456i32; 3]).unwrap();
    let mut text = format!("{buffer:?} {:?}", buffer.slice(1..));
    text += &format!("{:?}", buffer.slice_mut(..0));
    assert!(text.contains("i32") && text.contains("3 elements on device 0") && !text.contains("123456"), "{text}");
}

/// A range whose bounds are others each time they are asked for.
struct Changes(Cell<usize>);

impl RangeBounds<usize> for Changes {
    fn start_bound(&self) -> Bound<&usize> {
        if self.0.replace(self.0.get() + 1) == 0 { Bound::Included(&2) } else { Bound::Included(&1000) }
    }

    fn end_bound(&self) -> Bound<&usize> {
        if self.0.replace(self.0.get() + 1) <= 1 { Bound::Excluded(&4) } else { Bound::Excluded(&100_000) }
    }
}

/// Bounds are asked for once: what was checked is what is shown.
#[test]
fn ranges_that_change() {
    let stream = stream();
    let values: Vec<u32> = (0..10).collect();
    let mut buffer = DeviceBuffer::from_slice(&stream, &values).unwrap();
    let changes = || Changes(Cell::new(0));
    assert_eq!(buffer.slice(changes()).to_vec(&stream).unwrap(), values[2..4]);
    assert_eq!(buffer.try_slice(changes()).unwrap().to_vec(&stream).unwrap(), values[2..4]);
    assert_eq!(buffer.slice_mut(changes()).as_slice().to_vec(&stream).unwrap(), values[2..4]);
    let mut pinned = PinnedBuffer::from_slice(&values).unwrap();
    assert_eq!(pinned.slice(changes()).as_slice().unwrap(), &values[2..4]);
    assert_eq!(pinned.slice_mut(changes()).as_slice_mut().unwrap(), &values[2..4]);
}

#[test]
fn chunks_of_any_length() {
    let stream = stream();
    let mut buffer = DeviceBuffer::from_slice(&stream, &(0..10).collect::<Vec<i32>>()).unwrap();
    assert_eq!(buffer.chunks(usize::MAX).map(|chunk| chunk.len()).collect::<Vec<_>>(), [10]);
    assert_eq!(buffer.chunks_mut(usize::MAX).rev().map(|chunk| chunk.len()).collect::<Vec<_>>(), [10]);
    assert_eq!(buffer.chunks_mut(3).rev().map(|chunk| chunk.len()).collect::<Vec<_>>(), [1, 3, 3, 3]);
}
