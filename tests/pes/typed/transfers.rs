//! Puts and gets, side by side and with strides.

use std::ffi::{c_int, c_void};

use gpucomm::Result;
use gpucomm::nvshmem::{Strides, SymmetricBuffer};

use super::{counts, drawn, each_size, of_sizes, of_types, over, symbol};
use crate::support::random::{Bits, same};
use crate::support::{Here, with_contexts};

type Dense = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int);
type DenseOnStream = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int, *mut c_void);
type Apart = unsafe extern "C" fn(*mut c_void, *const c_void, isize, isize, usize, c_int);
type ApartOnStream = unsafe extern "C" fn(*mut c_void, *const c_void, isize, isize, usize, c_int, *mut c_void);

const LEN: usize = 37;
/// Room for as many elements, three apart.
const ROOM: usize = 3 * LEN;
const STRIDES: Strides = Strides { dest: 3, source: 2 };

/// Whether it moves elements that do not lie side by side.
fn is_apart(name: &str) -> bool {
    name.contains("_iput") || name.contains("_iget")
}

/// Calls `name` as a program of C would.
fn call(here: &Here<'_>, name: &str, dest: *mut c_void, source: *const c_void) {
    let (function, pe) = (symbol(name), here.next(1).0 as c_int);
    let (stream, strides) = (here.stream.as_raw().cast(), (STRIDES.dest as isize, STRIDES.source as isize));
    let _current = here.seat.device.set_current().unwrap();
    match (is_apart(name), name.ends_with("_on_stream")) {
        // SAFETY: the header declares it so; both have room for so many elements, and nobody else uses them.
        (false, false) => unsafe { std::mem::transmute::<*mut c_void, Dense>(function)(dest, source, LEN, pe) },
        // SAFETY: as above, and a stream of the device.
        (false, true) => unsafe {
            std::mem::transmute::<*mut c_void, DenseOnStream>(function)(dest, source, LEN, pe, stream);
        },
        // SAFETY: as above, at these distances.
        (true, false) => unsafe {
            std::mem::transmute::<*mut c_void, Apart>(function)(dest, source, strides.0, strides.1, LEN, pe);
        },
        // SAFETY: as above.
        (true, true) => unsafe {
            let function = std::mem::transmute::<*mut c_void, ApartOnStream>(function);
            function(dest, source, strides.0, strides.1, LEN, pe, stream);
        },
    }
}

/// What this crate does in its place, in elements of `N` bytes.
fn equivalent<const N: usize>(
    here: &Here<'_>,
    name: &str,
    dest: &mut SymmetricBuffer<'_, [u8; N]>,
    source: &SymmetricBuffer<'_, [u8; N]>,
) -> Result<()> {
    let (ctx, pe) = (here.ctx, here.next(1));
    match (is_apart(name), name.contains("put")) {
        (false, true) => ctx.put(dest.symmetric(..LEN), source.symmetric(..LEN).local(), pe),
        (false, false) => ctx.get(dest.as_slice_mut().slice_mut(..LEN), source.symmetric(..LEN), pe),
        (true, true) => ctx.iput(&*dest, source.as_slice(), STRIDES, LEN, pe),
        (true, false) => ctx.iget(dest.as_slice_mut(), source, STRIDES, LEN, pe),
    }
}

fn compare<const N: usize>(here: &Here<'_>, names: &[&str]) {
    let bytes = |buffer: &SymmetricBuffer<'_, [u8; N]>| buffer.to_vec(here.stream).unwrap().concat();
    let alloc = || here.ctx.alloc::<[u8; N]>(ROOM).unwrap();
    let (mut source, mut raw, mut own) = (alloc(), alloc(), alloc());
    for name in names {
        source.copy_from_slice(here.stream, &drawn::<N>(here, name, here.pe(), ROOM)).unwrap();
        raw.fill(here.stream, [u8::poison(); N]).unwrap();
        own.fill(here.stream, [u8::poison(); N]).unwrap();
        here.settle();
        call(here, name, raw.as_raw(), source.as_raw());
        equivalent(here, name, &mut own, &source).unwrap();
        over(here);
        let raw = bytes(&raw);
        assert!(raw.iter().any(|byte| *byte != u8::poison()), "{name} has done nothing");
        same(name, &raw, &bytes(&own));
        here.settle();
    }
}

#[test]
fn puts_and_gets_of_types() {
    with_contexts(counts(), |here| {
        let names = ["put", "get", "put_nbi", "get_nbi"].map(|what| format!("nvshmem_TYPE_{what}"));
        each_size!(of_types(&names.each_ref().map(String::as_str)), compare(here));
    });
}

#[test]
fn puts_and_gets_of_types_on_streams() {
    with_contexts(counts(), |here| {
        let names = ["put", "get", "put_nbi", "get_nbi"].map(|what| format!("nvshmemx_TYPE_{what}_on_stream"));
        each_size!(of_types(&names.each_ref().map(String::as_str)), compare(here));
    });
}

#[test]
fn puts_and_gets_of_sizes() {
    with_contexts(counts(), |here| {
        let host = ["nvshmem_putSIZE", "nvshmem_getSIZE", "nvshmem_putSIZE_nbi", "nvshmem_getSIZE_nbi"];
        each_size!(of_sizes(&host), compare(here));
        let on_stream = host.map(|name| format!("{}_on_stream", name.replace("nvshmem_", "nvshmemx_")));
        each_size!(of_sizes(&on_stream.each_ref().map(String::as_str)), compare(here));
    });
}

#[test]
fn strides_of_types_and_sizes() {
    with_contexts(counts(), |here| {
        each_size!(of_types(&["nvshmem_TYPE_iput", "nvshmem_TYPE_iget"]), compare(here));
        each_size!(of_sizes(&["nvshmem_iputSIZE", "nvshmem_igetSIZE"]), compare(here));
    });
}

#[test]
fn strides_on_streams() {
    with_contexts(counts(), |here| {
        each_size!(of_types(&["nvshmemx_TYPE_iput_on_stream", "nvshmemx_TYPE_iget_on_stream"]), compare(here));
        each_size!(of_sizes(&["nvshmemx_iputSIZE_on_stream", "nvshmemx_igetSIZE_on_stream"]), compare(here));
    });
}
