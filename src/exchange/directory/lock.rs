//! Locks on files, which go with the process that holds them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::file;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// The error of a system call on a file.
pub(super) fn failed(operation: &'static str, path: &Path, error: &io::Error) -> Error {
    Error::Exchange { operation, key: path.display().to_string(), reason: error.to_string() }
}

/// Opens a file for a lock, and makes it where there is none.
pub(super) fn open(path: &Path) -> io::Result<File> {
    file::open(path, OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o666))
}

/// Tries to lock a file; whether it could. The lock goes when the file is closed, by whatever end of the process.
pub(super) fn try_lock(file: &File, shared: bool) -> io::Result<bool> {
    let how = if shared { libc::LOCK_SH } else { libc::LOCK_EX };
    // SAFETY: the descriptor is open, as its file is borrowed; nothing is read or written.
    if unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
        _ => Err(error),
    }
}

/// Locks the file at `path`, for as long as what is returned is kept.
///
/// A file that is removed while we wait for its lock is not what others lock: then the new one is taken.
pub(super) fn lock(operation: &'static str, path: &Path, deadline: &Deadline) -> Result<File> {
    let fail = |error: io::Error| failed(operation, path, &error);
    let locked = deadline.until(|| {
        let file = open(path).map_err(fail)?;
        if !try_lock(&file, false).map_err(fail)? {
            return Ok(None);
        }
        let held = file.metadata().map_err(fail)?;
        let same = std::fs::metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino()));
        Ok(same.then_some(file))
    })?;
    locked.ok_or_else(|| deadline.error(operation, format!("another process keeps the lock {}", path.display())))
}
