//! What the environment tells the library, read as the library reads it.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::OnceLock;

use crate::error::{Error, Result};

/// The variables that hold a size.
const SIZES: [&str; 9] = [
    "NVSHMEM_SYMMETRIC_SIZE",
    "NVSHMEM_CUMEM_GRANULARITY",
    "NVSHMEM_MAX_MEMORY_PER_GPU",
    "NVSHMEM_CUDA_LIMIT_STACK_SIZE",
    "NVSHMEM_REDUCE_SCRATCH_SIZE",
    "NVSHMEM_FCOLLECT_LL_THRESHOLD",
    "NVSHMEM_FCOLLECT_LL128_THRESHOLD",
    "NVSHMEM_FCOLLECT_NVLS_THRESHOLD",
    "NVSHMEM_REDUCESCATTER_NVLS_THRESHOLD",
];

/// The variables that hold a number, and the least and the most with which the library works. It divides by the first, and never
/// ends with less for the radices. It launches kernels with so many threads, and has no room for more blocks.
const NUMBERS: [(&str, i64, i64); 9] = [
    ("NVSHMEM_MAX_PEER_STREAMS", 1, MOST),
    ("NVSHMEM_BARRIER_DISSEM_KVAL", 2, MOST),
    ("NVSHMEM_BARRIER_TG_DISSEM_KVAL", 2, THREADS),
    ("NVSHMEM_REDUCE_RECEXCH_KVAL", 2, MOST),
    ("NVSHMEM_BCAST_TREE_KVAL", 2, MOST),
    ("NVSHMEM_FCOLLECT_NTHREADS", 1, THREADS),
    ("NVSHMEM_REDUCE_NTHREADS", 1, THREADS),
    ("NVSHMEM_REDUCESCATTER_NTHREADS", 1, THREADS),
    ("NVSHMEM_MAX_CTAS", 1, 128),
];

/// The most threads of a block.
const THREADS: i64 = 1024;

/// The least size of the memory with which a team reduces.
const SCRATCH: usize = 16;

/// The library keeps numbers as `int`.
const MOST: i64 = c_int::MAX as i64;

/// The variables as the library has read them, which it does once in each process.
static READ: OnceLock<BTreeMap<OsString, CString>> = OnceLock::new();

/// Records the variables. Called right before each call in which the library may read them.
pub(crate) fn record() {
    READ.get_or_init(|| {
        let own = std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"NVSHMEM_"));
        own.filter_map(|(name, value)| Some((name, CString::new(value.as_bytes()).ok()?))).collect()
    });
}

/// Checks the variables that would crash the library. At a size that it cannot read, it stops reading its variables, and starts
/// with zeros for all that follow.
///
/// # Errors
/// Returns [`Error::InvalidUsage`] with the variable and its value.
pub(crate) fn check(operation: &'static str) -> Result<()> {
    let refuse = |name: &str, expected: &str| {
        let text: OsString = std::env::var_os(name).unwrap_or_default();
        let reason = format!("{name} is {text:?}: expected {expected}, as NVSHMEM crashes with anything else");
        Err(Error::InvalidUsage { operation, reason })
    };
    for name in SIZES {
        if present(name).is_some_and(|text| size_of_text(&text).is_none()) {
            return refuse(name, "a size, such as 64M");
        }
    }
    let granularity = present("NVSHMEM_CUMEM_GRANULARITY").and_then(|text| size_of_text(&text));
    if granularity.is_some_and(|size| !size.is_power_of_two()) {
        return refuse("NVSHMEM_CUMEM_GRANULARITY", "a power of two");
    }
    let scratch = present("NVSHMEM_REDUCE_SCRATCH_SIZE").and_then(|text| size_of_text(&text));
    if scratch.is_some_and(|size| size < SCRATCH) {
        return refuse("NVSHMEM_REDUCE_SCRATCH_SIZE", &format!("at least {SCRATCH} bytes"));
    }
    for (name, least, most) in NUMBERS {
        if present(name).is_some_and(|text| !(least..=most).contains(&number_of(&text))) {
            return refuse(name, &format!("a number from {least} to {most}"));
        }
    }
    Ok(())
}

/// The value of a variable now.
fn present(name: &str) -> Option<CString> {
    CString::new(std::env::var_os(name)?.as_bytes()).ok()
}

/// The value of a variable as the library has read it, or would read it now.
fn text(name: &str) -> Option<CString> {
    match READ.get() {
        Some(read) => read.get(OsStr::new(name)).cloned(),
        None => present(name),
    }
}

/// A switch that is on; where it is not set, `otherwise`.
pub(crate) fn is_set(name: &str, otherwise: bool) -> bool {
    text(name).map_or(otherwise, |text| !matches!(text.as_bytes().first(), Some(b'0' | b'n' | b'N' | b'f' | b'F')))
}

/// A number, of base 16 and 8 as well. What stands behind it is passed over, and what is none at all is 0.
pub(crate) fn number(name: &str) -> Option<i64> {
    text(name).map(|text| number_of(&text))
}

fn number_of(text: &CString) -> i64 {
    // SAFETY: the text ends with a zero, and `strtol` takes a null pointer for the end of the number.
    unsafe { libc::strtol(text.as_ptr(), ptr::null_mut(), 0) }
}

/// A size; where there is none, `otherwise`.
pub(crate) fn size(name: &str, otherwise: usize) -> usize {
    text(name).and_then(|text| size_of_text(&text)).unwrap_or(otherwise)
}

/// Reads a number, and K, M, G or T behind it. Returns `None` for anything else.
fn size_of_text(text: &CString) -> Option<usize> {
    let mut end = ptr::null_mut();
    // SAFETY: it ends with a zero, and the end lies within.
    let (number, left) = unsafe {
        let number = libc::strtod(text.as_ptr(), &raw mut end);
        (number, end.cast_const().offset_from(text.as_ptr()))
    };
    let behind = text.as_bytes().get(usize::try_from(left).ok().filter(|left| *left > 0)?..)?;
    let shift = match behind.first().map(u8::to_ascii_lowercase) {
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        Some(b't') => 40,
        None => 0,
        Some(_) => return None,
    };
    let size = (number * (1u64 << shift) as f64).ceil();
    (0.0..usize::MAX as f64).contains(&size).then_some(size as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<R>(read: impl Fn(&CString) -> R) -> impl Fn(&str) -> R {
        move |text| read(&CString::new(text).unwrap())
    }

    #[test]
    fn sizes_are_read_as_the_library_reads_them() {
        let sizes = ["", "4096", "64K", "2m", "1.5M", "1GiB", "much", "1e11", "0x10k", "5 ", "-1", "nan", "inf"];
        let expected = [
            None,
            Some(4096),
            Some(64 << 10),
            Some(2 << 20),
            Some(3 << 19),
            Some(1 << 30),
            None,
            Some(100_000_000_000),
            Some(16 << 10),
            None,
            None,
            None,
            None,
        ];
        assert_eq!(sizes.map(of(size_of_text)), expected);
    }

    #[test]
    fn numbers_are_read_as_the_library_reads_them() {
        let numbers = ["", "16", "0x100", "010", "256x", "-3", "abc", " 7"];
        assert_eq!(numbers.map(of(number_of)), [0, 16, 256, 8, 256, -3, 0, 7]);
    }
}
