//! A store for the threads of one process.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::store::{Store, Swap, check_rank, check_value, nonce};
use super::table::{Outcome, Table};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    news: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // A table is whole between calls, and none of them panics half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(
        &self,
        operation: &'static str,
        key: &str,
        change: impl FnOnce(&mut Table) -> Outcome<T>,
    ) -> Result<T> {
        let result = change(&mut self.lock());
        self.news.notify_all();
        result.map_err(|reason| Error::Exchange { operation, key: key.to_owned(), reason })
    }
}

/// Where the threads of one process meet, each of which is a rank. Clones are the same place.
///
/// ```
/// # use gpucomm::exchange::{Exchange, Threads};
/// # fn main() -> gpucomm::Result<()> {
/// let place = Threads::new(3);
/// std::thread::scope(|scope| {
///     for rank in 0..3 {
///         let place = &place;
///         scope.spawn(move || Exchange::join(place.store(rank)?)?.barrier());
///     }
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Threads {
    shared: Arc<Shared>,
    size: usize,
}

impl Threads {
    /// A place for `size` threads.
    pub fn new(size: usize) -> Self {
        Self { shared: Arc::default(), size }
    }

    /// The store of one rank, for [`Exchange::join`](super::Exchange::join). Each call is another start of that rank.
    ///
    /// When it is dropped, others that wait for this rank are told: that it has left, or, while its thread panics, that it has died.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that is not below the size.
    pub fn store(&self, rank: usize) -> Result<ThreadStore> {
        check_rank("Threads::store", rank, self.size)?;
        Ok(ThreadStore { shared: Arc::clone(&self.shared), rank, size: self.size, id: nonce() })
    }
}

/// The store of one thread: [`Threads::store`].
#[derive(Debug)]
pub struct ThreadStore {
    shared: Arc<Shared>,
    rank: usize,
    size: usize,
    id: u64,
}

impl Store for ThreadStore {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn set(&self, key: &str, value: &[u8], _within: Duration) -> Result<()> {
        check_value("Store::set", value.len())?;
        self.shared.change("Store::set", key, |table| table.set(key, value))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        let deadline = Deadline::after(within);
        let mut table = self.shared.lock();
        let ends = table.ends();
        loop {
            let left = deadline.remaining();
            if left.is_zero() || table.ends() != ends || keys.iter().all(|key| table.get(key).is_some()) {
                break;
            }
            table = self.shared.news.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let values: Vec<_> = keys.iter().map(|key| table.get(key)).collect();
        drop(table);
        Ok(values.into_iter().map(|value| value.map(|value| value.to_vec())).collect())
    }

    fn add(&self, key: &str, by: i64, _within: Duration) -> Result<i64> {
        self.shared.change("Store::add", key, |table| table.add(key, by))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], _within: Duration) -> Result<Swap> {
        check_value("Store::compare_and_set", value.len())?;
        self.shared.change("Store::compare_and_set", key, |table| table.compare_and_set(key, expected, value))
    }

    fn delete(&self, key: &str, _within: Duration) -> Result<bool> {
        Ok(self.shared.lock().delete(key))
    }

    fn clear(&self, prefix: &str, _within: Duration) -> Result<()> {
        self.shared.lock().clear(prefix);
        Ok(())
    }

    fn ended(&self, ids: &[u64], _within: Duration) -> Result<Vec<Option<String>>> {
        let table = self.shared.lock();
        Ok(ids.iter().map(|id| table.ended(*id).map(str::to_owned)).collect())
    }
}

impl Drop for ThreadStore {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { "has died: its thread panicked" } else { "has left" };
        self.shared.lock().end(self.id, how);
        self.shared.news.notify_all();
    }
}
