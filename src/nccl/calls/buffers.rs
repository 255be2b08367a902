//! The buffers of a call without the type of their elements, so that each operation is compiled once and not for each type.

use super::io::{FromRoot, SendRecv, ToRoot};
use crate::cuda::{Region, Slice, SliceMut};
use crate::element::{self, Element, ElementKind};
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

/// What every rank sends and receives: see [`SendRecv`].
#[derive(Clone, Copy)]
pub(crate) enum Everywhere<'a> {
    OutOfPlace { send: Buffer<'a>, recv: Buffer<'a> },
    InPlace(Buffer<'a>),
}

impl<'a, T: Element> From<SendRecv<'a, T>> for Everywhere<'a> {
    #[inline]
    fn from(io: SendRecv<'a, T>) -> Self {
        match io {
            SendRecv::OutOfPlace { send, recv } => Self::OutOfPlace { send: send.into(), recv: recv.into() },
            SendRecv::InPlace(buffer) => Self::InPlace(buffer.into()),
        }
    }
}

impl Everywhere<'_> {
    /// The type of what is sent, which is that of what is received.
    pub(crate) fn elements(&self) -> Elements {
        let (Self::OutOfPlace { send: buffer, .. } | Self::InPlace(buffer)) = self;
        buffer.elements
    }
}

/// What flows to a root or from one: see [`ToRoot`] and [`FromRoot`].
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

impl<'a, T: Element> From<ToRoot<'a, T>> for Rooted<'a> {
    #[inline]
    fn from(io: ToRoot<'a, T>) -> Self {
        match io {
            ToRoot::OutOfPlace { send, recv } => Self::OutOfPlace { send: send.into(), recv: recv.into() },
            ToRoot::InPlace(buffer) => Self::InPlace(buffer.into()),
            ToRoot::SendOnly(send) => Self::Other(send.into()),
        }
    }
}

impl<'a, T: Element> From<FromRoot<'a, T>> for Rooted<'a> {
    #[inline]
    fn from(io: FromRoot<'a, T>) -> Self {
        match io {
            FromRoot::OutOfPlace { send, recv } => Self::OutOfPlace { send: send.into(), recv: recv.into() },
            FromRoot::InPlace(buffer) => Self::InPlace(buffer.into()),
            FromRoot::RecvOnly(recv) => Self::Other(recv.into()),
        }
    }
}

impl Rooted<'_> {
    /// The type of what is sent, which is that of what is received.
    pub(crate) fn elements(&self) -> Elements {
        let (Self::OutOfPlace { send: buffer, .. } | Self::InPlace(buffer) | Self::Other(buffer)) = self;
        buffer.elements
    }
}
