//! Allocating it, together.

use gpucomm::Error;

use crate::support::random::{Bits, lengths, same};
use crate::support::{Here, each_type, errors, with_context, with_contexts};

/// Memory that was dirty before is zero, on all PEs, when the call returns.
fn zeroed<T: Bits>(here: &Here<'_>) {
    for len in lengths() {
        for round in 0..2 {
            let mut buffer = here.ctx.alloc::<T>(len).unwrap();
            let what = format!("zeros, round {round}");
            same(&what, &buffer.to_vec(here.stream).unwrap(), &vec![T::of_bits(0); len]);
            assert_eq!((buffer.len(), buffer.is_empty(), buffer.device()), (len, len == 0, here.seat.device));
            buffer.fill(here.stream, T::poison()).unwrap();
        }
    }
}

#[test]
fn it_is_zero() {
    with_context(|here| each_type!(zeroed(here)));
}

#[test]
fn uninitialised_it_is_there() {
    with_context(|here| {
        for len in lengths() {
            let mut buffer = here.ctx.alloc_uninit::<u32>(len).unwrap();
            buffer.fill(here.stream, 0x1234_5678).unwrap();
            assert_eq!(buffer.to_vec(here.stream).unwrap(), vec![0x1234_5678; len]);
        }
    });
}

#[test]
fn aligned_as_asked_for() {
    with_context(|here| {
        let _odd = here.ctx.alloc::<u8>(1).unwrap();
        for power in 0..=21 {
            let alignment = 1 << power;
            let buffer = here.ctx.alloc_aligned::<u8>(1021, alignment).unwrap();
            assert_eq!(buffer.as_raw().addr() % alignment, 0, "{alignment}");
            same("aligned", &buffer.to_vec(here.stream).unwrap(), &[0; 1021]);
        }
        let wide = here.ctx.alloc_aligned::<u64>(3, 1).unwrap();
        assert_eq!(wide.as_raw().addr() % 8, 0);
        for bad in [0, 3, 100, 4 << 20, usize::MAX] {
            let refused = here.ctx.alloc_aligned::<u8>(1, bad);
            errors::argument(refused, "Context::alloc_aligned", "a power of two up to 2 MiB", &bad.to_string());
        }
    });
}

#[test]
fn more_than_there_can_be() {
    with_context(|here| {
        let too_long = here.ctx.alloc::<u64>(usize::MAX / 4);
        errors::argument(too_long, "Context::alloc", "a number of elements that fits into memory", "");
        // What fits into addresses and not into the device: no PE has it.
        for len in [1 << 50, here.seat.device.memory_info().unwrap().total * 2] {
            let error = here.ctx.alloc::<u8>(len).expect_err("no device has that");
            let Error::OutOfMemory { bytes, .. } = error else { panic!("{error:?}") };
            assert_eq!(bytes, len);
        }
        // Nothing is broken by it.
        drop(here.ctx.alloc::<u8>(100).unwrap());
    });
}

/// One PE asks for something else than the others: all are told, nothing was done, and all go on.
#[test]
fn pes_that_ask_for_different_things() {
    with_contexts(&[2, 3, 4], |here| {
        let odd_one = here.n_pes() - 1;
        let odd = here.pe() == odd_one;
        let told = |error: Error, common: &str, other: &str| {
            let Error::Disagreement { rank, peer, expected, got, .. } = &error else { panic!("{error:?}") };
            let (is, was) = if *rank == odd_one { (got, expected) } else { (expected, got) };
            // Of another kind of call a PE knows the name only.
            let says = |text: &str, whole: &str| text == whole || whole.starts_with(&format!("{text} of "));
            assert!(says(is, other) && says(was, common), "{error}");
            if here.n_pes() > 2 {
                assert_eq!((*rank, *peer), (odd_one, 0), "{error}");
            }
            here.seat.meet();
        };
        let failed = here.ctx.alloc::<u32>(if odd { 11 } else { 10 }).map(drop);
        told(failed.expect_err("other lengths"), "an allocation of 40 bytes", "an allocation of 44 bytes");
        let failed = here.ctx.alloc_aligned::<u8>(64, if odd { 512 } else { 256 }).map(drop);
        let of = |by| format!("an allocation of 64 bytes, aligned to {by}");
        told(failed.expect_err("other alignments"), &of(256), &of(512));
        let failed = if odd { here.ctx.reclaim() } else { here.ctx.alloc::<u8>(3).map(drop) };
        told(failed.expect_err("other calls"), "an allocation of 3 bytes", "a reclaim");
        let failed = here.ctx.alloc::<u32>(if odd { 0 } else { 1 }).map(drop);
        told(failed.expect_err("nothing beside something"), "an allocation of 4 bytes", "an allocation of 0 bytes");
        let failed = if odd { here.ctx.alloc_uninit::<u8>(8) } else { here.ctx.alloc::<u8>(8) };
        let (zeros, none) = ("an allocation of 8 bytes", "an allocation of 8 bytes, without zeros");
        told(failed.map(drop).expect_err("with zeros, and without"), zeros, none);
        // They agree again.
        for len in lengths() {
            let buffer = here.ctx.alloc::<u8>(len).unwrap();
            same("after a disagreement", &buffer.to_vec(here.stream).unwrap(), &vec![0; len]);
        }
    });
}
