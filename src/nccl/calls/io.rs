//! Which buffers a collective reads and writes.
//!
//! In place is a form of its own, so that one region is never borrowed both shared and mutably, and regions that overlap
//! in part cannot be written down.

use smallvec::SmallVec;

use crate::cuda::{AsSlice, AsSliceMut, Slice, SliceMut};
use crate::element::Element;
use crate::error::{Error, Result};

/// One buffer that is both read and written.
#[derive(Debug, Clone, Copy)]
pub struct InPlace<B>(pub B);

/// The buffer of a rank that only sends: a rank other than the root of a reduce or gather.
#[derive(Debug, Clone, Copy)]
pub struct SendOnly<B>(pub B);

/// The buffer of a rank that only receives: a rank other than the root of a broadcast or scatter.
#[derive(Debug, Clone, Copy)]
pub struct RecvOnly<B>(pub B);

/// What every rank both sends and receives: `(&send, &mut recv)` or [`InPlace`]`(&mut buffer)`.
#[derive(Debug)]
pub enum SendRecv<'a, T: Element> {
    /// Two buffers.
    OutOfPlace {
        /// What this rank contributes.
        send: Slice<'a, T>,
        /// Where the result goes.
        recv: SliceMut<'a, T>,
    },
    /// One buffer.
    InPlace(SliceMut<'a, T>),
}

/// What flows to a root: `(&send, &mut recv)` or [`InPlace`]`(&mut buffer)` anywhere, [`SendOnly`]`(&send)` on ranks that
/// are not the root.
#[derive(Debug)]
pub enum ToRoot<'a, T: Element> {
    /// Two buffers; the second is written at the root only.
    OutOfPlace {
        /// What this rank contributes.
        send: Slice<'a, T>,
        /// Where the result goes at the root.
        recv: SliceMut<'a, T>,
    },
    /// One buffer.
    InPlace(SliceMut<'a, T>),
    /// Nothing is received here.
    SendOnly(Slice<'a, T>),
}

/// What flows from a root: `(&send, &mut recv)` or [`InPlace`]`(&mut buffer)` anywhere, [`RecvOnly`]`(&mut recv)` on ranks
/// that are not the root.
#[derive(Debug)]
pub enum FromRoot<'a, T: Element> {
    /// Two buffers; the first is read at the root only.
    OutOfPlace {
        /// What the root sends.
        send: Slice<'a, T>,
        /// Where it arrives.
        recv: SliceMut<'a, T>,
    },
    /// One buffer.
    InPlace(SliceMut<'a, T>),
    /// Nothing is sent here.
    RecvOnly(SliceMut<'a, T>),
}

/// What can be given as a [`SendRecv`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what is sent and where the result goes",
    label = "expected `(&send, &mut recv)` or `InPlace(&mut buffer)`",
    note = "one buffer that is both read and written is given as `InPlace(&mut buffer)`"
)]
pub trait AsSendRecv<'a, T: Element>: Into<SendRecv<'a, T>> {}

/// What can be given as a [`ToRoot`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what is sent and where the result goes",
    label = "expected `(&send, &mut recv)`, `InPlace(&mut buffer)` or, on ranks that are not the root, `SendOnly(&send)`",
    note = "one buffer that is both read and written is given as `InPlace(&mut buffer)`"
)]
pub trait AsToRoot<'a, T: Element>: Into<ToRoot<'a, T>> {}

/// What can be given as a [`FromRoot`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what is sent and where the result goes",
    label = "expected `(&send, &mut recv)`, `InPlace(&mut buffer)` or, on ranks that are not the root, `RecvOnly(&mut recv)`",
    note = "one buffer that is both read and written is given as `InPlace(&mut buffer)`"
)]
pub trait AsFromRoot<'a, T: Element>: Into<FromRoot<'a, T>> {}

macro_rules! both_forms {
    ($($name:ident $given_as:ident)*) => {$(
        impl<'a, T: Element> $given_as<'a, T> for $name<'a, T> {}
        impl<'a, T: Element, S: AsSlice<'a, T>, R: AsSliceMut<'a, T>> $given_as<'a, T> for (S, R) {}
        impl<'a, T: Element, B: AsSliceMut<'a, T>> $given_as<'a, T> for InPlace<B> {}

        impl<'a, T: Element, S: AsSlice<'a, T>, R: AsSliceMut<'a, T>> From<(S, R)> for $name<'a, T> {
            fn from((send, recv): (S, R)) -> Self {
                Self::OutOfPlace { send: send.into(), recv: recv.into() }
            }
        }

        impl<'a, T: Element, B: AsSliceMut<'a, T>> From<InPlace<B>> for $name<'a, T> {
            fn from(InPlace(buffer): InPlace<B>) -> Self {
                Self::InPlace(buffer.into())
            }
        }
    )*};
}

both_forms!(SendRecv AsSendRecv ToRoot AsToRoot FromRoot AsFromRoot);

impl<'a, T: Element, S: AsSlice<'a, T>> AsToRoot<'a, T> for SendOnly<S> {}
impl<'a, T: Element, R: AsSliceMut<'a, T>> AsFromRoot<'a, T> for RecvOnly<R> {}

impl<'a, T: Element, S: AsSlice<'a, T>> From<SendOnly<S>> for ToRoot<'a, T> {
    fn from(SendOnly(send): SendOnly<S>) -> Self {
        Self::SendOnly(send.into())
    }
}

impl<'a, T: Element, R: AsSliceMut<'a, T>> From<RecvOnly<R>> for FromRoot<'a, T> {
    fn from(RecvOnly(recv): RecvOnly<R>) -> Self {
        Self::RecvOnly(recv.into())
    }
}

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
