//! The buffers of a call without the type of their elements, so that each operation is compiled once and not for each type.

use super::forms::Buffers;
use crate::cuda::{Region, Slice, SliceMut};
use crate::element::{self, Element, ElementKind};
use crate::error::{Error, Result};
use crate::nccl::validate::element_type::Type;

/// The type of the elements of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements {
    /// As the ranks compare it.
    pub(crate) of: Type,
    /// As NCCL knows it; `None` for a type that is only moved.
    pub(crate) kind: Option<ElementKind>,
    /// The bytes of one.
    pub(crate) size: usize,
}

impl Elements {
    #[inline]
    pub(crate) fn of<T: Element>() -> Self {
        Self { of: Type::of::<T>(), kind: const { element::kind::<T>() }, size: size_of::<T>() }
    }
}

/// A part of an allocation that is read or written.
#[derive(Clone, Copy)]
pub(crate) struct Buffer<'a> {
    pub(crate) region: Region<'a>,
    pub(crate) elements: Elements,
    /// How many elements there are.
    pub(crate) len: usize,
}

impl<'a, T: Element> From<Slice<'a, T>> for Buffer<'a> {
    #[inline]
    fn from(slice: Slice<'a, T>) -> Self {
        Self { region: slice.region(), elements: Elements::of::<T>(), len: slice.len() }
    }
}

impl<'a, T: Element> From<SliceMut<'a, T>> for Buffer<'a> {
    #[inline]
    fn from(slice: SliceMut<'a, T>) -> Self {
        let len = slice.len();
        Self { region: slice.into_region(), elements: Elements::of::<T>(), len }
    }
}

/// What every rank sends and receives: see [`AllRanks`](super::forms::AllRanks).
#[derive(Clone, Copy)]
pub(crate) enum Everywhere<'a> {
    OutOfPlace { send: Buffer<'a>, recv: Buffer<'a> },
    InPlace(Buffer<'a>),
}

impl<'a> Everywhere<'a> {
    /// # Errors
    /// [`Error::InvalidArgument`] if a rank only sends or only receives.
    #[inline]
    pub(crate) fn new<T: Element>(operation: &'static str, io: Buffers<'a, T>) -> Result<Self> {
        Ok(match io {
            Buffers::OutOfPlace { send, recv } => Self::OutOfPlace { send: send.into(), recv: recv.into() },
            Buffers::InPlace(buffer) => Self::InPlace(buffer.into()),
            Buffers::SendOnly(_) => {
                return Err(refused(operation, "(send, recv) or InPlace(buffer)", "SendOnly(send)"));
            }
            Buffers::RecvOnly(_) => {
                return Err(refused(operation, "(send, recv) or InPlace(buffer)", "RecvOnly(recv)"));
            }
        })
    }

    /// The type of what is sent, which is that of what is received.
    pub(crate) fn elements(&self) -> Elements {
        let (Self::OutOfPlace { send: buffer, .. } | Self::InPlace(buffer)) = self;
        buffer.elements
    }
}

/// What flows to a root or from one: see [`ToRoot`](super::forms::ToRoot) and [`FromRoot`](super::forms::FromRoot).
#[derive(Clone, Copy)]
pub(crate) enum Rooted<'a> {
    OutOfPlace {
        send: Buffer<'a>,
        recv: Buffer<'a>,
    },
    InPlace(Buffer<'a>),
    /// The buffer of a rank that is not the root: it sends it to the root, or receives it from there.
    Other(Buffer<'a>),
}

impl<'a> Rooted<'a> {
    /// What flows to a root.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a rank only receives.
    #[inline]
    pub(crate) fn to<T: Element>(operation: &'static str, io: Buffers<'a, T>) -> Result<Self> {
        Ok(match io {
            Buffers::OutOfPlace { send, recv } => Self::OutOfPlace { send: send.into(), recv: recv.into() },
            Buffers::InPlace(buffer) => Self::InPlace(buffer.into()),
            Buffers::SendOnly(send) => Self::Other(send.into()),
            Buffers::RecvOnly(_) => {
                return Err(refused(operation, "(send, recv), InPlace(buffer) or SendOnly(send)", "RecvOnly(recv)"));
            }
        })
    }

    /// What flows from a root.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a rank only sends.
    #[inline]
    pub(crate) fn from<T: Element>(operation: &'static str, io: Buffers<'a, T>) -> Result<Self> {
        Ok(match io {
            Buffers::OutOfPlace { send, recv } => Self::OutOfPlace { send: send.into(), recv: recv.into() },
            Buffers::InPlace(buffer) => Self::InPlace(buffer.into()),
            Buffers::RecvOnly(recv) => Self::Other(recv.into()),
            Buffers::SendOnly(_) => {
                return Err(refused(operation, "(send, recv), InPlace(buffer) or RecvOnly(recv)", "SendOnly(send)"));
            }
        })
    }

    /// The type of what is sent, which is that of what is received.
    pub(crate) fn elements(&self) -> Elements {
        let (Self::OutOfPlace { send: buffer, .. } | Self::InPlace(buffer) | Self::Other(buffer)) = self;
        buffer.elements
    }
}

/// What is sent to each rank, and where what each has sent arrives: see [`AllToAll`](super::forms::AllToAll).
///
/// # Errors
/// [`Error::InvalidArgument`] unless both are there.
#[inline]
pub(crate) fn exchanged<'a, T: Element>(
    operation: &'static str,
    io: Buffers<'a, T>,
) -> Result<(Buffer<'a>, Buffer<'a>)> {
    let got = match io {
        Buffers::OutOfPlace { send, recv } => return Ok((send.into(), recv.into())),
        Buffers::InPlace(_) => "InPlace(buffer)",
        Buffers::SendOnly(_) => "SendOnly(send)",
        Buffers::RecvOnly(_) => "RecvOnly(recv)",
    };
    Err(refused(operation, "(send, recv)", got))
}

#[cold]
fn refused(operation: &'static str, expected: &str, got: &str) -> Error {
    Error::argument(operation, "form", expected, got)
}
