//! Splitting communicators into parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::children::split;
use super::children::split::Ask;
use super::clique::Clique;
use super::communicator::Communicator;
use super::rank::inner::Inner;
use crate::error::Result;

impl Communicator {
    /// Wraps `ncclCommSplit`: the ranks that pass the same `color` get a communicator of their own, in which they stand in the order of
    /// their keys, and where these are equal, of their ranks. A rank that passes no color gets `None`; to NCCL, which may end the process
    /// of a rank without a color, it has one of its own, for the moment of this call: it takes as long as for the others, and the largest
    /// colors are kept for that ([`split-without-part`](crate::known_bugs::TABLE)).
    ///
    /// All ranks call it, in the same place among their collectives. It waits until what this rank has enqueued is done, then for the
    /// others. In a clique the ranks of a part are one as well: they go on comparing what they do, among themselves, and the part needs
    /// no promise. The parts of a communicator that was made by [`Communicator::init_rank`] rest on the promise that was given there.
    ///
    /// A part has the options of the communicator that it comes from, and its timeout. It may be split again, and either may be closed or
    /// dropped first. It shares nothing with it, unless [`Config::with_split_share`](super::Config::with_split_share) says so. Aborting a
    /// communicator, or a failure of it, ends all that came from it; not the other way round, unless they share.
    /// A [`CommBuffer`](super::CommBuffer) is for the communicator that has allocated it, and no other.
    ///
    /// # Errors
    /// [`Error::Disagreement`](crate::Error::Disagreement) where other ranks of a clique do something else;
    /// [`Error::Timeout`](crate::Error::Timeout) where one does not come, or what was enqueued is not done, within
    /// [`Communicator::timeout`]; what NCCL says. Except where this rank's own work was not done in time, the communicator is aborted then, with
    /// all its ranks in this process. [`Error::InvalidArgument`](crate::Error::InvalidArgument) where a key is larger than a C `int` can be, or a
    /// color larger than that less the number of ranks: nothing has happened then.
    ///
    /// Where a split fails inside NCCL on one rank only, as when memory runs out, the others wait for it inside NCCL: the error comes at once,
    /// but they are woken after five seconds only, and until then nothing of the communicator is freed. NCCL before 2.28.7 cannot wake them.
    ///
    /// # Examples
    /// A grid of 2 × 2, in rows and in columns:
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    ///
    /// let clique = Clique::init_all(&Device::all()?[..4])?;
    /// let sums = clique.spmd(|comm| {
    ///     let rank = comm.rank();
    ///     let row = comm.split(Some(rank / 2), rank)?.expect("every rank is in a row");
    ///     let column = comm.split(Some(rank % 2), rank)?.expect("every rank is in a column");
    ///     let stream = Stream::new(comm.device())?;
    ///     let mut x = DeviceBuffer::from_slice(&stream, &[rank as f32])?;
    ///     row.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    ///     column.all_reduce(InPlace(&mut x), ReduceOp::Max, &stream)?;
    ///     x.to_vec(&stream)
    /// })?;
    /// assert_eq!(sums, vec![[5.0]; 4]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommSplit")]
    pub fn split(&self, color: Option<usize>, key: usize) -> Result<Option<Self>> {
        let parts = split::split("split", &[self.inner()], &[Ask { color, key, config: None }])?;
        Ok(parts.into_iter().flatten().next().map(Self::from_inner))
    }
}

impl Clique {
    /// Wraps `ncclCommSplit`, on all ranks, for one thread that drives them all: the parts, by colour. `ask` says for each rank its
    /// colour and its key, or that it will be in no part; see [`Communicator::split`].
    ///
    /// # Errors
    /// As [`Communicator::split`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// let clique = gpucomm::Clique::init_all(&gpucomm::Device::all()?[..4])?;
    /// // Ranks 0 to 2, in the opposite order.
    /// let parts = clique.split(|rank| (rank < 3).then_some((0, 3 - rank)))?;
    /// assert_eq!(parts[&0].rank(0).device(), clique.rank(2).device());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommSplit")]
    pub fn split(&self, ask: impl Fn(usize) -> Option<(usize, usize)>) -> Result<BTreeMap<usize, Self>> {
        let asks: Vec<_> = (0..self.size())
            .map(|rank| match ask(rank) {
                Some((color, key)) => Ask { color: Some(color), key, config: None },
                None => Ask { color: None, key: 0, config: None },
            })
            .collect();
        let members: Vec<_> = self.ranks().iter().map(Communicator::inner).collect();
        Ok(by_color(split::split("Clique::split", &members, &asks)?, &asks))
    }
}

/// The parts that the ranks have asked for, by colour.
pub(super) fn by_color(children: Vec<Option<Arc<Inner>>>, asks: &[Ask]) -> BTreeMap<usize, Clique> {
    let mut parts = BTreeMap::<_, Vec<_>>::new();
    for (child, ask) in children.into_iter().zip(asks) {
        if let (Some(child), Some(color)) = (child, ask.color) {
            parts.entry(color).or_default().push(child);
        }
    }
    let clique = |(color, mut members): (_, Vec<Arc<Inner>>)| {
        members.sort_unstable_by_key(|inner| inner.rank);
        (color, Clique::of(members))
    };
    parts.into_iter().map(clique).collect()
}
