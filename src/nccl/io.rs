//! Which buffers a collective reads and writes.
//!
//! In place is a form of its own, so that one region is never borrowed both shared and mutably, and regions that overlap
//! in part cannot be written down.

use crate::cuda::{Slice, SliceMut};
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

macro_rules! both_forms {
    ($($name:ident)*) => {$(
        impl<'a, T: Element, S: Into<Slice<'a, T>>, R: Into<SliceMut<'a, T>>> From<(S, R)> for $name<'a, T> {
            fn from((send, recv): (S, R)) -> Self {
                Self::OutOfPlace { send: send.into(), recv: recv.into() }
            }
        }

        impl<'a, T: Element, B: Into<SliceMut<'a, T>>> From<InPlace<B>> for $name<'a, T> {
            fn from(InPlace(buffer): InPlace<B>) -> Self {
                Self::InPlace(buffer.into())
            }
        }
    )*};
}

both_forms!(SendRecv ToRoot FromRoot);

impl<'a, T: Element, S: Into<Slice<'a, T>>> From<SendOnly<S>> for ToRoot<'a, T> {
    fn from(SendOnly(send): SendOnly<S>) -> Self {
        Self::SendOnly(send.into())
    }
}

impl<'a, T: Element, R: Into<SliceMut<'a, T>>> From<RecvOnly<R>> for FromRoot<'a, T> {
    fn from(RecvOnly(recv): RecvOnly<R>) -> Self {
        Self::RecvOnly(recv.into())
    }
}

/// How a buffer is divided among the ranks: part `r` has `counts[r]` elements and starts at element `offsets[r]`.
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
    pub const fn new(counts: &'a [usize], offsets: &'a [usize]) -> Self {
        Self { counts, offsets: Some(offsets) }
    }

    /// The parts as `(offset, count)`, checked against the number of ranks and the length of the buffer.
    pub(crate) fn parts(
        &self,
        operation: &'static str,
        what: &'static str,
        size: usize,
        len: usize,
    ) -> Result<Vec<(usize, usize)>> {
        if self.counts.len() != size {
            return Err(Error::argument(
                operation,
                what,
                format!("{size} counts, one a rank"),
                format!("{} counts", self.counts.len()),
            ));
        }
        if let Some(offsets) = self.offsets
            && offsets.len() != size
        {
            return Err(Error::argument(
                operation,
                what,
                format!("{size} offsets, one a rank"),
                format!("{} offsets", offsets.len()),
            ));
        }
        let mut next = 0usize;
        let mut needed = 0usize;
        let mut parts = Vec::with_capacity(size);
        for (rank, &count) in self.counts.iter().enumerate() {
            let offset = self.offsets.map_or(next, |offsets| offsets[rank]);
            next = offset.checked_add(count).ok_or_else(|| {
                Error::argument(
                    operation,
                    what,
                    "parts whose ends can be counted",
                    format!("part {rank} of {count} elements at {offset}"),
                )
            })?;
            needed = needed.max(next);
            parts.push((offset, count));
        }
        if needed > len {
            return Err(Error::argument(
                operation,
                what,
                format!("a buffer of at least {needed} elements, to the end of the last part"),
                format!("{len} elements"),
            ));
        }
        Ok(parts)
    }

    /// Like [`Layout::parts`], for a buffer that is written: no two parts may overlap.
    pub(crate) fn disjoint_parts(
        &self,
        operation: &'static str,
        what: &'static str,
        size: usize,
        len: usize,
    ) -> Result<Vec<(usize, usize)>> {
        let parts = self.parts(operation, what, size, len)?;
        if self.offsets.is_some() {
            let mut order: Vec<usize> = (0..size).filter(|&rank| parts[rank].1 > 0).collect();
            order.sort_unstable_by_key(|&rank| parts[rank].0);
            for pair in order.windows(2) {
                let ((first, count), (second, _)) = (parts[pair[0]], parts[pair[1]]);
                if first + count > second {
                    return Err(Error::argument(
                        operation,
                        what,
                        "parts that do not overlap",
                        format!("part {} at {first} with {count} elements, part {} at {second}", pair[0], pair[1]),
                    ));
                }
            }
        }
        Ok(parts)
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
