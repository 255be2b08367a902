//! A stranger puts a pipe or a huge file into a shared directory: the store returns an error that names the file, and does not wait.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpucomm::Error;
use gpucomm::exchange::{Directory, MAX_VALUE, Store};

use crate::support::{new_path, slower};

fn pipe(path: &Path) {
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a C string, which is only read.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0, "{}", path.display());
}

/// A directory of its own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        Self(new_path())
    }

    fn below(&self, name: &str) -> PathBuf {
        self.0.join("gpucomm-exchange").join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn told(start: Instant, error: &Error, operation: &str, file: &str, reason: &str) {
    assert!(start.elapsed() < slower(5.0), "{:?}", start.elapsed());
    let Error::Exchange { operation: of, key, reason: why } = error else { panic!("{error:?}") };
    assert!(*of == operation && key.contains(file) && why.contains(reason), "{error}");
}

#[test]
fn in_place_of_a_key() {
    let place = Place::new();
    let store = Directory::open(&place.0, 0, 1).unwrap();
    store.set("k", b"v", Duration::from_secs(1)).unwrap();
    let file = place.below("keys/=k");
    std::fs::remove_file(&file).unwrap();
    pipe(&file);
    let start = Instant::now();
    told(start, &store.get(&["k"], Duration::from_millis(200)).unwrap_err(), "Store::get", "=k", "no regular file");
    told(start, &store.add("k", 1, Duration::from_millis(200)).unwrap_err(), "Store::add", "=k", "no regular file");
    std::fs::remove_file(&file).unwrap();
    // It takes no place on the disk.
    std::fs::File::create(&file).unwrap().set_len(MAX_VALUE as u64 + 1).unwrap();
    let error = store.get(&["k"], Duration::from_millis(200)).unwrap_err();
    told(Instant::now(), &error, "Store::get", "=k", "longer than");
    std::fs::File::create(&file).unwrap().set_len(MAX_VALUE as u64).unwrap();
    assert_eq!(store.get(&["k"], Duration::ZERO).unwrap()[0].as_ref().map(Vec::len), Some(MAX_VALUE));
}

#[test]
fn among_those_who_are_there() {
    let place = Place::new();
    let first = Directory::open(&place.0, 0, 2).unwrap();
    pipe(&place.below("alive/0123456789abcdef"));
    let start = Instant::now();
    told(start, &Directory::open(&place.0, 1, 2).unwrap_err(), "Directory::open", "gpucomm", "no regular file");
    assert!(first.ended(&[0x0123_4567_89ab_cdef], Duration::from_secs(1)).is_err());
    assert!(start.elapsed() < slower(5.0), "{:?}", start.elapsed());
}

/// Ranks lock the gate as they enter, and one of several files as they change a key.
#[test]
fn in_place_of_a_lock() {
    let place = Place::new();
    std::fs::create_dir_all(place.below("")).unwrap();
    let gate = place.below("gate");
    pipe(&gate);
    let start = Instant::now();
    told(start, &Directory::open(&place.0, 0, 1).unwrap_err(), "Directory::open", "gate", "no regular file");
    std::fs::remove_file(&gate).unwrap();

    let store = Directory::open(&place.0, 0, 1).unwrap();
    let within = Duration::from_millis(200);
    store.set("k", b"v", within).unwrap();
    for lock in std::fs::read_dir(place.below("locks")).unwrap() {
        let path = lock.unwrap().path();
        std::fs::remove_file(&path).unwrap();
        pipe(&path);
    }
    let start = Instant::now();
    for (operation, error) in [
        ("Store::set", store.set("k", b"v", within).unwrap_err()),
        ("Store::add", store.add("k", 1, within).unwrap_err()),
        ("Store::compare_and_set", store.compare_and_set("k", Some(b"v"), b"w", within).unwrap_err()),
        ("Store::delete", store.delete("k", within).unwrap_err()),
    ] {
        told(start, &error, operation, "locks", "no regular file");
    }
    // Reading takes no lock.
    assert_eq!(store.get(&["k"], within).unwrap(), [Some(b"v".to_vec())]);
    // The gate is a pipe as the rank leaves.
    std::fs::remove_file(&gate).unwrap();
    pipe(&gate);
    let start = Instant::now();
    drop(store);
    assert!(start.elapsed() < slower(5.0), "{:?}", start.elapsed());
}
