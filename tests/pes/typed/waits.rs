//! Waits for values of types that have other names.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use gpucomm::nvshmem::{Comparison, SymmetricBuffer, Waited};
use gpucomm::{DeviceBuffer, Stream, sys};

use super::symbol;
use crate::support::random::Bits;
use crate::support::{Here, slower, with_contexts};

type One<T> = unsafe extern "C" fn(*mut T, c_int, T, *mut c_void);
type All<T> = unsafe extern "C" fn(*mut T, usize, *const c_int, c_int, T, *mut c_void);
type Vector<T> = unsafe extern "C" fn(*mut T, usize, *const c_int, c_int, *mut T, *mut c_void);

const WAITS: [&str; 3] = ["wait_until", "wait_until_all", "wait_until_all_vector"];

/// What a wait has.
struct Flags<'a, 'c, T: Bits> {
    /// The first is waited for; the second is left out where it can be.
    flags: &'a SymmetricBuffer<'c, T>,
    skip: &'a DeviceBuffer<i32>,
    bounds: &'a DeviceBuffer<T>,
}

/// Waits until what lies there is above one, as a program of C would.
fn called<T: Bits>(here: &Here<'_>, of: &str, what: &str, all: &Flags<'_, '_, T>, stream: &Stream) {
    let function = symbol(&format!("nvshmemx_{of}_{what}_on_stream"));
    let (flags, gt, one) = (all.flags.as_raw().cast::<T>(), sys::NVSHMEM_CMP_GT, T::of_bits(1));
    let (skip, bounds) = (all.skip.as_raw().cast_const().cast(), all.bounds.as_raw().cast());
    let stream = stream.as_raw().cast();
    let _current = here.seat.device.set_current().unwrap();
    // SAFETY: the header declares them so, with a type that is this one; all of it lives until the stream is done.
    unsafe {
        match what {
            "wait_until" => std::mem::transmute::<*mut c_void, One<T>>(function)(flags, gt, one, stream),
            "wait_until_all" => std::mem::transmute::<*mut c_void, All<T>>(function)(flags, 2, skip, gt, one, stream),
            _ => std::mem::transmute::<*mut c_void, Vector<T>>(function)(flags, 2, skip, gt, bounds, stream),
        }
    }
}

/// What this crate does in its place.
fn equivalent<T: Bits + Waited>(here: &Here<'_>, what: &str, all: &Flags<'_, '_, T>, stream: &Stream) {
    let (ctx, one, skip) = (here.ctx, T::of_bits(1), Some(all.skip.as_slice()));
    match what {
        "wait_until" => ctx.on(stream).wait_until(all.flags.symmetric(..1), Comparison::Gt, one, ()),
        "wait_until_all" => ctx.on(stream).wait_until_all(all.flags, skip, Comparison::Gt, one, ()),
        _ => ctx.on(stream).wait_until_all_vector(all.flags, skip, Comparison::Gt, all.bounds, ()),
    }
    .unwrap();
}

/// Whether a stream has come to its end within a time.
fn is_done(stream: &Stream, within: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < within {
        if stream.query().unwrap() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Puts two there, past the order of this crate, which would have this PE's own put come after its wait.
fn release<T: Bits>(here: &Here<'_>, flags: &SymmetricBuffer<'_, T>, two: &DeviceBuffer<T>, stream: &Stream) {
    let _current = here.seat.device.set_current().unwrap();
    let (dest, source, stream) = (flags.as_raw(), two.as_raw().cast_const().cast(), stream.as_raw());
    // SAFETY: symmetric memory of this PE that a stream waits on for this, and one element for it; the stream is waited for.
    unsafe { sys::nvshmemx_putmem_on_stream(dest, source, size_of::<T>(), here.pe() as c_int, stream) };
}

/// All bits set are above one where there is no sign, and below it where there is.
fn compare<T: Bits + Waited>(here: &Here<'_>, of: &str, is_signed: bool) {
    let ctx = here.ctx;
    let mut flags = ctx.alloc::<T>(2).unwrap();
    let skip = DeviceBuffer::from_slice(here.stream, &[0, 1]).unwrap();
    let bounds = DeviceBuffer::from_slice(here.stream, &[T::of_bits(1); 2]).unwrap();
    let two = DeviceBuffer::from_slice(here.stream, &[T::of_bits(2)]).unwrap();
    let (one, other) = (Stream::new(here.seat.device).unwrap(), Stream::new(here.seat.device).unwrap());
    for what in WAITS {
        for raw in [true, false] {
            flags.copy_from_slice(here.stream, &[T::of_bits(u64::MAX), T::of_bits(0)]).unwrap();
            here.settle();
            let all = Flags { flags: &flags, skip: &skip, bounds: &bounds };
            match raw {
                true => called(here, of, what, &all, &one),
                false => equivalent(here, what, &all, &one),
            }
            let name = format!("{of} {what}, {}", if raw { "called" } else { "in its place" });
            if is_signed {
                assert!(!is_done(&one, Duration::from_millis(10)), "{name}: -1 is above 1");
                release(here, &flags, &two, &other);
            }
            assert!(is_done(&one, slower(20.0)), "{name}: it waits");
            one.synchronize().unwrap();
            other.synchronize().unwrap();
            here.settle();
        }
    }
}

#[test]
fn of_other_names() {
    with_contexts(&[1, 2], |here| {
        if !here.is_whole() {
            return;
        }
        for of in ["int", "int32"] {
            compare::<i32>(here, of, true);
        }
        for of in ["long", "longlong", "ptrdiff", "int64"] {
            compare::<i64>(here, of, true);
        }
        compare::<u32>(here, "uint", false);
        for of in ["ulong", "ulonglong", "size", "uint64"] {
            compare::<u64>(here, of, false);
        }
    });
}
