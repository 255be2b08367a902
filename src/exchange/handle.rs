//! The exchange as its users hold it, and its keys.

use std::sync::Arc;
use std::time::Duration;

use super::store::{MAX_KEYS, MAX_NAME, Swap, check_rank, check_value};
use super::view::{GRACE, LOOK, View, patiently};
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};

/// What ranks tell each other outside NCCL; see the [module](super).
///
/// A clone is the same rank of the same exchange. It can be used by several threads; what all ranks do together
/// ([`all_gather`](Self::all_gather) and the like) must come in the same order on all of them.
///
/// ```
/// # use gpucomm::exchange::{Exchange, Threads};
/// # use std::time::Duration;
/// # fn main() -> gpucomm::Result<()> {
/// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
/// let exchange = exchange.within(Duration::from_secs(10));
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
/// All of these functions may give what the store says: [`Error::Timeout`] where it does not answer in time, [`Error::Gone`] where rank 0
/// of a [`Tcp`](super::Tcp) has ended, which serves the others, and [`Error::Exchange`] where a file or a connection fails, or there is
/// no more room.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub(super) view: Arc<View>,
    timeout: Option<Duration>,
}

impl Exchange {
    pub(super) fn of(view: Arc<View>, timeout: Option<Duration>) -> Self {
        Self { view, timeout }
    }

    /// Another view, whose calls are allowed the same time.
    pub(super) fn with_view(&self, view: Arc<View>) -> Self {
        Self { view, timeout: self.timeout }
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.view.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.view.size()
    }

    /// The rank that each rank has in the [`Store`](super::Store), where views of some of the ranks number them anew.
    pub fn store_ranks(&self) -> Vec<usize> {
        self.view.members.iter().map(|member| member.root).collect()
    }

    /// The number of this generation, from 1; the first that a store sees after it was emptied is 1 again.
    pub fn generation(&self) -> u64 {
        self.view.generation
    }

    /// How long its calls wait: what was given to [`within`](Self::within), or [`default_timeout`](crate::default_timeout).
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or_else(default_timeout)
    }

    /// The same, whose calls wait for `timeout` at most: `exchange.within(Duration::from_secs(5)).barrier()`.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { view: Arc::clone(&self.view), timeout: Some(timeout) }
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
                // The store has ended with the rank that holds it.
                Ok(false) | Err(Error::Gone { .. }) => return Some((rank, how)),
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
            // The rank that holds the store, as the store numbers it.
            Err(Error::Gone { rank, how, .. }) => {
                let is_it = |other: &&usize| self.view.members[**other].root == rank;
                ranks.iter().find(is_it).map(|rank| (*rank, how))
            }
            Err(_) => None,
        }
    }

    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout())
    }

    /// The name of a key of a user in the store.
    fn name(&self, operation: &'static str, key: &str) -> Result<String> {
        if (1..=MAX_NAME).contains(&key.len()) {
            return Ok(format!("{}u/{key}", self.view.path));
        }
        let expected = format!("1 to {MAX_NAME} bytes");
        Err(Error::argument(operation, "key", expected, format_args!("{} bytes", key.len())))
    }

    /// Sets a key, whatever it was. All ranks see the whole value, or the one before.
    ///
    /// Keys are 1 to [`MAX_NAME`] bytes long, values 0 to [`MAX_VALUE`](super::MAX_VALUE). They belong to this generation of this view.
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
    /// [`Error::InvalidArgument`] for a key or a value of another length; what the [store](Self#errors) says.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let name = self.name("Exchange::set", key)?;
        check_value("Exchange::set", value.len())?;
        self.view.store.set(&name, value, self.timeout())
    }

    /// The value of a key; waits until some rank sets it.
    ///
    /// When all other ranks have ended it fails at once; see [`get_from`](Self::get_from).
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// # exchange.set("seed", b"17")?;
    /// // Whoever sets it, and whenever.
    /// assert_eq!(exchange.get("seed")?, b"17");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a key of another length; [`Error::Timeout`]; [`Error::Gone`] where all others have ended; what the
    /// [store](Self#errors) says.
    pub fn get(&self, key: &str) -> Result<Vec<u8>> {
        Ok(self.get_all(&[key])?.swap_remove(0))
    }

    /// The values of several keys; waits until all of them are there.
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
                return Err(Error::Gone { operation, rank, how });
            }
            if up {
                return Err(deadline.error(operation, format!("rank {}: nobody has set {missing:?}", self.rank())));
            }
        }
    }

    /// The value of a key that `rank` sets; waits until it does, or has ended without.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// # exchange.set("plan", b"abc")?;
    /// // Where rank 0 ends without having set it, this is an error at once.
    /// assert_eq!(exchange.get_from(0, "plan")?, b"abc");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that there is none, and a key of another length; [`Error::Timeout`]; [`Error::Gone`] where
    /// that rank has ended without; what the [store](Self#errors) says.
    pub fn get_from(&self, rank: usize, key: &str) -> Result<Vec<u8>> {
        let operation = "Exchange::get_from";
        check_rank(operation, rank, self.size())?;
        let asked = [(rank, self.name(operation, key)?)];
        let what = format!("{key:?}");
        Ok(self.view.values(operation, &what, &asked, &self.deadline(), |_, _| None)?.swap_remove(0))
    }

    /// The value of a key, if it is there now.
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
    /// [`Error::InvalidArgument`] for a key of another length; what the [store](Self#errors) says.
    pub fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let name = self.name("Exchange::try_get", key)?;
        Ok(self.view.store.get(&[&name], Duration::ZERO)?.swap_remove(0))
    }

    /// Adds to a number and returns the sum. The key holds it as decimal text; where there is none, it is 0.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// // Each rank that comes gets another piece of work.
    /// let piece = exchange.add("next", 1)? - 1;
    /// assert_eq!(piece, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a key of another length; [`Error::Exchange`] where it holds no number, or the sum is none; what the
    /// [store](Self#errors) says.
    pub fn add(&self, key: &str, by: i64) -> Result<i64> {
        let name = self.name("Exchange::add", key)?;
        self.view.store.add(&name, by, self.timeout())
    }

    /// Sets a key if its value is `expected`; `None` means that it is not there.
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
    /// As [`set`](Self::set). That the value is another one is no error.
    pub fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<Swap> {
        let name = self.name("Exchange::compare_and_set", key)?;
        check_value("Exchange::compare_and_set", value.len())?;
        self.view.store.compare_and_set(&name, expected, value, self.timeout())
    }

    /// Removes a key, and says whether it was there.
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
    /// As [`try_get`](Self::try_get). That there is no such key is no error.
    pub fn delete(&self, key: &str) -> Result<bool> {
        let name = self.name("Exchange::delete", key)?;
        self.view.store.delete(&name, self.timeout())
    }
}
