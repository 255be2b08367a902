//! Collectives: operations that all ranks of an exchange call in the same order.

use std::time::Duration;

use super::combined::Combined;
use super::handle::Exchange;
use super::store::{MAX_VALUE, check_rank};
use super::view::{FIRST_LOOK, GRACE, Round};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// A broadcast leaves its value in the store until all ranks are known to have read it. Those in rounds
/// whose number is a multiple of this are gathers, in which all ranks meet.
const MEET: u64 = 64;

/// The first byte of what a rank sets in a round. It says which operation the rank is in, so that
/// ranks in different ones notice.
pub(super) mod kind {
    pub(in crate::exchange) const ALL_GATHER: u8 = 1;
    pub(in crate::exchange) const BROADCAST: u8 = 2;
    pub(in crate::exchange) const BARRIER: u8 = 3;
    pub(in crate::exchange) const VOTE: u8 = 4;
    pub(in crate::exchange) const SPLIT: u8 = 5;
    /// The rank has refused its call, or could not make it.
    pub(in crate::exchange) const REFUSED: u8 = 6;

    /// Its name, for messages.
    pub(in crate::exchange) fn name(kind: Option<&u8>) -> String {
        match kind {
            Some(&ALL_GATHER) => "all_gather".to_owned(),
            Some(&BROADCAST) => "broadcast".to_owned(),
            Some(&BARRIER) => "barrier".to_owned(),
            Some(&VOTE) => "vote".to_owned(),
            Some(&SPLIT) => "split".to_owned(),
            Some(&REFUSED) => "a call that failed there before it began".to_owned(),
            Some(other) => format!("something unknown ({other})"),
            None => "nothing".to_owned(),
        }
    }
}

/// Refuses a value that does not fit into the store with its kind before it.
fn check_len(operation: &'static str, value: &[u8]) -> Result<()> {
    if value.len() < MAX_VALUE {
        return Ok(());
    }
    let expected = format!("fewer than {MAX_VALUE} bytes");
    Err(Error::argument(operation, "value", expected, format_args!("{} bytes", value.len())))
}

impl Exchange {
    /// Gathers bytes, of any length, from every rank, and returns those of all in the order of
    /// ranks.
    ///
    /// At the deadline, [`Error::Timeout`] lists the ranks that have not come. If a rank is known
    /// to have ended, the others get [`Error::Departed`] at once. If a rank calls another operation
    /// instead, they get [`Error::Disagreement`].
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// let names = exchange.all_gather(format!("rank {}", exchange.rank()).as_bytes())?;
    /// assert_eq!(names[0], b"rank 0");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] for [`MAX_VALUE`](super::MAX_VALUE) bytes or more,
    /// [`Error::Timeout`], [`Error::Departed`], [`Error::Disagreement`], and the errors of the
    /// [store](Self#errors).
    pub fn all_gather(&self, value: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.gather("Exchange::all_gather", kind::ALL_GATHER, value)
    }

    /// Waits until all ranks have come.
    ///
    /// ```
    /// # use gpucomm::Error;
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// match exchange.with_timeout(Duration::from_secs(5)).barrier() {
    ///     Err(Error::Timeout { .. }) => println!("a rank is late"),
    ///     Err(Error::Departed { .. }) => println!("a rank has ended"),
    ///     done => done?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn barrier(&self) -> Result<()> {
        self.gather("Exchange::barrier", kind::BARRIER, &[]).map(drop)
    }

    /// Returns the bytes of `root` on all ranks. The values of the other ranks are ignored.
    ///
    /// The root does not wait for the others, except in each 64th round, where all ranks meet so
    /// that old values can be removed. Ranks that name different roots therefore get different values,
    /// and no error.
    ///
    /// ```
    /// # use gpucomm::UniqueId;
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// let id = if exchange.rank() == 0 { UniqueId::new()?.as_bytes().to_vec() } else { Vec::new() };
    /// let id = exchange.broadcast(&id, 0)?;
    /// assert_eq!(id.len(), UniqueId::BYTES);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather), and [`Error::InvalidArgument`] if `root` is out of
    /// range.
    pub fn broadcast(&self, value: &[u8], root: usize) -> Result<Vec<u8>> {
        let operation = "Exchange::broadcast";
        let own = if self.rank() == root { value } else { &[] };
        let is_right = check_rank(operation, root, self.size()).and_then(|()| check_len(operation, own));
        let deadline = self.deadline();
        let begun = self.begin(operation, is_right, &deadline)?;
        let round = begun.number;
        if round.is_multiple_of(MEET) {
            return Ok(self.gather_in(round, operation, kind::BROADCAST, own, &deadline)?.swap_remove(root));
        }
        if self.rank() == root {
            self.put(round, operation, kind::BROADCAST, value, &deadline)?;
            return Ok(value.to_vec());
        }
        let what = format!("broadcast (round {round}) from rank {root}");
        let keys = [(root, self.round_key(round, root))];
        let values = self.payloads(round, operation, kind::BROADCAST, &what, (&keys, None), &deadline);
        if let Err(Error::Disagreement { .. }) = &values {
            // Ranks that wait for this one then see that it is in another operation.
            self.put_counted(round, operation, kind::BROADCAST, &[], &deadline)?;
        }
        Ok(values?.swap_remove(0))
    }

    fn gather(&self, operation: &'static str, kind: u8, value: &[u8]) -> Result<Vec<Vec<u8>>> {
        let deadline = self.deadline();
        let round = self.begin(operation, check_len(operation, value), &deadline)?;
        self.gather_in(round.number, operation, kind, value, &deadline)
    }

    /// The deadline for telling the others that a call has failed here.
    pub(super) fn soon(&self) -> Deadline {
        Deadline::after((self.timeout() / 5).min(GRACE))
    }

    /// Begins a collective call when it is its turn. If the call is not right, or does not get its turn,
    /// this rank tells the others, which are in the same round.
    pub(super) fn begin(
        &self,
        operation: &'static str,
        is_right: Result<()>,
        deadline: &Deadline,
    ) -> Result<Round<'_>> {
        let round = self.view.round();
        let begun = is_right.and_then(|()| round.wait_for_turn(operation, deadline, || false));
        if let Err(error) = begun {
            let soon = self.soon();
            let _ = self.put_counted(round.number, operation, kind::REFUSED, &[], &soon);
            return Err(error);
        }
        Ok(round)
    }

    pub(super) fn gather_in(
        &self,
        round: u64,
        operation: &'static str,
        kind: u8,
        value: &[u8],
        deadline: &Deadline,
    ) -> Result<Vec<Vec<u8>>> {
        self.put_counted(round, operation, kind, value, deadline)?;
        let combined = self.view.combined_key(round).map(|key| Combined { key, rank: self.rank(), kind, value });
        if let Some(combined) = &combined
            && let Some(bytes) = self.view.await_combined(&combined.key, FIRST_LOOK, deadline)?
            && let Some(values) = combined.split(&bytes, self.size())
        {
            self.met(round);
            return Ok(values.iter().map(|value| value.get(1..).unwrap_or_default().to_vec()).collect());
        }
        let keys: Vec<_> = (0..self.size()).map(|rank| (rank, self.round_key(round, rank))).collect();
        let what = format!("{} (round {round})", kind::name(Some(&kind)));
        let values = self.payloads(round, operation, kind, &what, (&keys, combined), deadline)?;
        self.met(round);
        Ok(values)
    }

    /// Sets this rank's value in a round in which all ranks set one, and counts it.
    pub(super) fn put_counted(
        &self,
        round: u64,
        operation: &'static str,
        kind: u8,
        value: &[u8],
        deadline: &Deadline,
    ) -> Result<()> {
        self.put(round, operation, kind, value, deadline)?;
        self.view.combine(round, (kind, value.len()), deadline);
        Ok(())
    }

    /// Sets this rank's value in a round.
    pub(super) fn put(
        &self,
        round: u64,
        operation: &'static str,
        kind: u8,
        value: &[u8],
        deadline: &Deadline,
    ) -> Result<()> {
        check_len(operation, value)?;
        let key = self.round_key(round, self.rank());
        let bytes = [&[kind], value].concat();
        self.view.store.set(&key, &bytes, deadline.remaining())?;
        self.view.progress().own.push((round, key));
        Ok(())
    }

    pub(super) fn round_key(&self, round: u64, rank: usize) -> String {
        self.view.round_key(round, rank)
    }

    /// The values that ranks have set under these keys, if all of them are in the same operation,
    /// which `what` describes.
    fn payloads(
        &self,
        round: u64,
        operation: &'static str,
        kind: u8,
        what: &str,
        keys: (&[(usize, String)], Option<Combined<'_>>),
        deadline: &Deadline,
    ) -> Result<Vec<Vec<u8>>> {
        let values = self.view.values(operation, what, keys, deadline, |rank, value| {
            (value.first() != Some(&kind)).then(|| Error::Disagreement {
                operation,
                rank,
                peer: self.rank(),
                expected: format!("{} as round {round}", kind::name(Some(&kind))),
                got: kind::name(value.first()),
                departed: false,
                in_part: false,
            })
        })?;
        Ok(values.into_iter().map(|mut value| value.split_off(1)).collect())
    }

    /// All ranks have come to a round, so none still reads the values of earlier ones. Removes
    /// those of this rank.
    pub(super) fn met(&self, round: u64) {
        let mut progress = self.view.progress();
        let (old, own) = progress.own.drain(..).partition(|(of, _)| *of < round);
        progress.own = own;
        drop(progress);
        let old: Vec<(u64, String)> = old;
        for (_, key) in old {
            // A key that cannot be removed takes memory until the generation ends.
            let _ = self.view.store.delete(&key, GRACE.min(Duration::from_secs(1)));
        }
    }
}
