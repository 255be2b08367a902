//! A store for ranks that are threads of one process.

use std::sync::Arc;
use std::time::Duration;

use super::store::{Store, Swap, check_rank, check_value, nonce};
use super::table::{Departures, Outcome, Table};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::lock::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
struct State {
    table: Table,
    departures: Departures,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified after each change.
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn change<T>(
        &self,
        operation: &'static str,
        key: &str,
        change: impl FnOnce(&mut Table) -> Outcome<T>,
    ) -> Result<T> {
        let result = change(&mut self.lock().table);
        self.changed.notify_all();
        result.map_err(|reason| Error::Exchange { operation, key: key.to_owned(), reason })
    }
}

/// The place at which ranks that are threads of one process meet. A clone is the same place.
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

    /// The store of one rank, for [`Exchange::join`](super::Exchange::join). Each call is another
    /// start of that rank.
    ///
    /// When you drop it, ranks that wait for this one learn that it has left or, if its thread
    /// panics, that it has died.
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if `rank` is out of range.
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
        self.shared.change("Store::set", key, |table| table.set(key.as_bytes(), value))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        let deadline = Deadline::after(within);
        let mut state = self.shared.lock();
        let departed = state.departures.count();
        loop {
            let left = deadline.remaining();
            let all_set = keys.iter().all(|key| state.table.has(key.as_bytes()));
            if left.is_zero() || all_set || state.departures.count() != departed {
                break;
            }
            state = self.shared.changed.wait_timeout(state, left);
        }
        let values: Vec<_> = keys.iter().map(|key| state.table.get(key.as_bytes())).collect();
        // Copy them without the lock.
        drop(state);
        Ok(values.into_iter().map(|value| value.map(|value| value.to_vec())).collect())
    }

    fn add(&self, key: &str, by: i64, _within: Duration) -> Result<i64> {
        self.shared.change("Store::add", key, |table| table.add(key.as_bytes(), by))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], _within: Duration) -> Result<Swap> {
        check_value("Store::compare_and_set", value.len())?;
        self.shared
            .change("Store::compare_and_set", key, |table| table.compare_and_set(key.as_bytes(), expected, value))
    }

    fn delete(&self, key: &str, _within: Duration) -> Result<bool> {
        Ok(self.shared.lock().table.delete(key.as_bytes()))
    }

    fn clear(&self, prefix: &str, _within: Duration) -> Result<()> {
        self.shared.lock().table.clear(prefix.as_bytes());
        Ok(())
    }

    fn ended(&self, ids: &[u64], _within: Duration) -> Result<Vec<Option<String>>> {
        let state = self.shared.lock();
        Ok(ids.iter().map(|id| state.departures.get(*id).map(str::to_owned)).collect())
    }
}

impl Drop for ThreadStore {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { "has died: its thread panicked" } else { "has left" };
        self.shared.lock().departures.record(self.id, how);
        self.shared.changed.notify_all();
    }
}
