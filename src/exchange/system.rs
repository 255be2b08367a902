//! What a call of the system has answered.

use std::ffi::c_int;
use std::io;
use std::time::Duration;

/// What it gave, where it is not -1; else why.
pub(super) fn checked(status: c_int) -> io::Result<c_int> {
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

/// Whether `error` is one of these.
pub(super) fn is(error: &io::Error, codes: &[c_int]) -> bool {
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Milliseconds for a wait, rounded up, so that it does not end too early; -1 without a limit.
pub(super) fn milliseconds(time: Option<Duration>) -> c_int {
    time.map_or(-1, |time| c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

/// How many files this process may have open at once, once its limit is raised where that is below `wanted` and may be raised.
///
/// NCCL does the same in the process of rank 0, up to what is allowed. Who waits by `select` does not bear files above 1024, so that the limit
/// stays as it is where it is enough.
pub(super) fn most_files(wanted: usize) -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one limit, for which there is room.
    if checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }).is_err() {
        return 1024;
    }
    let more = libc::rlimit { rlim_cur: limit.rlim_max.min(wanted as libc::rlim_t), ..limit };
    if more.rlim_cur > limit.rlim_cur {
        // SAFETY: the kernel reads one limit. It is not lowered, so that no file that is open is above it.
        let raised = checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const more) });
        if raised.is_ok() {
            limit = more;
        }
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up() {
        let of = |nanos: u64| milliseconds(Some(Duration::from_nanos(nanos)));
        assert_eq!([of(0), of(1), of(1_000_000), of(1_000_001)], [0, 1, 1, 2]);
        assert_eq!((milliseconds(None), milliseconds(Some(Duration::MAX))), (-1, c_int::MAX));
    }

    #[test]
    fn answers() {
        assert_eq!(checked(3).unwrap(), 3);
        // SAFETY: no descriptor has this number.
        let error = checked(unsafe { libc::close(-1) }).unwrap_err();
        assert!(is(&error, &[libc::EINTR, libc::EBADF]) && !is(&error, &[libc::EINTR]));
    }
}
