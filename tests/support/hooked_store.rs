//! A store that asks another one, and what a test puts around that.

use std::time::Duration;

use gpucomm::Result;
use gpucomm::exchange::{Store, Swap};

type Values = Vec<Option<Vec<u8>>>;

/// What a test puts around the calls of a store.
pub trait Hooks: Send + Sync {
    /// The store that is asked.
    fn store(&self) -> &dyn Store;

    /// Runs a call of this method for these keys.
    fn around<R>(
        &self,
        _method: &'static str,
        _keys: &[&str],
        _within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        call()
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        self.store().set(key, value, within)
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Values> {
        self.store().get(keys, within)
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        self.store().add(key, by, within)
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        self.store().compare_and_set(key, expected, value, within)
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        self.store().clear(prefix, within)
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        self.store().ended(ids, within)
    }
}

/// The store of such hooks.
pub struct HookedStore<H>(pub H);

impl<H: Hooks> Store for HookedStore<H> {
    fn rank(&self) -> usize {
        self.0.store().rank()
    }

    fn size(&self) -> usize {
        self.0.store().size()
    }

    fn id(&self) -> u64 {
        self.0.store().id()
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        self.0.around("set", &[key], within, || self.0.set(key, value, within))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Values> {
        self.0.around("get", keys, within, || self.0.get(keys, within))
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        self.0.around("add", &[key], within, || self.0.add(key, by, within))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        let call = || self.0.compare_and_set(key, expected, value, within);
        self.0.around("compare_and_set", &[key], within, call)
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        self.0.around("delete", &[key], within, || self.0.store().delete(key, within))
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        self.0.around("clear", &[prefix], within, || self.0.clear(prefix, within))
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        self.0.around("ended", &[], within, || self.0.ended(ids, within))
    }
}
