//! The interface of stores: maps of keys to bytes that all ranks see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::rand::GetRandomFlags;

use super::owner_process::OwnerProcess;
use crate::deadline::backoff;
use crate::error::{Error, Result};
use crate::panicked;

/// The most ranks of an exchange. A larger number is a mistake or a lie, for which no memory is
/// allocated.
const MAX_RANKS: usize = 1 << 20;

/// The longest value of a key, in bytes.
pub const MAX_VALUE: usize = 16 << 20;

/// The longest key that a [`Store`] is asked for, in bytes. Keys of users are shorter:
/// [`MAX_NAME`].
pub const MAX_KEY: usize = 1024;

/// The longest key of an [`Exchange`](super::Exchange), in bytes.
pub const MAX_NAME: usize = 256;

/// The most keys that one [`Store::get`] is asked for.
pub const MAX_KEYS: usize = 64;

/// The result of a compare-and-set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// The key had the expected value, and has the new one now.
    Done,
    /// The key has this value, or none, and was not changed.
    Found(Option<Vec<u8>>),
}

/// A map of keys to bytes that all ranks see, and which ranks have ended. An
/// [`Exchange`](super::Exchange) builds everything else on it.
///
/// Implement it so that ranks meet through a service of your own, such as a database. An
/// implementation keeps these rules:
///
/// - All ranks see the changes of one key in the same order. [`add`](Self::add) and
///   [`compare_and_set`](Self::compare_and_set) are atomic. When a change has returned, every rank
///   sees it. No rank sees a part of a value.
/// - Keys are UTF-8 of 1 to [`MAX_KEY`] bytes, with `/` between their parts; values have 0 to
///   [`MAX_VALUE`] bytes. Over a network, a long value has to arrive at 1 MiB a second or more.
/// - Every method returns at most a second after `within`. If it could not do its work by then, it
///   returns [`Error::Timeout`], other than [`get`](Self::get). Several threads may call it, and a
///   `get` that waits does not delay other calls.
/// - [`id`](Self::id) differs for each start of a process, also of the same rank.
/// - Values outlive the rank that has set them.
///
/// Answers are checked: another number of values than of keys, or a value that is too long, is
/// [`Error::Exchange`]. So is a panic of a method that returns a `Result`. Of more than 16 ranks, one
/// reads the values of up to 64 in a gather and passes them on. Each rank looks for its own value
/// among them; another wrong value that a store has returned to that rank reaches the others.
///
/// ```
/// # use gpucomm::exchange::{Store, Swap, Threads};
/// # use std::time::Duration;
/// # fn main() -> gpucomm::Result<()> {
/// // An exchange uses a store like this. So can a test of your own store.
/// fn check(store: &impl Store) -> gpucomm::Result<()> {
///     let within = Duration::from_secs(1);
///     assert!(store.rank() < store.size());
///     store.set("a/x", b"1", within)?;
///     assert_eq!(store.get(&["a/x"], within)?, [Some(b"1".to_vec())]);
///     assert_eq!(store.add("a/sum", 5, within)?, 5);
///     assert!(matches!(store.compare_and_set("a/x", Some(b"2"), b"3", within)?, Swap::Found(Some(_))));
///     assert!(store.delete("a/x", within)?);
///     store.clear("a/", within)?;
///     assert_eq!(store.get(&["a/x"], Duration::ZERO)?, [None]);
///     assert_eq!(store.ended(&[store.id()], within)?, [None]);
///     Ok(())
/// }
/// check(&Threads::new(1).store(0)?)?;
/// # Ok(())
/// # }
/// ```
pub trait Store: Send + Sync {
    /// The rank of this process or thread.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// A number for this start of this rank, such as a random one.
    fn id(&self) -> u64;

    /// Sets a key, whatever its value was.
    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()>;

    /// Returns the values of at most [`MAX_KEYS`] keys, once all of them are set.
    ///
    /// After `within` it returns `None` for keys that are not set. It may do so earlier, for
    /// example when a rank has died, so that the caller checks whether it waits for that rank. If
    /// `within` is zero it does not wait.
    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>>;

    /// Adds to the number that a key holds as decimal text, or to 0 if it is not set, and returns
    /// the sum.
    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64>;

    /// Sets a key if its value is `expected`, where `None` means that it is not set.
    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap>;

    /// Removes a key, and returns whether it was set.
    fn delete(&self, key: &str, within: Duration) -> Result<bool>;

    /// Removes all keys that begin with `prefix`, which ends with `/`.
    ///
    /// It is called for keys that no rank reads any more. A store that cannot list its keys may do
    /// nothing.
    fn clear(&self, prefix: &str, within: Duration) -> Result<()>;

    /// Returns for each of these starts of ranks how it ended, such as `has died`, or `None` if it
    /// is not known to have ended.
    ///
    /// A start that has ended never comes back. A store that cannot know returns `None` for all, as
    /// the default does. Then the death of a rank is noticed at the deadline.
    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        let _ = within;
        Ok(vec![None; ids.len()])
    }

    /// Whether the server goes with the start of rank 0 that has this number, and that has left.
    #[doc(hidden)]
    fn goes_with(&self, id: u64) -> Result<bool> {
        let _ = id;
        Ok(false)
    }

    /// The name of what the starts of one rank in a process meet at one after the other, if the store cannot tell them apart.
    #[doc(hidden)]
    fn turn(&self) -> Option<String> {
        None
    }

    /// How long its drop may wait for the other ranks, which this one serves.
    #[doc(hidden)]
    fn lingers(&self) -> Duration {
        Duration::ZERO
    }

    /// Leaves a server that has ended, and connects to the next one at the same place after a
    /// `pause`: a server that stays for others ends once none of them is connected. `None` if the
    /// store has no server that may come again.
    #[doc(hidden)]
    fn again(&self, pause: Duration, within: Duration) -> Option<Result<Arc<dyn Store>>> {
        let _ = (pause, within);
        None
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn size(&self) -> usize {
        (**self).size()
    }

    fn id(&self) -> u64 {
        (**self).id()
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        (**self).set(key, value, within)
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        (**self).get(keys, within)
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        (**self).add(key, by, within)
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        (**self).compare_and_set(key, expected, value, within)
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        (**self).delete(key, within)
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        (**self).clear(prefix, within)
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        (**self).ended(ids, within)
    }

    fn goes_with(&self, id: u64) -> Result<bool> {
        (**self).goes_with(id)
    }

    fn turn(&self) -> Option<String> {
        (**self).turn()
    }

    fn lingers(&self) -> Duration {
        (**self).lingers()
    }

    fn again(&self, pause: Duration, within: Duration) -> Option<Result<Arc<dyn Store>>> {
        (**self).again(pause, within)
    }
}

/// A store whose answers are checked: a store of the user may break its rules, or panic.
///
/// Each answer has the right number of values, and none of them is too long. A panic is an error. A
/// store that does not wait for a value is asked more and more seldom.
///
/// A forked child has the connections and files of its parent, and none of its threads. So it is
/// refused each call, because the parent would take its answers for its own. It never drops the store:
/// the parent would leave, or the child would wait for a thread.
#[derive(Debug)]
pub(super) struct Checked<S> {
    store: Arc<S>,
    /// Who has made it.
    owner: OwnerProcess,
    /// How often a value was waited for that was not there, since the last one that was.
    in_vain: AtomicU32,
}

impl<S> Checked<S> {
    pub(super) fn new(store: S) -> Self {
        Self { store: Arc::new(store), owner: OwnerProcess::this(), in_vain: AtomicU32::new(0) }
    }

    /// Calls the store by `ask`. Returns an error in a forked child, and if the store panics, which would
    /// end a thread of this crate.
    fn contain<T>(&self, method: &'static str, key: &str, ask: impl FnOnce(&S) -> Result<T>) -> Result<T> {
        if self.owner.is_another() {
            let reason = format!(
                "process {} has joined the exchange, and this one was forked from it: join an exchange of its own here",
                self.owner.process()
            );
            return Err(Error::InvalidUsage { operation: method, reason });
        }
        panicked::caught(|| ask(&self.store)).unwrap_or_else(|said| {
            let reason = format!("the store has panicked: {said}");
            Err(Error::Exchange { operation: method, key: key.to_owned(), reason })
        })
    }

    /// Pauses after an answer to a wait in which not all values were there.
    fn pause(&self) {
        let round = self.in_vain.load(Ordering::Relaxed);
        self.in_vain.store(round.saturating_add(1), Ordering::Relaxed);
        backoff(round);
    }
}

impl<S> Drop for Checked<S> {
    fn drop(&mut self) {
        if self.owner.is_another() {
            std::mem::forget(Arc::clone(&self.store));
        }
    }
}

fn broken_rule(
    method: &'static str,
    key: &str,
    expected: impl std::fmt::Display,
    got: impl std::fmt::Display,
) -> Error {
    let reason = format!("the store has broken its rules: expected {expected}, got {got}");
    Error::Exchange { operation: method, key: key.to_owned(), reason }
}

/// The first of some keys, for an error.
fn first<'k>(keys: &[&'k str]) -> &'k str {
    keys.first().copied().unwrap_or_default()
}

fn check_found(method: &'static str, key: &str, value: Option<&[u8]>) -> Result<()> {
    match value {
        Some(value) if value.len() > MAX_VALUE => {
            Err(broken_rule(method, key, format_args!("at most {MAX_VALUE} bytes"), value.len()))
        }
        _ => Ok(()),
    }
}

impl<S: Store> Store for Checked<S> {
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
        self.contain("Store::set", key, |store| store.set(key, value, within))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        const METHOD: &str = "Store::get";
        let values = self.contain(METHOD, first(keys), |store| store.get(keys, within)).inspect_err(|error| {
            if matches!(error, Error::Timeout { .. }) && !within.is_zero() {
                self.pause();
            }
        })?;
        if values.len() != keys.len() {
            return Err(broken_rule(METHOD, first(keys), format_args!("{} values", keys.len()), values.len()));
        }
        keys.iter().zip(&values).try_for_each(|(key, value)| check_found(METHOD, key, value.as_deref()))?;
        if values.iter().all(Option::is_some) {
            self.in_vain.store(0, Ordering::Relaxed);
        } else if !within.is_zero() {
            self.pause();
        }
        Ok(values)
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        self.contain("Store::add", key, |store| store.add(key, by, within))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        const METHOD: &str = "Store::compare_and_set";
        let swap = self.contain(METHOD, key, |store| store.compare_and_set(key, expected, value, within))?;
        if let Swap::Found(found) = &swap {
            check_found(METHOD, key, found.as_deref())?;
        }
        Ok(swap)
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        self.contain("Store::delete", key, |store| store.delete(key, within))
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        self.contain("Store::clear", prefix, |store| store.clear(prefix, within))
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        const METHOD: &str = "Store::ended";
        let ends = self.contain(METHOD, "", |store| store.ended(ids, within))?;
        if ends.len() != ids.len() {
            return Err(broken_rule(METHOD, "", format_args!("{} answers", ids.len()), ends.len()));
        }
        Ok(ends)
    }

    fn goes_with(&self, id: u64) -> Result<bool> {
        self.contain("Store::goes_with", "", |store| store.goes_with(id))
    }

    fn turn(&self) -> Option<String> {
        self.contain("Store::turn", "", |store| Ok(store.turn())).ok().flatten()
    }

    fn lingers(&self) -> Duration {
        self.contain("Store::lingers", "", |store| Ok(store.lingers())).unwrap_or_default()
    }

    fn again(&self, pause: Duration, within: Duration) -> Option<Result<Arc<dyn Store>>> {
        self.store.again(pause, within)
    }
}

/// Refuses a rank that is out of range, and a number of ranks that cannot be.
pub(super) fn check_rank(operation: &'static str, rank: usize, size: usize) -> Result<()> {
    if size > MAX_RANKS {
        return Err(Error::argument(operation, "size", format_args!("at most {MAX_RANKS} ranks"), size));
    }
    if rank < size {
        return Ok(());
    }
    Err(Error::argument(operation, "rank", format_args!("less than the {size} ranks"), rank))
}

/// Refuses a value that is too long.
pub(super) fn check_value(operation: &'static str, len: usize) -> Result<()> {
    if len <= MAX_VALUE {
        return Ok(());
    }
    Err(Error::argument(operation, "value", format_args!("at most {MAX_VALUE} bytes"), format_args!("{len} bytes")))
}

/// Random bytes of the system, which nobody else draws or foretells.
pub(super) fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    // Once the system has started, it gives so few bytes at once, and a call fails only when a
    // signal interrupts it.
    while !matches!(rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty()), Ok(32)) {}
    bytes
}

/// A number that nobody else draws.
pub(super) fn nonce() -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = random();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Directory, Exchange};
    use super::*;

    /// Runs `act` in a forked child, and waits until that has ended.
    pub(in crate::exchange) fn in_child(act: impl FnOnce()) {
        // SAFETY: the child takes no lock that another thread may hold, and ends without exit handlers.
        match unsafe { libc::fork() } {
            0 => {
                act();
                // SAFETY: may be called at any time.
                unsafe { libc::_exit(0) }
            }
            child => {
                let mut status = 1;
                // SAFETY: a place for the status.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
            }
        }
    }

    #[test]
    fn a_child_that_drops_its_copy_leaves_for_nobody() {
        let place = std::env::temp_dir().join(format!("gpucomm-forked-{}", std::process::id()));
        let join = |rank| Exchange::join(Directory::open(&place, rank, 2).unwrap()).unwrap();
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| join(1));
            (join(0), other.join().unwrap())
        });
        let mut other = Some(other);
        in_child(|| drop(other.take()));
        let id = one.view.members[1].id;
        assert_eq!(one.view.store.ended(&[id], Duration::ZERO).unwrap(), [None]);
        drop(other);
        assert_eq!(one.view.store.ended(&[id], Duration::ZERO).unwrap(), [Some("has left".to_owned())]);
    }
}
