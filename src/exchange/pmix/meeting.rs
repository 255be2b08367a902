//! The store of ranks that are about to meet: where PMIx knows of one that it has ended, nobody waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::session::check;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::exchange::store::{Store, Swap};
use crate::exchange::tcp::Tcp;

/// How long one look into the store lasts, so that it is soon noticed who has ended.
const LOOK: Duration = Duration::from_millis(50);

/// How long it may take until PMIx has told of an end that made the store fail.
const TOLD: Duration = Duration::from_millis(500);

pub(super) struct Meeting {
    operation: &'static str,
    tcp: Tcp,
    /// Whether all have met: from then on, who ends concerns those that wait for it, and the store knows.
    met: AtomicBool,
}

impl Meeting {
    pub(super) fn new(operation: &'static str, tcp: Tcp) -> Self {
        Self { operation, tcp, met: AtomicBool::new(false) }
    }

    pub(super) fn all_have_met(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// What `ask` says, unless a rank has ended that all wait for.
    fn unless_ended<T>(&self, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.met.load(Ordering::Relaxed) {
            return ask();
        }
        let answer = ask();
        if answer.is_err() {
            // Rank 0, which serves, may be the one, or have given up for another one.
            Deadline::after(TOLD).until(|| check(self.operation).map(|()| None::<()>))?;
        }
        answer
    }
}

impl Store for Meeting {
    fn rank(&self) -> usize {
        self.tcp.rank()
    }

    fn size(&self) -> usize {
        self.tcp.size()
    }

    fn id(&self) -> u64 {
        self.tcp.id()
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        self.unless_ended(|| self.tcp.set(key, value, within))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        self.unless_ended(|| {
            if self.met.load(Ordering::Relaxed) {
                return self.tcp.get(keys, within);
            }
            let all = |values: &[Option<Vec<u8>>]| values.iter().all(Option::is_some);
            let values = self.tcp.get(keys, within.min(LOOK))?;
            // What is there is true whoever has ended since.
            if all(&values) {
                return Ok(values);
            }
            let Err(ended) = check(self.operation) else { return Ok(values) };
            // It may have set them and ended after we looked.
            let values = self.tcp.get(keys, Duration::ZERO)?;
            if all(&values) { Ok(values) } else { Err(ended) }
        })
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        self.unless_ended(|| self.tcp.add(key, by, within))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        self.unless_ended(|| self.tcp.compare_and_set(key, expected, value, within))
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        self.unless_ended(|| self.tcp.delete(key, within))
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        self.unless_ended(|| self.tcp.clear(prefix, within))
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        if !self.met.load(Ordering::Relaxed) {
            check(self.operation)?;
        }
        self.tcp.ended(ids, within)
    }
}
