//! Lanes: requests that keep their order.

use std::sync::Arc;

use crate::error::{Error, Result};

/// A lane: its requests keep their order, whatever goes on in other lanes. One task of each process submits to it, say, or several that agree on an
/// order.
///
/// Where the world has a sequencer ([`WorldOptions::sequenced`](super::WorldOptions::sequenced)), all ranks take the requests of all lanes in one order, in whatever order
/// their tasks come to them.
///
/// ```
/// use gpucomm::world::{Lane, Op, World, WorldOptions};
/// use gpucomm::{Device, DeviceBuffer, InPlace, Result, Stream};
///
/// # fn main() -> Result<()> {
/// let options = WorldOptions { sequenced: true, ..WorldOptions::default() };
/// let world = World::with(&Device::all()?, options)?;
/// std::thread::scope(|scope| {
///     let tasks: Vec<_> = ["gradients", "metrics"].map(|name| {
///         let world = &world;
///         scope.spawn(move || -> Result<()> {
///             let lane = Lane::new(name);
///             let mut answers = Vec::new();
///             // The tasks come to the ranks as it happens.
///             for rank in world.ranks() {
///                 let x = DeviceBuffer::from_slice(&Stream::new(rank.device())?, &[1u32; 3])?;
///                 answers.push(rank.lane(&lane).all_reduce(InPlace(x), Op::Sum));
///             }
///             for answer in answers {
///                 answer.wait()?;
///             }
///             Ok(())
///         })
///     }).into();
///     tasks.into_iter().try_for_each(|task| task.join().expect("no panic"))
/// })
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    pub(super) name: Arc<str>,
    /// Who takes part; all where it is not said. Sorted.
    pub(super) members: Option<Arc<[usize]>>,
}

/// The longest name of a lane.
const LONGEST: usize = 200;

impl Lane {
    /// The lane of that name, in which all ranks take part.
    pub fn new(name: impl AsRef<str>) -> Self {
        // It stands in the log of the sequencer, one to a line.
        let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
        let name: String = name.as_ref().chars().take(LONGEST).map(plain).collect();
        Self { name: name.into(), members: None }
    }

    /// The lane of that name, in which these ranks take part: that of messages between two of them, say. All of them know it as this.
    ///
    /// ```
    /// use gpucomm::world::Lane;
    ///
    /// let forward = Lane::of("forward", [0, 1])?;
    /// assert!(Lane::of("nobody", []).is_err());
    /// # Ok::<(), gpucomm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there are none.
    pub fn of(name: impl AsRef<str>, ranks: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut members: Vec<_> = ranks.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        if members.is_empty() {
            return Err(Error::argument("Lane::of", "ranks", "at least one", "none"));
        }
        Ok(Self { members: Some(members.into()), ..Self::new(name) })
    }

    /// Whether a rank takes part.
    pub(super) fn has(&self, rank: usize) -> bool {
        self.members.as_ref().is_none_or(|members| members.binary_search(&rank).is_ok())
    }

    /// The lowest rank that takes part.
    pub(super) fn first(&self) -> usize {
        self.members.as_ref().map_or(0, |members| members[0])
    }
}
