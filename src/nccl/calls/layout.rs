//! How a buffer is divided among the ranks.

use smallvec::SmallVec;

use crate::error::{Error, Result};

/// How a buffer is divided among the ranks: part `r` has `counts[r]` elements and starts at element `offsets[r]`.
///
/// ```
/// # use gpucomm::{Clique, Device, DeviceBuffer, Layout, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// // Rank r has r + 1 elements, and each rank wants those of all.
/// let counts: Vec<_> = (1..=comm.size()).collect();
/// let own = DeviceBuffer::from_slice(&stream, &vec![comm.rank() as u32; comm.rank() + 1])?;
/// let mut all = DeviceBuffer::<u32>::zeroed(&stream, counts.iter().sum())?;
/// comm.all_gather_v((&own, &mut all), Layout::packed(&counts), &stream)?;
/// assert_eq!(all.to_vec(&stream)?[..3.min(all.len())], [0, 1, 1][..3.min(all.len())]);
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// Elements of each rank's part, one number a rank.
    pub counts: &'a [usize],
    /// Where each part starts, in elements, one number a rank; `None` where the parts follow one another.
    pub offsets: Option<&'a [usize]>,
}

impl<'a> Layout<'a> {
    /// Parts that follow one another.
    pub const fn packed(counts: &'a [usize]) -> Self {
        Self { counts, offsets: None }
    }

    /// Parts at stated places.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Layout, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // Rows of 4 elements, of which rank r fills the first r.
    /// let counts: Vec<_> = (0..comm.size()).collect();
    /// let offsets: Vec<_> = (0..comm.size()).map(|rank| 4 * rank).collect();
    /// let own = DeviceBuffer::from_slice(&stream, &vec![7u8; comm.rank()])?;
    /// let mut rows = DeviceBuffer::<u8>::zeroed(&stream, 4 * comm.size())?;
    /// comm.all_gather_v((&own, &mut rows), Layout::new(&counts, &offsets), &stream)?;
    /// assert_eq!(rows.slice(..4).to_vec(&stream)?, [0; 4]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub const fn new(counts: &'a [usize], offsets: &'a [usize]) -> Self {
        Self { counts, offsets: Some(offsets) }
    }

    /// The parts as `(offset, count)`, in the order of ranks; [`Layout::check`] says whether their ends can be counted.
    #[inline]
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, usize)> {
        let (offsets, mut next) = (self.offsets, 0);
        self.counts.iter().enumerate().map(move |(rank, &count)| {
            let offset = offsets.map_or(next, |offsets| offsets[rank]);
            next = offset.wrapping_add(count);
            (offset, count)
        })
    }

    /// Checks the parts against the number of ranks and the length of the buffer.
    pub(crate) fn check(&self, operation: &'static str, what: &'static str, size: usize, len: usize) -> Result<()> {
        let (counts, offsets) = (self.counts.len(), self.offsets.map_or(size, <[_]>::len));
        if counts != size || offsets != size {
            let (name, got) = if counts != size { ("counts", counts) } else { ("offsets", offsets) };
            let expected = format!("{size} {name}, one a rank");
            return Err(Error::argument(operation, what, expected, format!("{got} {name}")));
        }
        let mut needed = 0;
        for (rank, (offset, count)) in self.parts().enumerate() {
            let Some(end) = offset.checked_add(count) else {
                let got = format!("part {rank} of {count} elements at {offset}");
                return Err(Error::argument(operation, what, "parts whose ends can be counted", got));
            };
            needed = needed.max(end);
        }
        if needed > len {
            let expected = format!("a buffer of at least {needed} elements, to the end of the last part");
            return Err(Error::argument(operation, what, expected, format!("{len} elements")));
        }
        Ok(())
    }

    /// Like [`Layout::check`], for a buffer that is written: no two parts may overlap.
    pub(crate) fn check_disjoint(
        &self,
        operation: &'static str,
        what: &'static str,
        size: usize,
        len: usize,
    ) -> Result<()> {
        self.check(operation, what, size, len)?;
        let Some(offsets) = self.offsets else { return Ok(()) };
        let mut order: SmallVec<[usize; 16]> = (0..size).filter(|&rank| self.counts[rank] > 0).collect();
        order.sort_unstable_by_key(|&rank| offsets[rank]);
        for pair in order.windows(2) {
            let (first, count, second) = (offsets[pair[0]], self.counts[pair[0]], offsets[pair[1]]);
            if first + count > second {
                return Err(Error::argument(
                    operation,
                    what,
                    "parts that do not overlap",
                    format!("part {} at {first} with {count} elements, part {} at {second}", pair[0], pair[1]),
                ));
            }
        }
        Ok(())
    }
}

impl<'a> From<&'a [usize]> for Layout<'a> {
    fn from(counts: &'a [usize]) -> Self {
        Self::packed(counts)
    }
}

impl<'a, const N: usize> From<&'a [usize; N]> for Layout<'a> {
    fn from(counts: &'a [usize; N]) -> Self {
        Self::packed(counts)
    }
}

impl<'a> From<&'a Vec<usize>> for Layout<'a> {
    fn from(counts: &'a Vec<usize>) -> Self {
        Self::packed(counts)
    }
}
