//! A store of a user's own.

use std::time::Duration;

use gpucomm::Result;
use gpucomm::exchange::{Store, Swap};

type Values = Result<Vec<Option<Vec<u8>>>>;
type Get = dyn Fn(&dyn Store, &[&str], Duration) -> Values + Send + Sync;

/// One that stands on another, and cannot know who has ended.
pub struct Mine {
    store: Box<dyn Store>,
    get: Box<Get>,
}

impl Mine {
    pub fn new(store: impl Store + 'static) -> Self {
        Self::getting(store, |store, keys, within| store.get(keys, within))
    }

    /// One that gets values in its own way.
    pub fn getting(
        store: impl Store + 'static,
        get: impl Fn(&dyn Store, &[&str], Duration) -> Values + Send + Sync + 'static,
    ) -> Self {
        Self { store: Box::new(store), get: Box::new(get) }
    }
}

impl Store for Mine {
    fn rank(&self) -> usize {
        self.store.rank()
    }

    fn size(&self) -> usize {
        self.store.size()
    }

    fn id(&self) -> u64 {
        self.store.id()
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        self.store.set(key, value, within)
    }

    fn get(&self, keys: &[&str], within: Duration) -> Values {
        (self.get)(&*self.store, keys, within)
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        self.store.add(key, by, within)
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        self.store.compare_and_set(key, expected, value, within)
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        self.store.delete(key, within)
    }

    fn clear(&self, _prefix: &str, _within: Duration) -> Result<()> {
        Ok(())
    }
}
