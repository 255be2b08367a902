//! Functions of a type, of a size, or of another name come to the same as what this crate does in their place. On GPUs that is said of the library; the
//! emulator's pass on to what this crate calls (`sys::nvshmem_by_type`), so that there it is said of these tests.

mod elements;
mod moved;
mod otherwise;
mod reductions;
mod signalled;
mod transfers;
mod waits;

use std::ffi::c_void;

use crate::support::Here;

/// So many PEs: on the emulator it is the tests that are tried.
fn counts() -> &'static [usize] {
    match gpucomm::backend() {
        gpucomm::Backend::Emulator => &[2],
        gpucomm::Backend::Nvidia => &[1, 2, 3],
    }
}

/// Names of types, with the bytes of an element.
const TYPES: [(&str, usize); 25] = [
    ("bfloat16", 2),
    ("half", 2),
    ("float", 4),
    ("double", 8),
    ("char", 1),
    ("short", 2),
    ("schar", 1),
    ("int", 4),
    ("long", 8),
    ("longlong", 8),
    ("uchar", 1),
    ("ushort", 2),
    ("uint", 4),
    ("ulong", 8),
    ("ulonglong", 8),
    ("int8", 1),
    ("int16", 2),
    ("int32", 4),
    ("int64", 8),
    ("uint8", 1),
    ("uint16", 2),
    ("uint32", 4),
    ("uint64", 8),
    ("size", 8),
    ("ptrdiff", 8),
];
/// Bits of elements that have no type, with their bytes.
const SIZES: [(&str, usize); 5] = [("8", 1), ("16", 2), ("32", 4), ("64", 8), ("128", 16)];

/// A function of the library that is loaded.
#[cfg(not(gpucomm_emulator))]
fn symbol(name: &str) -> *mut c_void {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const std::ffi::c_char) -> *mut c_void;
    }
    let c = std::ffi::CString::new(name).unwrap();
    // SAFETY: a name; null stands for all that is loaded.
    let found = unsafe { dlsym(std::ptr::null_mut(), c.as_ptr()) };
    assert!(!found.is_null(), "{name} is not there");
    found
}

/// The same of the emulator.
#[cfg(gpucomm_emulator)]
fn symbol(name: &str) -> *mut c_void {
    gpucomm::sys::nvshmem_by_type(name).unwrap_or_else(|| panic!("{name} is not there"))
}

/// All PEs have come to it, and what was put or got is there.
fn over(here: &Here<'_>) {
    here.ctx.quiet().unwrap();
    here.ctx.on(here.stream).quiet().unwrap();
    here.settle();
}

/// Each name with its bytes.
fn of_types(patterns: &[&str]) -> Vec<(String, usize)> {
    let of = |pattern: &&str| TYPES.map(|(of_type, bytes)| (pattern.replace("TYPE", of_type), bytes));
    patterns.iter().flat_map(of).collect()
}

fn of_sizes(patterns: &[&str]) -> Vec<(String, usize)> {
    let of = |pattern: &&str| SIZES.map(|(size, bytes)| (pattern.replace("SIZE", size), bytes));
    patterns.iter().flat_map(of).collect()
}

/// Those of so many bytes.
fn only(names: &[(String, usize)], bytes: usize) -> Vec<&str> {
    names.iter().filter(|(_, of)| *of == bytes).map(|(name, _)| name.as_str()).collect()
}

/// Calls a function with the elements' size as its parameter, and the names of that size, for each size.
macro_rules! each_size {
    ($names:expr, $function:ident($here:expr)) => {{
        let names = $names;
        $function::<1>($here, &$crate::typed::only(&names, 1));
        $function::<2>($here, &$crate::typed::only(&names, 2));
        $function::<4>($here, &$crate::typed::only(&names, 4));
        $function::<8>($here, &$crate::typed::only(&names, 8));
        $function::<16>($here, &$crate::typed::only(&names, 16));
    }};
}
use each_size;

/// Random bytes of a PE, as elements.
fn drawn<const N: usize>(here: &Here<'_>, what: &str, pe: usize, len: usize) -> Vec<[u8; N]> {
    let mut rng = here.rng_of(what, pe);
    (0..len).map(|_| std::array::from_fn(|_| rng.u8(..))).collect()
}
