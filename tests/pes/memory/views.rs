//! Parts of it, and copies.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpucomm::{DeviceBuffer, PinnedBuffer};

use crate::support::random::{Bits, lengths, same};
use crate::support::{Here, each_type, errors, with_context};

/// To the host and back, whole and in parts; with memory of the device too.
fn copies<T: Bits>(here: &Here<'_>) {
    let mut rng = here.rng_of("copies", here.pe());
    for len in lengths() {
        let mut want = vec![T::poison(); len];
        let mut buffer = here.ctx.alloc_uninit::<T>(len).unwrap();
        buffer.copy_from_slice(here.stream, &want).unwrap();
        for _ in 0..4 {
            let from = rng.usize(..=len);
            let to = rng.usize(from..=len);
            let values = T::vector(&mut rng, to - from);
            if rng.bool() {
                buffer.symmetric_mut(from..to).into_local().copy_from_slice(here.stream, &values).unwrap();
            } else {
                let source = DeviceBuffer::from_slice(here.stream, &values).unwrap();
                buffer.as_slice_mut().slice_mut(from..to).copy_from(here.stream, &source).unwrap();
            }
            want[from..to].copy_from_slice(&values);
            let got = buffer.symmetric(from..to).local().to_vec(here.stream).unwrap();
            same("a part", &got, &values);
        }
        same("all", &buffer.to_vec(here.stream).unwrap(), &want);
        let mut on_device = DeviceBuffer::<T>::zeroed(here.stream, len).unwrap();
        on_device.copy_from(here.stream, &buffer).unwrap();
        same("on the device", &on_device.to_vec(here.stream).unwrap(), &want);
        let mut host = vec![T::of_bits(0); len];
        buffer.copy_to_slice(here.stream, &mut host).unwrap();
        same("on the host", &host, &want);
    }
}

#[test]
fn copies_with_host_and_device() {
    with_context(|here| each_type!(copies(here)));
}

#[test]
fn with_pinned_memory() {
    with_context(|here| {
        let values: Vec<u32> = (0..1021).map(|at| at * 7 + here.pe() as u32).collect();
        let pinned = PinnedBuffer::from_slice(&values).unwrap();
        let mut buffer = here.ctx.alloc::<u32>(1021).unwrap();
        buffer.as_slice_mut().copy_from_pinned(here.stream, &pinned).unwrap();
        same("from pinned memory", &buffer.to_vec(here.stream).unwrap(), &values);
    });
}

#[test]
fn parts_lie_within() {
    with_context(|here| {
        let mut buffer = here.ctx.alloc::<u16>(100).unwrap();
        let at = buffer.as_raw().addr();
        let part = buffer.symmetric(10..30);
        assert_eq!((part.len(), part.is_empty()), (20, false));
        assert_eq!(part.local().as_raw().addr(), at + 20);
        assert_eq!(part.slice(5..).slice(..3).local().as_raw().addr(), at + 30);
        errors::argument(part.try_slice(3..21), "SymmetricSlice::try_slice", "", "21");
        assert!(catch_unwind(AssertUnwindSafe(|| buffer.symmetric(..101).len())).is_err());
        let (mut all, behind) = (buffer.as_symmetric_mut(), 101..101);
        errors::argument(all.try_slice_mut(behind), "SymmetricSliceMut::try_slice_mut", "", "101");
        let (mut left, mut right) = all.split_at_mut(33);
        left.local().fill(here.stream, 1).unwrap();
        right.local().fill(here.stream, 2).unwrap();
        assert_eq!((left.len(), right.len()), (33, 67));
        let want: Vec<u16> = [vec![1; 33], vec![2; 67]].concat();
        same("both halves", &buffer.to_vec(here.stream).unwrap(), &want);
    });
}
