//! Lanes: requests that keep their order.

use std::sync::Arc;

use crate::error::{Error, Result};

/// A lane: its requests keep their order, whatever goes on in other lanes. One task of each process submits to it, say, or several that agree on an
/// order.
///
/// The world has a sequencer ([`WorldOptions::with_sequenced`](super::WorldOptions::with_sequenced)): all ranks take the requests of all lanes in one order, in whatever order
/// their tasks come to them. Other worlds refuse requests that have a lane.
///
/// ```
/// use gpucomm::world::{Lane, World, WorldOptions};
/// use gpucomm::{Device, DeviceBuffer, InPlace, ReduceOp, Result, Stream};
///
/// # fn main() -> Result<()> {
/// let options = WorldOptions::new().with_sequenced(true);
/// let world = World::new_with(&Device::all()?, &options)?;
/// std::thread::scope(|scope| {
///     let tasks: Vec<_> = ["gradients", "metrics"].map(|name| {
///         let world = &world;
///         scope.spawn(move || -> Result<()> {
///             let lane = Lane::new(name);
///             let mut answers = Vec::new();
///             // The tasks come to the ranks as it happens.
///             for rank in world.ranks() {
///                 let x = DeviceBuffer::from_slice(&Stream::new(rank.device())?, &[1u32; 3])?;
///                 answers.push(rank.with_lane(&lane).all_reduce(InPlace(x), ReduceOp::Sum));
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
    /// What all ranks know it by: its name and its ranks, on one line. No two lanes have the same.
    pub(super) key: Arc<str>,
    /// Who takes part; all where it is not said. Sorted.
    pub(super) members: Option<Arc<[usize]>>,
}

/// The key of what has no lane: no lane has it.
pub(super) const NO_LANE: &str = "";

/// Comes before the ranks in a key. No name has it there.
const RANKS: char = '\u{1f}';

/// The longest key, in bytes: two of them have room in one value of any store.
pub(super) const LONGEST: usize = 30 << 10;

fn key(name: &str, members: Option<&[usize]>) -> Arc<str> {
    // Escapes what a line cannot hold, and the backslash, so that different names stay different.
    let name = format!("={}", name.escape_debug());
    match members {
        None => name.into(),
        Some(members) => {
            let members: Vec<_> = members.iter().map(usize::to_string).collect();
            format!("{name}{RANKS}{}", members.join(",")).into()
        }
    }
}

/// The key of a lane, or of what has none.
pub(super) fn key_of(lane: Option<&Lane>) -> Arc<str> {
    lane.map_or_else(|| NO_LANE.into(), |lane| Arc::clone(&lane.key))
}

/// Whether `rank` takes part in the lane with this key.
pub(super) fn takes_part(key: &str, rank: usize) -> bool {
    key.split_once(RANKS).is_none_or(|(_, members)| members.split(',').any(|member| member.parse() == Ok(rank)))
}

impl Lane {
    /// The lane of that name, in which all ranks take part. Any text is a name; different names are different lanes. A request in
    /// a lane whose name and ranks take more than 30 KiB is refused.
    pub fn new(name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        Self { name: name.into(), key: key(name, None), members: None }
    }

    /// The lane of that name in which these ranks take part, such as two that send messages to each other. Each of them makes it with
    /// the same name and the same ranks: a lane of the same name with other ranks is another lane.
    ///
    /// ```
    /// use gpucomm::world::Lane;
    ///
    /// let forward = Lane::of("forward", [0, 1])?;
    /// assert!(Lane::of("nobody", []).is_err());
    /// assert!(Lane::of("twice", [1, 0, 1]).is_err());
    /// # Ok::<(), gpucomm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no rank, or a rank is named twice. A request in a lane with a rank that its world has not is refused.
    pub fn of(name: impl AsRef<str>, ranks: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut members: Vec<_> = ranks.into_iter().collect();
        members.sort_unstable();
        if let Some(twice) = members.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::argument(
                "Lane::of",
                "ranks",
                "each rank once",
                format_args!("rank {} twice", twice[0]),
            ));
        }
        if members.is_empty() {
            return Err(Error::argument("Lane::of", "ranks", "at least one", "none"));
        }
        let name = name.as_ref();
        Ok(Self { name: name.into(), key: key(name, Some(&members)), members: Some(members.into()) })
    }

    /// Whether a rank takes part.
    pub(super) fn has(&self, rank: usize) -> bool {
        self.members.as_ref().is_none_or(|members| members.binary_search(&rank).is_ok())
    }

    /// The lowest rank that takes part.
    pub(super) fn first(&self) -> usize {
        self.members.as_ref().map_or(0, |members| members[0])
    }

    /// The highest rank that is named; 0 where all take part.
    pub(super) fn last(&self) -> usize {
        self.members.as_ref().map_or(0, |members| members[members.len() - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_lanes_have_different_keys() {
        let names = [
            "",
            "=",
            " ",
            "a b",
            "a\tb",
            "a\nb",
            "a\u{1f}b",
            "a\u{1f}0,1",
            "a\\nb",
            "a\\u{1f}0,1",
            "a",
            "\"a\"",
            "ä",
            "a\u{308}",
        ];
        let long = [0, 1].map(|last| format!("{}{last}", "x".repeat(1000)));
        let mut keys = vec![NO_LANE.into()];
        for name in names.into_iter().chain(long.iter().map(String::as_str)) {
            keys.push(Lane::new(name).key);
            for ranks in [vec![0], vec![0, 1], vec![10], vec![1, 0, 10]] {
                keys.push(Lane::of(name, ranks).unwrap().key);
            }
        }
        assert!(keys.iter().all(|key| !key.contains('\n')));
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count, "{keys:?}");
    }

    #[test]
    fn a_rank_is_named_once() {
        let error = Lane::of("a", [3, 0, 3]).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
        assert!(error.to_string().contains("rank 3 twice"), "{error}");
    }

    #[test]
    fn a_key_says_who_takes_part() {
        let some = Lane::of("a\u{1f}7", [3, 10]).unwrap().key;
        assert!(takes_part(NO_LANE, 5) && takes_part(&Lane::new("\u{1f}3").key, 5));
        assert_eq!([1, 3, 7, 10, 0].map(|rank| takes_part(&some, rank)), [false, true, false, true, false]);
    }
}
