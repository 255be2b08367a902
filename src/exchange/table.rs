//! The keys and the ranks of a store that lies in the memory of one process.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::store::Swap;

/// What keys and values may take together, in bytes: a program that runs wild fails, and not its machine.
pub(super) const MAX_BYTES: usize = 1 << 30;

/// What one key costs beside its bytes, about.
pub(super) const ENTRY: usize = 64;

/// Of so many that have ended it is known how. Who waits for one that ended before them waits until its deadline.
const MAX_ENDS: usize = 1 << 16;

/// What can be wrong with a request, in words.
pub(super) type Outcome<T> = Result<T, String>;

/// Keys and their values; who is there, and how others ended.
#[derive(Debug, Default)]
pub(super) struct Table {
    values: BTreeMap<String, Arc<[u8]>>,
    bytes: usize,
    ended: HashMap<u64, String>,
    /// Those that have ended, in this order.
    order: VecDeque<u64>,
    ends: usize,
}

impl Table {
    pub(super) fn get(&self, key: &str) -> Option<Arc<[u8]>> {
        self.values.get(key).cloned()
    }

    pub(super) fn set(&mut self, key: &str, value: &[u8]) -> Outcome<()> {
        let before = self.values.get(key).map_or(0, |old| cost(key, old));
        let after = self.bytes - before + cost(key, value);
        if after > MAX_BYTES {
            return Err(format!("the store is full: it holds at most {MAX_BYTES} bytes"));
        }
        self.bytes = after;
        self.values.insert(key.to_owned(), value.into());
        Ok(())
    }

    pub(super) fn add(&mut self, key: &str, by: i64) -> Outcome<i64> {
        let sum = sum(self.values.get(key).map(|value| &**value), by)?;
        self.set(key, sum.to_string().as_bytes())?;
        Ok(sum)
    }

    pub(super) fn compare_and_set(&mut self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> Outcome<Swap> {
        let found = self.values.get(key).map(|value| &**value);
        if found != expected {
            return Ok(Swap::Found(found.map(<[u8]>::to_vec)));
        }
        self.set(key, value)?;
        Ok(Swap::Done)
    }

    pub(super) fn delete(&mut self, key: &str) -> bool {
        let old = self.values.remove(key);
        self.bytes -= old.as_ref().map_or(0, |old| cost(key, old));
        old.is_some()
    }

    pub(super) fn clear(&mut self, prefix: &str) {
        let keys: Vec<String> = self
            .values
            .range(prefix.to_owned()..)
            .map(|(key, _)| key)
            .take_while(|key| key.starts_with(prefix))
            .cloned()
            .collect();
        for key in keys {
            self.delete(&key);
        }
    }

    /// Notes how a rank ended, the first time that it is said.
    pub(super) fn end(&mut self, id: u64, how: &str) {
        let Entry::Vacant(entry) = self.ended.entry(id) else { return };
        entry.insert(how.to_owned());
        self.ends += 1;
        self.order.push_back(id);
        if self.order.len() > MAX_ENDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }

    /// How often somebody has ended.
    pub(super) fn ends(&self) -> usize {
        self.ends
    }

    /// Whether it has counted right.
    #[cfg(any(test, fuzzing))]
    pub(super) fn adds_up(&self) -> bool {
        self.bytes == self.values.iter().map(|(key, value)| cost(key, value)).sum()
            && self.ended.len() == self.order.len()
    }

    pub(super) fn ended(&self, id: u64) -> Option<&str> {
        self.ended.get(&id).map(String::as_str)
    }
}

fn cost(key: &str, value: &[u8]) -> usize {
    ENTRY + key.len() + value.len()
}

/// The number that a key holds, and more.
pub(super) fn sum(value: Option<&[u8]>, by: i64) -> Outcome<i64> {
    let number = match value {
        None => 0,
        Some(value) => {
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            number.ok_or_else(|| format!("expected a number as decimal text, got {}", shown(value)))?
        }
    };
    i64::checked_add(number, by).ok_or_else(|| format!("{number} + {by} is more than 64 bits hold"))
}

/// The beginning of a value, for a message.
fn shown(value: &[u8]) -> String {
    let start = String::from_utf8_lossy(&value[..value.len().min(32)]);
    format!("{} bytes ({start:?}{})", value.len(), if value.len() > 32 { "…" } else { "" })
}
