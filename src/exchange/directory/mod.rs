//! A store in a directory that all ranks share.

mod files;
mod presence;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(any(test, fuzzing))]
pub(super) use self::files::key_file;
use self::files::{failed, lock, prefix_directory};
use self::presence::Presence;
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::exchange::store::{MAX_VALUE, Store, Swap, check_rank, check_value, nonce};
use crate::exchange::table::sum;

/// The number of locks. The value of a key is replaced under one of them. A process that is stopped
/// while it holds a lock holds up few other keys.
const LOCKS: u64 = 4096;

/// The longest pause between two reads of files that a rank waits for.
const PAUSE: Duration = Duration::from_millis(5);

/// How long a rank that leaves waits for others that enter or leave at the same moment.
const LEAVE: Duration = Duration::from_secs(2);

/// A store in a directory that all ranks share, for processes of one host or of several over a
/// network file system.
///
/// A value is written to a new file and renamed, so that no rank sees a part of it. The first value
/// of a key is linked to its name. Other changes are made under `flock` locks, which the system
/// releases when a process ends, so that the death of a rank is noticed. All files are in a folder
/// `gpucomm-exchange` there, which the last rank to leave removes. If ranks were killed, the first
/// rank of the next run removes their files.
///
/// Tested on local file systems. NFS must be version 4, or 3 with its lock service, so that `flock`
/// holds between hosts (not mounted with `nolock` or `local_lock=flock`). Its clients must not
/// cache that a file is absent: mount with `lookupcache=positive` or `noac`. The end of a host is
/// then noticed when the server drops its lease. A forked child that has not called `exec` keeps
/// the locks of its parent.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    rank: usize,
    size: usize,
    id: u64,
    presence: Presence,
    written: AtomicU64,
    link: fn(&Path, &Path) -> io::Result<Option<bool>>,
}

impl Directory {
    /// Enters the directory as `rank` of `size`, and makes it if there is none. All ranks pass the
    /// same directory, and no other program uses it.
    ///
    /// ```
    /// # use gpucomm::exchange::{Directory, Exchange};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let shared = std::env::temp_dir().join(format!("gpucomm-doc-{}", std::process::id()));
    /// # let (rank, size) = (0, 1);
    /// // From the launcher: a directory that all processes reach, and the rank of this one.
    /// let exchange = Exchange::join(Directory::open(&shared, rank, size)?)?;
    /// exchange.barrier()?;
    /// # drop(exchange);
    /// # let _ = std::fs::remove_dir_all(shared);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if `rank` is out of range, or another rank has passed
    /// another size. Returns [`Error::Exchange`] if the directory or a file in it cannot be made,
    /// locked, read or written, and [`Error::Timeout`] if ranks that enter or leave at the same
    /// moment hold its lock for too long.
    pub fn open(path: impl AsRef<Path>, rank: usize, size: usize) -> Result<Self> {
        let operation = "Directory::open";
        check_rank(operation, rank, size)?;
        let root = path.as_ref().join("gpucomm-exchange");
        let id = nonce();
        let presence = Presence::enter(operation, &root, (id, size), &Deadline::after(default_timeout()))?;
        Ok(Self { root, rank, size, id, presence, written: AtomicU64::new(0), link: files::link })
    }

    /// A directory below `path` for a job, whose name may hold anything. No two jobs have the same.
    pub(crate) fn below(path: &Path, job: &str) -> PathBuf {
        files::directory_for(path, job)
    }

    fn file(&self, key: &str) -> PathBuf {
        files::key_file(&self.root.join("keys"), key)
    }

    fn lock(&self, operation: &'static str, key: &str, within: Duration) -> Result<File> {
        // FNV-1a, which is the same in programs of all compilers.
        let hash = key
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        lock(operation, &self.root.join("locks").join((hash % LOCKS).to_string()), &Deadline::after(within))
    }

    /// Writes a value to a new file. `publish` gives that the name of the key, or removes it.
    fn write<T>(
        &self,
        operation: &'static str,
        key: &str,
        value: &[u8],
        publish: impl Fn(&Path, &Path) -> io::Result<T>,
    ) -> Result<T> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let new = self.root.join("new").join(format!("{:016x}-{number}", self.id));
        let file = self.file(key);
        let written = File::create_new(&new).and_then(|mut file| file.write_all(value)).and_then(|()| {
            let mut tries = 0;
            loop {
                match publish(&new, &file) {
                    // The directory is made when it is first needed, and removed with its
                    // generation.
                    Err(error) if error.kind() == io::ErrorKind::NotFound && tries < 8 => {
                        tries += 1;
                        std::fs::create_dir_all(file.parent().unwrap_or(&self.root))?;
                    }
                    result => return result,
                }
            }
        });
        written.map_err(|error| {
            let _ = std::fs::remove_file(&new);
            failed(operation, &file, &error)
        })
    }

    /// Replaces the value of a key, if there is one. The key is locked.
    fn replace(&self, operation: &'static str, key: &str, value: &[u8]) -> Result<()> {
        self.write(operation, key, value, |new, file| std::fs::rename(new, file))
    }

    /// Gives a key its first value. Returns whether it had none. Takes no lock if the file system has
    /// hard links.
    fn create(&self, operation: &'static str, key: &str, value: &[u8], within: Duration) -> Result<bool> {
        let linked = self.write(operation, key, value, |new, file| {
            let linked = (self.link)(new, file)?;
            let _ = std::fs::remove_file(new);
            Ok(linked)
        })?;
        if let Some(is_new) = linked {
            return Ok(is_new);
        }
        let _lock = self.lock(operation, key, within)?;
        if self.read(operation, key)?.is_some() {
            return Ok(false);
        }
        self.replace(operation, key, value).map(|()| true)
    }

    fn read(&self, operation: &'static str, key: &str) -> Result<Option<Vec<u8>>> {
        let path = self.file(key);
        match files::read(&path, MAX_VALUE) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(operation, &path, &error)),
        }
    }
}

impl Store for Directory {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        let operation = "Store::set";
        check_value(operation, value.len())?;
        // Other ranks may be between their comparison and their change.
        let _lock = self.lock(operation, key, within)?;
        self.replace(operation, key, value)
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        let deadline = Deadline::after(within);
        let mut values = vec![None; keys.len()];
        let mut pause = Duration::from_micros(50);
        loop {
            for (key, value) in keys.iter().zip(&mut values) {
                if value.is_none() {
                    *value = self.read("Store::get", key)?;
                    // Wait for this one first.
                    if value.is_none() && !within.is_zero() {
                        break;
                    }
                }
            }
            if values.iter().all(Option::is_some) {
                return Ok(values);
            }
            if deadline.expired() {
                break;
            }
            std::thread::sleep(pause.min(deadline.remaining()));
            pause = (pause * 2).min(PAUSE);
        }
        for (key, value) in keys.iter().zip(&mut values).filter(|(_, value)| value.is_none()) {
            *value = self.read("Store::get", key)?;
        }
        Ok(values)
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        let operation = "Store::add";
        let of = |found: Option<&[u8]>| {
            sum(found, by).map_err(|reason| Error::Exchange { operation, key: key.to_owned(), reason })
        };
        let (deadline, first) = (Deadline::after(within), of(None)?);
        loop {
            if self.create(operation, key, first.to_string().as_bytes(), deadline.remaining())? {
                return Ok(first);
            }
            let _lock = self.lock(operation, key, deadline.remaining())?;
            // It may have been deleted before the key was locked.
            if let Some(found) = self.read(operation, key)? {
                let sum = of(Some(&found))?;
                return self.replace(operation, key, sum.to_string().as_bytes()).map(|()| sum);
            }
        }
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        let operation = "Store::compare_and_set";
        check_value(operation, value.len())?;
        let deadline = Deadline::after(within);
        if expected.is_none() {
            loop {
                if self.create(operation, key, value, deadline.remaining())? {
                    return Ok(Swap::Done);
                }
                // It may have been deleted in between.
                if let Some(found) = self.read(operation, key)? {
                    return Ok(Swap::Found(Some(found)));
                }
            }
        }
        let _lock = self.lock(operation, key, deadline.remaining())?;
        let found = self.read(operation, key)?;
        if found.as_deref() != expected {
            return Ok(Swap::Found(found));
        }
        self.replace(operation, key, value)?;
        Ok(Swap::Done)
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        let operation = "Store::delete";
        let _lock = self.lock(operation, key, within)?;
        let file = self.file(key);
        match std::fs::remove_file(&file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(operation, &file, &error)),
        }
    }

    fn clear(&self, prefix: &str, _within: Duration) -> Result<()> {
        let path = prefix_directory(&self.root.join("keys"), prefix);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("Store::clear", &path, &error)),
            _ => Ok(()),
        }
    }

    fn ended(&self, ids: &[u64], _within: Duration) -> Result<Vec<Option<String>>> {
        let fail = |error: io::Error| failed("Store::ended", &self.root.join("alive"), &error);
        ids.iter().map(|id| self.presence.ended(*id).map_err(fail)).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.presence.leave(&Deadline::after(LEAVE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(20);

    /// A store of one rank, in a directory of its own.
    fn store(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("gpucomm-directory-{}-{name}", std::process::id()));
        Directory::open(path, 0, 1).unwrap()
    }

    /// As that of a process that is stopped while it has the lock.
    #[test]
    fn the_first_value_needs_no_lock() {
        let store = store("first");
        let lock = store.lock("test", "a/b", WITHIN).unwrap();
        assert_eq!(store.compare_and_set("a/b", None, b"1", WITHIN).unwrap(), Swap::Done);
        assert_eq!(store.compare_and_set("a/b", None, b"2", WITHIN).unwrap(), Swap::Found(Some(b"1".to_vec())));
        let error = store.set("a/b", b"3", Duration::from_millis(1)).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        drop(lock);
        store.set("a/b", b"3", WITHIN).unwrap();
        assert_eq!(store.get(&["a/b"], WITHIN).unwrap(), [Some(b"3".to_vec())]);
    }

    /// One of many threads gives a key its first value, and each adds to another key once.
    fn first_values_and_sums(name: &str, link: fn(&Path, &Path) -> io::Result<Option<bool>>) {
        let mut store = store(name);
        store.link = link;
        for round in 0..50 {
            let (first, sum) = (format!("{round}/first"), format!("{round}/sum"));
            let one = |number: u8| {
                assert!((1..=4).contains(&store.add(&sum, 1, WITHIN).unwrap()));
                store.compare_and_set(&first, None, &[number], WITHIN).unwrap()
            };
            let swaps: Vec<_> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..4)
                    .map(|number| {
                        let one = &one;
                        scope.spawn(move || one(number))
                    })
                    .collect();
                all.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let winner = swaps.iter().position(|swap| *swap == Swap::Done).expect("somebody was first");
            let found = Swap::Found(Some(vec![winner as u8]));
            assert!(swaps.iter().enumerate().all(|(at, swap)| at == winner || *swap == found), "{swaps:?}");
            assert_eq!(store.add(&sum, 0, WITHIN).unwrap(), 4);
        }
        assert_eq!(std::fs::read_dir(store.root.join("new")).unwrap().count(), 0);
    }

    #[test]
    fn one_gives_a_key_its_first_value() {
        first_values_and_sums("links", files::link);
    }

    #[test]
    fn one_gives_a_key_its_first_value_where_there_are_no_hard_links() {
        first_values_and_sums("none", |_, _| Ok(None));
    }
}
