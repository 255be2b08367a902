//! Files that others may have put there: opened without waiting, read up to a limit.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file. A pipe, a device or a directory is refused: the first would wait for somebody who writes.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file: expected one that a rank has written"));
    }
    Ok(file)
}

/// The bytes of a file, of which there are at most `limit`.
pub(super) fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let file = open(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::other(format!("it is longer than {limit} bytes, which no rank writes")));
    }
    Ok(bytes)
}
