//! Single elements, which go by their bits.

use std::ffi::{c_int, c_void};

use super::{TYPES, counts, over, symbol};
use crate::support::random::{Bits, same};
use crate::support::{Here, with_contexts};

/// Puts and gets an element as a program of C would, of each type: what was got.
macro_rules! called {
    ($type:ty, $here:expr, $of:expr, $raw:expr, $source:expr, $value:expr) => {{
        let (function, on_stream) = (format!("nvshmem_{}_p", $of), format!("nvshmemx_{}_p_on_stream", $of));
        let pe = $here.next(1).0 as c_int;
        let _current = $here.seat.device.set_current().unwrap();
        // SAFETY: the header declares them so, with a type that is passed as this one; symmetric memory of two elements, and of one, which nobody else uses.
        unsafe {
            type Put = unsafe extern "C" fn(*mut $type, $type, c_int);
            type PutOnStream = unsafe extern "C" fn(*mut $type, $type, c_int, *mut c_void);
            type Get = unsafe extern "C" fn(*const $type, c_int) -> $type;
            let place: *mut $type = $raw.as_raw().cast();
            let (put, get) = (symbol(&function), symbol(&format!("nvshmem_{}_g", $of)));
            std::mem::transmute::<*mut c_void, Put>(put)(place, $value, pe);
            let put = std::mem::transmute::<*mut c_void, PutOnStream>(symbol(&on_stream));
            put(place.add(1), $value, pe, $here.stream.as_raw().cast());
            std::mem::transmute::<*mut c_void, Get>(get)($source.as_raw().cast_const().cast(), pe)
        }
    }};
}

/// Of a type that lies in memory as `T`, and is passed as an integer unless it is a float of C.
fn compare<T: Bits>(here: &Here<'_>, of: &str) {
    let (ctx, stream, to) = (here.ctx, here.stream, here.next(1));
    let (mut raw, mut own) = (ctx.alloc::<T>(2).unwrap(), ctx.alloc::<T>(2).unwrap());
    let mut source = ctx.alloc::<T>(1).unwrap();
    let value = |pe: usize| T::of_bits(here.rng_of(of, pe).u64(..));
    source.fill(stream, value(here.pe())).unwrap();
    here.settle();
    let bits = value(here.pe()).bits();
    let got = match (of, size_of::<T>()) {
        ("float", _) => u64::from(called!(f32, here, of, raw, source, f32::from_bits(bits as u32)).to_bits()),
        ("double", _) => called!(f64, here, of, raw, source, f64::from_bits(bits)).to_bits(),
        (_, 1) => called!(u8, here, of, raw, source, bits as u8).into(),
        (_, 2) => called!(u16, here, of, raw, source, bits as u16).into(),
        (_, 4) => called!(u32, here, of, raw, source, bits as u32).into(),
        _ => called!(u64, here, of, raw, source, bits),
    };
    ctx.put_value(own.symmetric(..1), value(here.pe()), to).unwrap();
    ctx.on(stream).put_value(own.symmetric(1..), value(here.pe()), to).unwrap();
    assert_eq!(got, ctx.get_value(&source, to).unwrap().bits(), "nvshmem_{of}_g");
    over(here);
    let what = format!("nvshmem_{of}_p");
    same(&what, &raw.to_vec(stream).unwrap(), &own.to_vec(stream).unwrap());
    same(&what, &raw.to_vec(stream).unwrap(), &[value(here.before(1)); 2]);
    raw.fill(stream, T::poison()).unwrap();
    own.fill(stream, T::poison()).unwrap();
    here.settle();
}

#[test]
fn of_all_types() {
    with_contexts(counts(), |here| {
        for (of, bytes) in TYPES {
            match bytes {
                1 => compare::<u8>(here, of),
                2 => compare::<u16>(here, of),
                4 => compare::<u32>(here, of),
                _ => compare::<u64>(here, of),
            }
        }
    });
}
