//! The keys and the ranks of a store that lies in the memory of one process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::store::Swap;

/// What keys and values may take together, in bytes: a program that runs wild fails, and not its machine.
const MAX_BYTES: usize = 1 << 30;

/// What one key costs beside its bytes, about.
const ENTRY: usize = 64;

/// What can be wrong with a request, in words.
pub(super) type Outcome<T> = Result<T, String>;

/// Keys and their values; who is there, and how others ended.
#[derive(Debug, Default)]
pub(super) struct Table {
    values: BTreeMap<String, Arc<[u8]>>,
    bytes: usize,
    ended: HashMap<u64, String>,
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
        self.ended.entry(id).or_insert_with(|| how.to_owned());
    }

    /// How many have ended.
    pub(super) fn ends(&self) -> usize {
        self.ended.len()
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
