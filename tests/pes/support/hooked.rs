//! A store in which a test decides what happens when it is asked.

use std::path::PathBuf;
use std::time::Duration;

use gpucomm::exchange::{Directory, Exchange, Store, Swap};
use gpucomm::{Error, Result};

use super::seat::{DIRECTORY, Seat};

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Answers,
    /// Nothing is done, and the answer is a timeout.
    Refused,
    /// It is done, and the answer is a timeout.
    Lost,
    /// All of which that is asked have ended.
    Ended,
}

/// Gets the name of a method and the key, and may block, or panic.
type Hook = Box<dyn Fn(&'static str, &str) -> Fate + Send + Sync>;

/// All PEs meet in a directory of its own.
pub struct Hooked {
    inner: Directory,
    hook: Hook,
}

impl Hooked {
    /// An exchange of all PEs, which nobody else keeps. Collective.
    pub fn join(seat: &Seat, hook: impl Fn(&'static str, &str) -> Fate + Send + Sync + 'static) -> Exchange {
        let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("a PE of a test")).join("hooked");
        if seat.pe == 0 {
            std::fs::create_dir_all(&directory).expect("a directory");
        }
        seat.meet();
        let inner = Directory::open(directory, seat.pe, seat.n_pes).expect("the meeting");
        Exchange::join(Self { inner, hook: Box::new(hook) }).expect("an exchange")
    }

    fn ask<R>(&self, method: &'static str, key: &str, within: Duration, call: impl FnOnce() -> Result<R>) -> Result<R> {
        let late = || Error::Timeout { operation: method, timeout: within, detail: "on purpose".to_owned() };
        match (self.hook)(method, key) {
            Fate::Answers | Fate::Ended => call(),
            Fate::Refused => Err(late()),
            Fate::Lost => call().and_then(|_| Err(late())),
        }
    }
}

impl Store for Hooked {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn id(&self) -> u64 {
        self.inner.id()
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        self.ask("set", key, within, || self.inner.set(key, value, within))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        self.ask("get", keys.first().unwrap_or(&""), within, || self.inner.get(keys, within))
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        self.ask("add", key, within, || self.inner.add(key, by, within))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        self.ask("compare_and_set", key, within, || self.inner.compare_and_set(key, expected, value, within))
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        self.ask("delete", key, within, || self.inner.delete(key, within))
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        self.ask("clear", prefix, within, || self.inner.clear(prefix, within))
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        if (self.hook)("ended", "") == Fate::Ended {
            return Ok(vec![Some("has died".to_owned()); ids.len()]);
        }
        self.ask("ended", "", within, || self.inner.ended(ids, within))
    }
}
