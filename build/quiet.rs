//! Silence: libclang writes what it finds to stderr by itself, and the user is to get one message.

use std::ffi::c_int;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;

unsafe extern "C" {
    fn dup(fd: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
}

const STDERR: c_int = 2;

/// Calls `f`, which must not panic, while stderr leads nowhere.
pub fn stderr<T>(f: impl FnOnce() -> T) -> T {
    let Ok(nowhere) = OpenOptions::new().write(true).open("/dev/null") else { return f() };
    // SAFETY: a call that takes and gives a number, which is looked at.
    let saved = unsafe { dup(STDERR) };
    if saved < 0 {
        return f();
    }
    // SAFETY: both are open; stderr is only ever replaced, never closed, so that nobody's descriptor is lost.
    unsafe { dup2(nowhere.as_raw_fd(), STDERR) };
    let result = f();
    // SAFETY: `saved` is open, this function's own, and used by nobody after it is closed.
    unsafe {
        dup2(saved, STDERR);
        close(saved);
    }
    result
}
