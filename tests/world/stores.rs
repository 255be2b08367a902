//! A store with faults.

use std::time::Duration;

use gpucomm::Result;
use gpucomm::exchange::{Store, Swap};

/// A store that calls a function before each operation, with the name of the operation and the key.
/// An error of the function is that of the operation.
pub struct Faulty<S, F>(pub S, pub F);

impl<S: Store, F: Fn(&str, &str) -> Result<()> + Send + Sync> Store for Faulty<S, F> {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn id(&self) -> u64 {
        self.0.id()
    }
    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        (self.1)("set", key)?;
        self.0.set(key, value, within)
    }
    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().try_for_each(|key| (self.1)("get", key))?;
        self.0.get(keys, within)
    }
    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        (self.1)("add", key)?;
        self.0.add(key, by, within)
    }
    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        (self.1)("compare_and_set", key)?;
        self.0.compare_and_set(key, expected, value, within)
    }
    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        (self.1)("delete", key)?;
        self.0.delete(key, within)
    }
    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        (self.1)("clear", prefix)?;
        self.0.clear(prefix, within)
    }
    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        self.0.ended(ids, within)
    }
}
