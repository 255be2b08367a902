//! Exchanges of some of the ranks: subsets, splits, and the survivors of a failure.

use std::sync::Arc;

use super::collectives::kind;
use super::digest::digest;
use super::handle::Exchange;
use super::store::{Swap, check_rank};
use super::view::{Came, GRACE};
use super::vote::unreadable;
use super::wire::{Reader, Writer};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

impl Exchange {
    /// An exchange of the given ranks of this one, numbered anew in this order.
    ///
    /// All members call it with the same list. The other ranks need not call it. No rank waits.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// // The even ranks, with numbers of their own.
    /// let even: Vec<_> = (0..exchange.size()).step_by(2).collect();
    /// if even.contains(&exchange.rank()) {
    ///     let some = exchange.subset(&even)?;
    ///     assert_eq!(some.store_ranks(), even);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if a rank is out of range or named twice, or the list
    /// lacks this rank.
    pub fn subset(&self, ranks: &[usize]) -> Result<Self> {
        let operation = "Exchange::subset";
        for (at, rank) in ranks.iter().enumerate() {
            check_rank(operation, *rank, self.size())?;
            if ranks[..at].contains(rank) {
                return Err(Error::argument(operation, "ranks", "each rank once", format_args!("rank {rank} twice")));
            }
        }
        let times = {
            let mut progress = self.view.progress();
            let times = progress.subsets.entry(ranks.to_vec()).or_default();
            *times += 1;
            *times
        };
        let base = format!("{}v/{:032x}-{times}/", self.view.path, list_digest(ranks));
        let expected = || format!("a list with this rank, {}", self.rank());
        let view = self.view.child(base, ranks);
        let view = view.ok_or_else(|| Error::argument(operation, "ranks", expected(), format_args!("{ranks:?}")))?;
        Ok(self.with_view(Arc::new(view)))
    }

    /// An exchange of all ranks of this one, with a name that is the same on all ranks and unique
    /// here. Ranks meet in it even if they have made different numbers of others before.
    pub(crate) fn named(&self, name: &[u8]) -> Result<Self> {
        let all: Vec<_> = (0..self.size()).collect();
        let base = format!("{}k/{:032x}/", self.view.path, digest(name.iter().copied()));
        let view = self.view.child(base, &all);
        let missing = || Error::argument("Exchange::named", "ranks", "a list with this rank", format_args!("{all:?}"));
        Ok(self.with_view(Arc::new(view.ok_or_else(missing)?)))
    }

    /// Divides all ranks by colour, as `ncclCommSplit` and `MPI_Comm_split` do. The ranks of one
    /// colour become an exchange, in the order of their keys, and of their ranks if keys are equal.
    /// A rank without a colour gets none.
    ///
    /// All ranks must call it.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// // The ranks of one host, say.
    /// let host = exchange.split(Some(17), 0)?.expect("it has a colour");
    /// host.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Self>> {
        let operation = "Exchange::split";
        let mine = Writer::default().u8(color.is_some().into()).u64(color.unwrap_or_default()).u64(key.cast_unsigned());
        let deadline = self.deadline();
        let begun = self.begin(operation, Ok(()), &deadline)?;
        let round = begun.number;
        let all = self.gather_in(round, operation, kind::SPLIT, &mine.0, &deadline)?;
        let Some(color) = color else { return Ok(None) };
        let mut ranks = Vec::new();
        for (rank, bytes) in all.iter().enumerate() {
            let mut reader = Reader(bytes);
            let (Some(has), Some(its), Some(key)) = (reader.u8(), reader.u64(), reader.u64()) else {
                let reason = format!("expected a colour and a key, got {} bytes", bytes.len());
                return Err(Error::Exchange { operation, key: format!("rank {rank}"), reason });
            };
            if has == 1 && its == color {
                ranks.push((key.cast_signed(), rank));
            }
        }
        ranks.sort_unstable();
        let ranks: Vec<usize> = ranks.into_iter().map(|(_, rank)| rank).collect();
        let base = format!("{}p/{round}-{color}/", self.view.path);
        Ok(self.view.child(base, &ranks).map(|view| self.with_view(Arc::new(view))))
    }

    /// An exchange of the ranks that call this within the timeout, numbered anew, after a failure.
    ///
    /// It returns as soon as all other ranks have called it or are known to have ended. The first
    /// rank whose deadline passes decides, and all ranks get the same members. A rank that comes
    /// later is not among them, and gets [`Error::Departed`] with its own rank. A second call returns
    /// the same exchange.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let place = Threads::new(2);
    /// let left = std::thread::scope(|scope| {
    ///     // Rank 1 comes, and leaves again.
    ///     let other = scope.spawn(|| Exchange::join(place.store(1)?).map(drop));
    ///     let exchange = Exchange::join(place.store(0)?)?.with_timeout(Duration::from_secs(10));
    ///     other.join().expect("no panic")?;
    ///     exchange.survivors()
    /// })?;
    /// assert_eq!(left.store_ranks(), [0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Departed`] with this rank if it has come too late or has
    /// [withdrawn](Self::withdraw), and the errors of the [store](Self#errors). A rank that does
    /// not come is no error.
    pub fn survivors(&self) -> Result<Self> {
        let operation = "Exchange::survivors";
        if let Some(view) = self.view.survivors.get() {
            return Ok(self.with_view(Arc::clone(view)));
        }
        let deadline = self.deadline();
        let key = |rank: usize| format!("{}s/{rank}", self.view.path);
        let said = self.view.store.compare_and_set(&key(self.rank()), None, &[], deadline.remaining())?;
        if matches!(said, Swap::Found(Some(said)) if !said.is_empty()) {
            return Err(Error::Departed { operation, rank: self.rank(), how: "has withdrawn".to_owned() });
        }
        let keys: Vec<_> = (0..self.size()).map(|rank| (rank, key(rank))).collect();
        let verdict = format!("{}s/verdict", self.view.path);
        let is_over = |came: &[Came]| match self.refusal() {
            Some(error) => Err(error),
            None => Ok(!came.contains(&Came::NotYet)),
        };
        let bytes = self.decide(&verdict, &keys, &deadline, is_over, |_| {
            // Reads the keys once more: a rank may have withdrawn since this one has read its key.
            let came = self.view.await_keys(&keys, &Deadline::after(GRACE), |_| Ok(true))?;
            let ranks = (0..came.len()).filter(|rank| matches!(&came[*rank], Came::Value(said) if said.is_empty()));
            let ranks: Vec<usize> = ranks.collect();
            Ok(ranks.iter().fold(Writer::default().count(ranks.len()), |writer, rank| writer.count(*rank)).0)
        })?;
        let mut reader = Reader(&bytes);
        let ranks = reader.list(Reader::count).filter(|ranks| ranks.iter().all(|rank| *rank < self.size()));
        let ranks = ranks.ok_or_else(|| unreadable(operation, &verdict, &bytes))?;
        let base = format!("{}s/v/", self.view.path);
        let view = self.view.child(base, &ranks).ok_or_else(|| Error::Departed {
            operation,
            rank: self.rank(),
            how: format!("has come too late: ranks {ranks:?} went on without it"),
        })?;
        Ok(self.with_view(Arc::clone(self.view.survivors.get_or_init(|| Arc::new(view)))))
    }

    /// Withdraws this rank: the [survivors](Self::survivors) of a failure do not wait for it. Call
    /// it if this rank cannot go on, for example because its device is lost.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// let place = Threads::new(2);
    /// let left = std::thread::scope(|scope| {
    ///     let other = scope.spawn(|| Exchange::join(place.store(1)?)?.withdraw());
    ///     let left = Exchange::join(place.store(0)?)?.survivors()?;
    ///     other.join().expect("no panic")?;
    ///     Ok::<_, gpucomm::Error>(left)
    /// })?;
    /// assert_eq!(left.store_ranks(), [0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of the [store](Self#errors).
    pub fn withdraw(&self) -> Result<()> {
        self.view.store.set(&format!("{}s/{}", self.view.path, self.rank()), b"withdrawn", self.deadline().remaining())
    }
}

/// A digest of a list of ranks, for names of keys.
fn list_digest(ranks: &[usize]) -> u128 {
    digest(ranks.iter().flat_map(|rank| (*rank as u64).to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::store::MAX_NAME;
    use crate::exchange::{MAX_KEY, Threads};

    /// However deep exchanges are made of exchanges, their keys fit, and are those of no other.
    #[test]
    fn keys_are_short_in_any_depth() {
        let mut some = Exchange::join(Threads::new(1).store(0).unwrap()).unwrap();
        let generation = some.view.path.clone();
        let mut paths = Vec::new();
        for depth in 0..60_u8 {
            let below = some.named(&[depth]).unwrap().subset(&[0]).unwrap();
            // What is made anew has other keys; what has the same name, the same.
            paths.extend(
                [&some.named(b"twin").unwrap(), &some.subset(&[0]).unwrap(), &below].map(|x| x.view.path.clone()),
            );
            assert_eq!(some.named(b"twin").unwrap().view.path, paths[paths.len() - 3]);
            some = below;
        }
        let longest = paths.iter().map(String::len).max().unwrap();
        assert!(longest < MAX_KEY - 2 * MAX_NAME, "{longest}");
        assert!(paths.iter().all(|path| path.starts_with(&generation)), "not of this generation: {paths:#?}");
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), 180);
        some.set("k", b"v").unwrap();
        assert_eq!(some.get("k").unwrap(), b"v");
    }
}
