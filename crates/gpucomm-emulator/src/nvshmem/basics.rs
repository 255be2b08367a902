//! How calls fail, what environment variables say, and the kinds of calls.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use crate::report;
use crate::sys::{NVSHMEMX_ERROR_INVALID_VALUE, cudaError};

/// A call does nothing: what it returns, where it returns a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed(pub(crate) c_int);

/// What a function gives back.
pub(crate) type Outcome<T = ()> = Result<T, Failed>;

/// A mistake that the library answers by the end of the process, a wait for ever, or with what nobody knows. It is reported; where
/// that does not end the process, the call does nothing.
pub(crate) fn wrong(text: impl AsRef<str>) -> Failed {
    report::violation(text);
    Failed(NVSHMEMX_ERROR_INVALID_VALUE)
}

/// The library refuses this with a status, and says why on stderr.
pub(crate) fn refused(status: c_int, text: impl AsRef<str>) -> Failed {
    report::line(format!("{}: {}", report::call(), text.as_ref()));
    Failed(status)
}

/// CUDA refuses what the library asks of it, which ends the process.
pub(crate) fn cuda(what: &str, error: cudaError) -> Failed {
    wrong(format!("{what}: CUDA's error {}, at which NVSHMEM ends the process", error.0))
}

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

/// The variables of NVSHMEM, as they were when the library first read them.
static VARIABLES: OnceLock<BTreeMap<OsString, CString>> = OnceLock::new();

/// Reads the variables, once in each process: for the first id, or for the first start.
pub(crate) fn read_variables() {
    VARIABLES.get_or_init(|| {
        let own = std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"NVSHMEM_"));
        let all: BTreeMap<_, _> =
            own.filter_map(|(name, value)| Some((name, CString::new(value.as_bytes()).ok()?))).collect();
        for name in SIZES {
            if let Some(text) = all.get(OsStr::new(name)).filter(|text| size_of_text(text).is_none()) {
                report::violation(format!(
                    "{name} is {text:?}, which is no size: NVSHMEM reads none of the variables behind it, and starts with zeros for them"
                ));
            }
        }
        all
    });
}

fn variable(name: &str) -> Option<&'static CStr> {
    VARIABLES.get()?.get(OsStr::new(name)).map(CString::as_c_str)
}

/// Returns the size that a variable holds, or `otherwise` if it is not set.
pub(crate) fn variable_size(name: &str, otherwise: u64) -> u64 {
    variable(name).and_then(size_of_text).unwrap_or(otherwise)
}

/// Reads a number, and K, M, G or T behind it. Returns `None` for anything else.
fn size_of_text(text: &CStr) -> Option<u64> {
    let mut end = std::ptr::null_mut();
    // SAFETY: it ends with a zero, and so does what is left of it.
    let (number, left) = unsafe {
        let number = libc::strtod(text.as_ptr(), &raw mut end);
        (number, CStr::from_ptr(end))
    };
    if left.count_bytes() == text.count_bytes() {
        // There is no number.
        return None;
    }
    let shift = match left.to_bytes().first().map(u8::to_ascii_lowercase) {
        None => 0,
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        Some(b't') => 40,
        _ => return None,
    };
    let size = (number * (1u64 << shift) as f64).ceil();
    (0.0..u64::MAX as f64).contains(&size).then_some(size as u64)
}

/// A number, of base 16 and 8 as well. What stands behind it is passed over, and what is none at all is 0.
pub(crate) fn variable_number(name: &str) -> Option<i64> {
    // SAFETY: the text ends with a zero, and `strtol` takes a null pointer for the end of the number.
    variable(name).map(|text| unsafe { libc::strtol(text.as_ptr(), std::ptr::null_mut(), 0) })
}

/// A switch that is on; where it is not set, `otherwise`.
pub(crate) fn variable_is_set(name: &str, otherwise: bool) -> bool {
    variable(name).map_or(otherwise, |text| !matches!(text.to_bytes().first(), Some(b'0' | b'n' | b'N' | b'f' | b'F')))
}

macro_rules! kinds {
    ($($kind:ident = $code:literal $name:literal,)*) => {
        /// Kinds of calls.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind { $($kind = $code),* }

        impl Kind {
            /// The one that is told by such a number.
            pub(crate) fn from_code(code: u64) -> Option<Self> {
                match code {
                    $($code => Some(Self::$kind),)*
                    _ => None,
                }
            }

            /// In words.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }
        }
    };
}

kinds! {
    Init = 1 "the start",
    Finalize = 2 "finalize",
    Malloc = 3 "malloc",
    Calloc = 4 "calloc",
    Align = 5 "align",
    Free = 6 "free",
    Register = 7 "buffer_register_symmetric",
    Unregister = 8 "buffer_unregister_symmetric",
    Barrier = 9 "barrier",
    Sync = 10 "sync",
    Split = 11 "team_split",
    TeamInit = 12 "team_init",
    Broadcast = 13 "broadcast",
    Fcollect = 14 "fcollect",
    AllToAll = 15 "alltoall",
    Reduce = 16 "reduce",
    ReduceScatter = 17 "reducescatter",
    WaitUntil = 18 "wait_until",
    Bootstrap = 19 "the bootstrap",
    QueuePairs = 20 "qp_create",
}
