//! What a store holds in the memory of one process: keys and their values, and the ranks that have
//! departed.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::store::Swap;

/// The most bytes that keys and values take together. A program that runs wild then fails, and not
/// its host.
pub(super) const MAX_BYTES: usize = 1 << 30;

/// What one key costs beside its bytes, roughly.
pub(super) const ENTRY: usize = 64;

/// The most departures that are remembered.
pub(super) const MAX_DEPARTURES: usize = 1 << 16;

/// A result, or what is wrong with the request.
pub(super) type Outcome<T> = Result<T, String>;

/// Keys and their values. A key may also have a queue, as in PyTorch's store.
#[derive(Debug, Default)]
pub(super) struct Table {
    values: BTreeMap<Arc<[u8]>, Arc<[u8]>>,
    queues: HashMap<Vec<u8>, VecDeque<Arc<[u8]>>>,
    bytes: usize,
}

impl Table {
    /// Counts `more` bytes in place of `less`, if there is room for them.
    fn charge(&mut self, more: usize, less: usize) -> Outcome<()> {
        let bytes = self.bytes - less + more;
        if bytes > MAX_BYTES {
            return Err(format!("the store is full: it holds at most {MAX_BYTES} bytes"));
        }
        self.bytes = bytes;
        Ok(())
    }

    /// How many keys have a value.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The keys that have a value.
    pub(super) fn keys(&self) -> impl Iterator<Item = Arc<[u8]>> {
        self.values.keys().cloned()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Arc<[u8]>> {
        self.values.get(key).cloned()
    }

    /// Whether a key has a value or a queue.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.charge(cost(key, value), self.values.get(key).map_or(0, |old| cost(key, old)))?;
        self.values.insert(key.into(), value.into());
        Ok(())
    }

    pub(super) fn add(&mut self, key: &[u8], by: i64) -> Outcome<i64> {
        let sum = sum(self.values.get(key).map(|value| &**value), by)?;
        self.set(key, sum.to_string().as_bytes())?;
        Ok(sum)
    }

    pub(super) fn compare_and_set(&mut self, key: &[u8], expected: Option<&[u8]>, value: &[u8]) -> Outcome<Swap> {
        let found = self.values.get(key).map(|value| &**value);
        if found != expected {
            return Ok(Swap::Found(found.map(<[u8]>::to_vec)));
        }
        self.set(key, value)?;
        Ok(Swap::Done)
    }

    /// Removes the value of a key, and says whether it had one.
    pub(super) fn delete(&mut self, key: &[u8]) -> bool {
        let old = self.values.remove(key);
        self.bytes -= old.as_ref().map_or(0, |old| cost(key, old));
        old.is_some()
    }

    /// Removes the values of all keys that begin with `prefix`.
    pub(super) fn clear(&mut self, prefix: &[u8]) {
        let from = self.values.range(Arc::<[u8]>::from(prefix)..);
        let keys: Vec<_> = from.map(|(key, _)| key).take_while(|key| key.starts_with(prefix)).cloned().collect();
        for key in keys {
            self.delete(&key);
        }
    }

    /// Puts a value behind the queue of a key.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.charge(cost(key, value), 0)?;
        self.queues.entry(key.to_vec()).or_default().push_back(value.into());
        Ok(())
    }

    /// Takes the first value of a queue, and says how many there were.
    pub(super) fn pop(&mut self, key: &[u8]) -> (usize, Option<Arc<[u8]>>) {
        let Some(queue) = self.queues.get_mut(key) else { return (0, None) };
        let (len, value) = (queue.len(), queue.pop_front());
        if queue.is_empty() {
            self.queues.remove(key);
        }
        self.bytes -= value.as_ref().map_or(0, |value| cost(key, value));
        (len, value)
    }

    /// How many values the queue of a key has.
    pub(super) fn queued(&self, key: &[u8]) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    /// Whether the bytes have been counted right.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_consistent(&self) -> bool {
        let queued = self.queues.iter().flat_map(|(key, queue)| queue.iter().map(move |value| cost(key, value)));
        let bytes: usize = self.values.iter().map(|(key, value)| cost(key, value)).chain(queued).sum();
        self.bytes == bytes && self.queues.values().all(|queue| !queue.is_empty())
    }
}

fn cost(key: &[u8], value: &[u8]) -> usize {
    ENTRY + key.len() + value.len()
}

/// The number that a value holds, and `by` more.
pub(super) fn sum(value: Option<&[u8]>, by: i64) -> Outcome<i64> {
    let number = match value {
        None => 0,
        Some(value) => {
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            number.ok_or_else(|| format!("expected a number as decimal text, got {}", preview(value)))?
        }
    };
    i64::checked_add(number, by).ok_or_else(|| format!("{number} + {by} is more than 64 bits hold"))
}

/// The beginning of a value, for a message.
fn preview(value: &[u8]) -> String {
    let start = String::from_utf8_lossy(&value[..value.len().min(32)]);
    format!("{} bytes ({start:?}{})", value.len(), if value.len() > 32 { "…" } else { "" })
}

/// The ranks that have departed, by the numbers of their starts, and how.
///
/// The oldest departure is forgotten when there are too many. A rank that waits for that one waits
/// until its deadline.
#[derive(Debug, Default)]
pub(super) struct Departures {
    how: HashMap<u64, String>,
    /// In the order in which they departed.
    order: VecDeque<u64>,
    count: usize,
}

impl Departures {
    /// Notes how a rank departed, unless that is known.
    pub(super) fn record(&mut self, id: u64, how: &str) {
        let Entry::Vacant(entry) = self.how.entry(id) else { return };
        entry.insert(how.to_owned());
        self.count += 1;
        self.order.push_back(id);
        if self.order.len() > MAX_DEPARTURES {
            self.forget_oldest();
        }
    }

    pub(super) fn forget_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            self.how.remove(&oldest);
        }
    }

    /// How many departures are remembered.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// How many ranks have ever departed.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, id: u64) -> Option<&str> {
        self.how.get(&id).map(String::as_str)
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn is_consistent(&self) -> bool {
        self.how.len() == self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_queues_are_counted() {
        let mut table = Table::default();
        table.set(b"k", b"value").unwrap();
        table.set(b"k", b"another one").unwrap();
        assert_eq!(table.get(b"k").as_deref(), Some(&b"another one"[..]));
        assert_eq!(table.pop(b"q"), (0, None));
        table.push(b"q", b"1").unwrap();
        table.push(b"q", b"2").unwrap();
        assert!(table.has(b"q") && table.queued(b"q") == 2 && table.len() == 1);
        assert!(table.is_consistent());
        assert_eq!(table.pop(b"q"), (2, Some(b"1".to_vec().into())));
        assert_eq!(table.pop(b"q"), (1, Some(b"2".to_vec().into())));
        assert!(!table.has(b"q"));
        for key in ["a", "a/", "a/x", "a0", "b"] {
            table.set(key.as_bytes(), b"").unwrap();
        }
        table.clear(b"a/");
        assert_eq!(table.keys().map(|key| key.to_vec()).collect::<Vec<_>>(), [&b"a"[..], b"a0", b"b", b"k"]);
        table.clear(b"");
        assert!(table.len() == 0 && !table.delete(b"k"));
        // Nothing is counted that is not there.
        assert_eq!(table.bytes, 0);
    }

    #[test]
    fn a_full_table_takes_no_more() {
        let mut table = Table { bytes: MAX_BYTES - 200, ..Table::default() };
        table.set(b"k", &[0; 100]).unwrap();
        assert!(table.set(b"l", &[0; 100]).is_err() && table.push(b"l", &[0; 100]).is_err());
        table.set(b"k", &[1; 120]).unwrap();
        assert!(table.delete(b"k"));
        table.set(b"l", &[0; 100]).unwrap();
    }

    #[test]
    fn the_oldest_departures_are_forgotten() {
        let mut departures = Departures::default();
        let all = MAX_DEPARTURES as u64 + 1;
        for id in 0..all {
            departures.record(id, "has died");
        }
        departures.record(1, "has left");
        assert_eq!((departures.get(0), departures.get(1)), (None, Some("has died")));
        assert!(departures.count() == MAX_DEPARTURES + 1 && departures.is_consistent());
    }
}
