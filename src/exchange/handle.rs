//! The handle of an exchange, and the keys that users set.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::store::{MAX_KEYS, MAX_NAME, Swap, check_rank, check_value};
use super::view::{GRACE, LOOK, View, patiently};
use crate::deadline::{Deadline, backoff, default_timeout};
use crate::error::{Error, Result};

/// A connection between ranks outside NCCL; see the [module](super).
///
/// A clone is the same rank of the same exchange. Several threads may use it. Collective calls, such as
/// [`all_gather`](Self::all_gather), must come in the same order on all ranks.
///
/// ```
/// # use gpucomm::exchange::{Exchange, Threads};
/// # use std::time::Duration;
/// # fn main() -> gpucomm::Result<()> {
/// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
/// let exchange = exchange.with_timeout(Duration::from_secs(10));
/// println!("rank {} of {}, in generation {}", exchange.rank(), exchange.size(), exchange.generation());
/// if exchange.rank() == 0 {
///     exchange.set("address", b"node-0:29500")?;
/// }
/// assert_eq!(exchange.get("address")?, b"node-0:29500");
/// assert_eq!((exchange.timeout(), exchange.store_ranks()), (Duration::from_secs(10), vec![0]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// All methods that use the store return
/// - [`Error::Timeout`] if the store does not answer in time,
/// - [`Error::Departed`] if the store is a [`Tcp`](super::Tcp) and rank 0, which serves it, has ended,
/// - [`Error::Exchange`] if a file or a connection fails, or the store is full.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub(super) view: Arc<View>,
    timeout: Option<Duration>,
    refusal: Option<Refusal>,
}

/// Returns an error once the caller must wait no longer.
#[derive(Clone)]
struct Refusal(Arc<dyn Fn() -> Option<Error> + Send + Sync>);

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusal").finish_non_exhaustive()
    }
}

impl Exchange {
    pub(super) fn of(view: Arc<View>, timeout: Option<Duration>) -> Self {
        Self { view, timeout, refusal: None }
    }

    /// Returns a handle of another view, with the same timeout.
    pub(super) fn with_view(&self, view: Arc<View>) -> Self {
        Self { view, ..self.clone() }
    }

    /// Returns a handle whose votes and [survivors](Self::survivors) wait no longer as soon as `refusal`
    /// returns an error. Other collective calls know nothing of it: a rank that leaves one of those would
    /// be a round behind the others.
    #[cfg(feature = "nccl")]
    pub(crate) fn unless(&self, refusal: impl Fn() -> Option<Error> + Send + Sync + 'static) -> Self {
        Self { refusal: Some(Refusal(Arc::new(refusal))), ..self.clone() }
    }

    /// Returns the error with which this rank waits no longer for the others.
    pub(crate) fn refusal(&self) -> Option<Error> {
        self.refusal.as_ref().and_then(|Refusal(refusal)| refusal())
    }

    /// Repeats a request that a slow store has not answered, each time for a short while, until the deadline passes or this
    /// exchange refuses.
    pub(super) fn persist<T>(&self, deadline: &Deadline, ask: impl Fn(Duration) -> Result<T>) -> Result<T> {
        let mut round = 0u32;
        loop {
            let late = match ask(deadline.remaining().min(GRACE)) {
                Err(late @ Error::Timeout { .. }) => late,
                answer => return answer,
            };
            if let Some(error) = self.refusal() {
                return Err(error);
            }
            if deadline.expired() {
                return Err(late);
            }
            backoff(round);
            round = round.saturating_add(1);
        }
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.view.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.view.size()
    }

    /// For each rank, its rank in the [`Store`](super::Store). The two differ in a view of some of the ranks.
    pub fn store_ranks(&self) -> Vec<usize> {
        self.view.members.iter().map(|member| member.root).collect()
    }

    /// The number of this generation. Generations are counted from 1, and again from 1 after the store was emptied.
    pub fn generation(&self) -> u64 {
        self.view.generation
    }

    /// The timeout of calls: the one set by [`with_timeout`](Self::with_timeout), or [`default_timeout`](crate::default_timeout).
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or_else(default_timeout)
    }

    /// Returns a handle of the same exchange with another timeout: `exchange.with_timeout(Duration::from_secs(5)).barrier()`.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self.clone() }
    }

    /// The [id](super::Store::id) of this rank's store, by which the ends of this process tell stores apart.
    #[cfg(feature = "nccl")]
    pub(crate) fn store_number(&self) -> u64 {
        self.view.members[self.view.rank].id
    }

    /// How long the drop of the last handle may wait for the other ranks: this one may serve the store.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn lingers(&self) -> Duration {
        self.view.store.lingers()
    }

    /// Returns the first other rank that has ended too early, and how. A rank that `is_through` may end: it is added to `through`, and
    /// not looked at again. Each question to the store takes at most `within`. Returns `None` if the store does not answer.
    #[cfg(feature = "nccl")]
    pub(crate) fn departed(
        &self,
        through: &mut Vec<usize>,
        within: Duration,
        is_through: impl Fn(usize) -> Result<bool>,
    ) -> Option<(usize, String)> {
        loop {
            let others: Vec<_> =
                (0..self.size()).filter(|rank| *rank != self.rank() && !through.contains(rank)).collect();
            let (rank, how) = self.departed_of(&others, within)?;
            match is_through(rank) {
                Ok(true) => through.push(rank),
                // The store has ended together with the rank that serves it.
                Ok(false) | Err(Error::Departed { .. }) => return Some((rank, how)),
                Err(_) => return None,
            }
        }
    }

    /// Returns the first of these ranks that the store knows to have ended, and how. Asks the store once. Returns `None` if it does not
    /// answer within that time.
    pub(crate) fn departed_of(&self, ranks: &[usize], within: Duration) -> Option<(usize, String)> {
        let ids: Vec<u64> = ranks.iter().map(|rank| self.view.members[*rank].id).collect();
        if ids.is_empty() {
            return None;
        }
        match self.view.store.ended(&ids, within) {
            Ok(ends) => ranks.iter().zip(ends).find_map(|(rank, end)| Some((*rank, end?))),
            // The rank that serves the store has ended. `rank` is its rank in the store.
            Err(Error::Departed { rank, how, .. }) => {
                let is_it = |other: &&usize| self.view.members[**other].root == rank;
                ranks.iter().find(is_it).map(|rank| (*rank, how))
            }
            Err(_) => None,
        }
    }

    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout())
    }

    /// The key in the store for a key of a user.
    fn name(&self, operation: &'static str, key: &str) -> Result<String> {
        if (1..=MAX_NAME).contains(&key.len()) {
            return Ok(format!("{}u/{key}", self.view.path));
        }
        let expected = format!("1 to {MAX_NAME} bytes");
        Err(Error::argument(operation, "key", expected, format_args!("{} bytes", key.len())))
    }

    /// Sets a key, and replaces its value if it has one. Other ranks see either the old or the new value,
    /// never a part.
    ///
    /// Keys are 1 to [`MAX_NAME`] bytes long, values 0 to [`MAX_VALUE`](super::MAX_VALUE). A key belongs to this generation of this view.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// exchange.set(&format!("loss/{}", exchange.rank()), &0.5f32.to_le_bytes())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if the key or the value has another length, and the errors of the [store](Self#errors).
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let name = self.name("Exchange::set", key)?;
        check_value("Exchange::set", value.len())?;
        self.view.store.set(&name, value, self.timeout())
    }

    /// Waits until a rank sets a key, and returns its value.
    ///
    /// The call fails as soon as all other ranks have ended. If you know which rank sets the key, use
    /// [`get_from`](Self::get_from).
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// # exchange.set("seed", b"17")?;
    /// // Any rank may set it, at any time.
    /// assert_eq!(exchange.get("seed")?, b"17");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns
    /// - [`Error::InvalidArgument`] if the key has another length,
    /// - [`Error::Timeout`] if no rank sets the key in time,
    /// - [`Error::Departed`] if all other ranks have ended,
    /// - the errors of the [store](Self#errors).
    pub fn get(&self, key: &str) -> Result<Vec<u8>> {
        Ok(self.get_all(&[key])?.swap_remove(0))
    }

    /// Waits until all of the keys are set, and returns their values.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// exchange.set("x", b"1")?;
    /// exchange.set("y", b"2")?;
    /// assert_eq!(exchange.get_all(&["y", "x"])?, [b"2", b"1"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_all(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        let operation = "Exchange::get";
        let names: Vec<String> = keys.iter().map(|key| self.name(operation, key)).collect::<Result<_>>()?;
        let mut values = Vec::with_capacity(keys.len());
        let deadline = self.deadline();
        for (keys, names) in keys.chunks(MAX_KEYS).zip(names.chunks(MAX_KEYS)) {
            values.extend(self.get_some(operation, keys, names, &deadline)?);
        }
        Ok(values)
    }

    fn get_some(
        &self,
        operation: &'static str,
        keys: &[&str],
        names: &[String],
        deadline: &Deadline,
    ) -> Result<Vec<Vec<u8>>> {
        let store = &self.view.store;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let others: Vec<u64> =
            (0..self.size()).filter(|rank| *rank != self.rank()).map(|rank| self.view.members[rank].id).collect();
        loop {
            let found = patiently(deadline, || store.get(&names, deadline.remaining().min(LOOK)))?;
            let missing: Vec<&str> =
                keys.iter().zip(&found).filter(|(_, value)| value.is_none()).map(|(key, _)| *key).collect();
            if missing.is_empty() {
                return Ok(found.into_iter().flatten().collect());
            }
            let up = deadline.expired();
            let ends =
                if others.is_empty() { Vec::new() } else { patiently(deadline, || store.ended(&others, GRACE))? };
            if !ends.is_empty() && ends.iter().all(Option::is_some) {
                let found = patiently(deadline, || store.get(&names, Duration::ZERO))?;
                if found.iter().all(Option::is_some) {
                    return Ok(found.into_iter().flatten().collect());
                }
                let rank = usize::from(self.rank() == 0);
                let how = ends[0].as_deref().unwrap_or_default();
                let how = format!("{how}, as all others have ended, and nobody has set {missing:?}");
                return Err(Error::Departed { operation, rank, how });
            }
            if up {
                let late = deadline.error(operation, format!("rank {}: nobody has set {missing:?}", self.rank()));
                return Err(late.waited_by(self.rank()));
            }
        }
    }

    /// Waits until `rank` sets a key, and returns its value. Fails as soon as `rank` ends without setting it.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// # exchange.set("plan", b"abc")?;
    /// // If rank 0 ends without setting the key, this call fails immediately.
    /// assert_eq!(exchange.get_from(0, "plan")?, b"abc");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns
    /// - [`Error::InvalidArgument`] if `rank` is out of range or the key has another length,
    /// - [`Error::Timeout`] if `rank` does not set the key in time,
    /// - [`Error::Departed`] if `rank` has ended without setting it,
    /// - the errors of the [store](Self#errors).
    pub fn get_from(&self, rank: usize, key: &str) -> Result<Vec<u8>> {
        let operation = "Exchange::get_from";
        check_rank(operation, rank, self.size())?;
        let asked = [(rank, self.name(operation, key)?)];
        let what = format!("{key:?}");
        Ok(self.view.values(operation, &what, (&asked, None), &self.deadline(), |_, _| None)?.swap_remove(0))
    }

    /// Returns the value of a key, or `None` if it is not set. Does not wait.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// if exchange.try_get("stop")?.is_none() {
    ///     println!("go on");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if the key has another length, and the errors of the [store](Self#errors).
    pub fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let name = self.name("Exchange::try_get", key)?;
        Ok(self.view.store.get(&[&name], Duration::ZERO)?.swap_remove(0))
    }

    /// Adds to a number and returns the sum. The key holds the number as decimal text. A key that is not set counts as 0.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// // Each caller gets another piece of work.
    /// let piece = exchange.add("next", 1)? - 1;
    /// assert_eq!(piece, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns
    /// - [`Error::InvalidArgument`] if the key has another length,
    /// - [`Error::Exchange`] if the value is not a number, or the sum overflows,
    /// - the errors of the [store](Self#errors).
    pub fn add(&self, key: &str, by: i64) -> Result<i64> {
        let name = self.name("Exchange::add", key)?;
        self.view.store.add(&name, by, self.timeout())
    }

    /// Sets a key if its value is `expected`. `None` means that it is not set.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Swap, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// match exchange.compare_and_set("leader", None, b"this one")? {
    ///     Swap::Done => println!("this rank leads"),
    ///     Swap::Found(leader) => println!("{leader:?} does"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`set`](Self::set). Another value is not an error: the call returns [`Swap::Found`].
    pub fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<Swap> {
        let name = self.name("Exchange::compare_and_set", key)?;
        check_value("Exchange::compare_and_set", value.len())?;
        self.view.store.compare_and_set(&name, expected, value, self.timeout())
    }

    /// Deletes a key. Returns whether it was set.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// exchange.set("lease", b"")?;
    /// assert!(exchange.delete("lease")?);
    /// assert!(!exchange.delete("lease")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`try_get`](Self::try_get). A key that is not set is not an error.
    pub fn delete(&self, key: &str) -> Result<bool> {
        let name = self.name("Exchange::delete", key)?;
        self.view.store.delete(&name, self.timeout())
    }
}
