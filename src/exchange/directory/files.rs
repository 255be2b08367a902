//! Files of a directory that ranks share: regular files up to a limit, locks, second names, and the
//! files of keys.
//!
//! Each part of a key between its slashes is a directory, and the last part is a file, so that all
//! keys below a prefix can be removed together. The name of a file begins with `=`, the name of a
//! directory with `+`. So no key is another one's directory, and no key leads out of the directory.

use std::fmt::Write;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// The longest name of a file or directory. File systems take 255 bytes, and longer parts of keys
/// go on in a directory of their own.
const NAME: usize = 200;

/// The error of a system call on a file.
pub(super) fn failed(operation: &'static str, path: &Path, error: &io::Error) -> Error {
    Error::Exchange { operation, key: path.display().to_string(), reason: error.to_string() }
}

/// Opens a file. Refuses a pipe, a device or a directory that others may have put there: opening a
/// pipe waits for a writer.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file: expected one that a rank has written"));
    }
    Ok(file)
}

/// The bytes of a file, at most `limit`.
pub(super) fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let file = open(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::other(format!("it is longer than {limit} bytes, which no rank writes")));
    }
    Ok(bytes)
}

/// Opens a file to lock it, and makes it if there is none.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o666))
}

/// Tries to lock a file, and says whether that has succeeded. The lock ends when the file is
/// closed, at the latest with the process.
pub(super) fn try_lock(file: &File, is_shared: bool) -> io::Result<bool> {
    match if is_shared { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks the file at `path`, for as long as the returned file is open.
///
/// If the file is removed while we wait for its lock, others lock a new one. Then the new one is
/// taken.
pub(super) fn lock(operation: &'static str, path: &Path, deadline: &Deadline) -> Result<File> {
    let fail = |error: io::Error| failed(operation, path, &error);
    let locked = deadline.until(|| {
        let file = open_lock(path).map_err(fail)?;
        if !try_lock(&file, false).map_err(fail)? {
            return Ok(None);
        }
        let held = file.metadata().map_err(fail)?;
        let same = std::fs::metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino()));
        Ok(same.then_some(file))
    })?;
    locked.ok_or_else(|| deadline.error(operation, format!("another process keeps the lock {}", path.display())))
}

/// Gives a file a second name, unless another file has that. Says whether it has it now; `None` where
/// the file system has no hard links.
pub(super) fn link(file: &Path, name: &Path) -> io::Result<Option<bool>> {
    match std::fs::hard_link(file, name) {
        Ok(()) => Ok(Some(true)),
        // Over NFS, also where an answer was lost.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Some(is_one(file, name)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether two names are of one file.
fn is_one(file: &Path, name: &Path) -> io::Result<bool> {
    let of = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    match of(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found? == of(file)?),
    }
}

/// The name of a part of a key: letters, digits, `-` and `_` as they are, and any other byte as `%`
/// and two hexadecimal digits.
fn escaped(part: &str) -> String {
    let mut name = String::with_capacity(part.len());
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => write!(name, "%{byte:02x}").unwrap_or_default(),
        }
    }
    name
}

/// Appends a part of a key, as a name that begins with `sign`.
fn push(path: &mut PathBuf, part: &str, sign: char) {
    let name = escaped(part);
    let mut rest = name.as_str();
    while rest.len() > NAME {
        let (head, tail) = rest.split_at(NAME);
        path.push(format!("~{head}"));
        rest = tail;
    }
    path.push(format!("{sign}{rest}"));
}

/// A directory below `root` for a name that may hold anything. Different names have different ones.
pub(super) fn directory_for(root: &Path, name: &str) -> PathBuf {
    let mut path = root.to_owned();
    push(&mut path, name, '+');
    path
}

/// The file of a key.
pub(in crate::exchange) fn key_file(root: &Path, key: &str) -> PathBuf {
    let mut path = root.to_owned();
    let (parts, last) = key.rsplit_once('/').map_or((None, key), |(parts, last)| (Some(parts), last));
    for part in parts.into_iter().flat_map(|parts| parts.split('/')) {
        push(&mut path, part, '+');
    }
    push(&mut path, last, '=');
    path
}

/// The directory of all keys that begin with `prefix`, which ends with a slash.
pub(super) fn prefix_directory(root: &Path, prefix: &str) -> PathBuf {
    let mut path = root.to_owned();
    for part in prefix.strip_suffix('/').unwrap_or(prefix).split('/') {
        push(&mut path, part, '+');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_directory_below_the_root() {
        let root = Path::new("/r");
        let long = ["x", "y"].map(|last| format!("{}{last}", "ö".repeat(300)));
        let names =
            ["a/b", "a_b", "a b", "a:b", "ä", "ö", "a.b", "a%2eb", ".", "..", "+a", "a", "A", "/", &long[0], &long[1]];
        let paths: std::collections::BTreeSet<_> = names.iter().map(|name| directory_for(root, name)).collect();
        assert_eq!(paths.len(), names.len());
        for path in &paths {
            let parts: Vec<_> = path.strip_prefix(root).unwrap().iter().map(|part| part.to_str().unwrap()).collect();
            let is_name = |part: &&str| part.starts_with(['+', '~']) && part.len() <= NAME + 1;
            assert!(!parts.is_empty() && parts.iter().all(is_name), "{path:?}");
            // A job that removes its directory removes nothing of another one.
            assert!(paths.iter().all(|other| other == path || !other.starts_with(path)), "{path:?}");
        }
    }

    #[test]
    fn each_key_has_a_file_below_the_root() {
        let root = Path::new("/r");
        let long = "ö".repeat(300);
        let keys = [
            "a", "a/a", "a/", "/a", "/", "//", ".", "..", "../a", "A", "%61", "+a", "=a", "~a", "a/+a", &long, "a\0",
            "a b",
        ];
        let files: std::collections::BTreeSet<_> = keys.iter().map(|key| key_file(root, key)).collect();
        assert_eq!(files.len(), keys.len());
        for path in &files {
            let names = path.strip_prefix(root).unwrap().components();
            assert!(names.map(|name| name.as_os_str().len()).all(|len| (1..=NAME + 1).contains(&len)), "{path:?}");
            assert!(!path.components().any(|part| part == std::path::Component::ParentDir), "{path:?}");
        }
        assert_eq!(key_file(root, "g/1/x.y"), Path::new("/r/+g/+1/=x%2ey"));
        assert_eq!(prefix_directory(root, "g/1/"), Path::new("/r/+g/+1"));
        assert!(key_file(root, "a/b/c").starts_with(prefix_directory(root, "a/b/")));
    }
}
