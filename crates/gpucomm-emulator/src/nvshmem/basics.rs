//! How calls fail, what environment variables say, and the kinds of calls.

use std::ffi::c_int;

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

/// A number, and K, M, G or T behind it.
pub(crate) fn variable_size(name: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return otherwise };
    let text = text.trim().trim_end_matches(['b', 'B']).trim_end_matches('i');
    let (digits, shift) = match text.bytes().last().map(|letter| letter.to_ascii_lowercase()) {
        Some(b'k') => (&text[..text.len() - 1], 10),
        Some(b'm') => (&text[..text.len() - 1], 20),
        Some(b'g') => (&text[..text.len() - 1], 30),
        Some(b't') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.parse::<f64>().map_or(otherwise, |number| (number * (1u64 << shift) as f64) as u64)
}

/// A number.
pub(crate) fn variable_number<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.trim().parse().ok()
}

/// A switch that is on; where it is not set, `otherwise`.
pub(crate) fn variable_is_set(name: &str, otherwise: bool) -> bool {
    let Ok(value) = std::env::var(name) else { return otherwise };
    !matches!(value.trim_start().bytes().next(), None | Some(b'0' | b'n' | b'N' | b'f' | b'F'))
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
