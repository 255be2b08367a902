//! Which buffers a request reads and writes: the forms of [`nccl`](crate::nccl#operations), owned.

use super::memory::{Source, Target};
use crate::cuda::{Slice, SliceMut};
use crate::element::Element;
use crate::nccl::{FromRoot, InPlace, RecvOnly, SendOnly, SendRecv, ToRoot};

/// Buffers of a request: `InPlace(buffer)`, `(send, recv)`, `SendOnly(send)` or `RecvOnly(recv)`.
pub trait Form: Send + 'static {
    /// What they hold.
    type Element: Element;
    /// What comes back: the buffer, or both.
    type Buffers: Send + 'static;

    /// Gives them back.
    fn into_buffers(self) -> Self::Buffers;
}

/// What is sent to all ranks, and where the result goes: `InPlace(buffer)` or `(send, recv)`.
pub trait OfAll: Form {
    /// As the communicator takes it.
    fn of_all(&mut self) -> SendRecv<'_, Self::Element>;
}

/// What is sent to a root: `InPlace(buffer)`, `(send, recv)`, or, elsewhere than at the root, `SendOnly(send)`.
pub trait OfRoot: Form {
    /// As the communicator takes it.
    fn of_root(&mut self) -> ToRoot<'_, Self::Element>;
}

/// What comes from a root: `InPlace(buffer)`, `(send, recv)`, or, elsewhere than at the root, `RecvOnly(recv)`.
pub trait OfOne: Form {
    /// As the communicator takes it.
    fn of_one(&mut self) -> FromRoot<'_, Self::Element>;
}

impl<B: Target> Form for InPlace<B> {
    type Element = B::Element;
    type Buffers = B;

    fn into_buffers(self) -> B {
        self.0
    }
}

impl<S: Source, R: Target<Element = S::Element>> Form for (S, R) {
    type Element = S::Element;
    type Buffers = Self;

    fn into_buffers(self) -> Self {
        self
    }
}

impl<S: Source> Form for SendOnly<S> {
    type Element = S::Element;
    type Buffers = S;

    fn into_buffers(self) -> S {
        self.0
    }
}

impl<R: Target> Form for RecvOnly<R> {
    type Element = R::Element;
    type Buffers = R;

    fn into_buffers(self) -> R {
        self.0
    }
}

macro_rules! both {
    ($($of:ident $method:ident $given:ident)*) => {$(
        impl<B: Target> $of for InPlace<B> {
            fn $method(&mut self) -> $given<'_, B::Element> {
                $given::InPlace(self.0.target())
            }
        }

        impl<S: Source, R: Target<Element = S::Element>> $of for (S, R) {
            fn $method(&mut self) -> $given<'_, S::Element> {
                $given::OutOfPlace { send: self.0.source(), recv: self.1.target() }
            }
        }
    )*};
}

both!(OfAll of_all SendRecv OfRoot of_root ToRoot OfOne of_one FromRoot);

impl<S: Source> OfRoot for SendOnly<S> {
    fn of_root(&mut self) -> ToRoot<'_, S::Element> {
        ToRoot::SendOnly(self.0.source())
    }
}

impl<R: Target> OfOne for RecvOnly<R> {
    fn of_one(&mut self) -> FromRoot<'_, R::Element> {
        FromRoot::RecvOnly(self.0.target())
    }
}

/// What each rank sends, and where all goes at the root, which alone has a second buffer: for who asks all ranks at once.
impl<S: Source, R: Target<Element = S::Element>> Form for (S, Option<R>) {
    type Element = S::Element;
    type Buffers = Self;

    fn into_buffers(self) -> Self {
        self
    }
}

impl<S: Source, R: Target<Element = S::Element>> OfRoot for (S, Option<R>) {
    fn of_root(&mut self) -> ToRoot<'_, S::Element> {
        match &mut self.1 {
            Some(recv) => ToRoot::OutOfPlace { send: self.0.source(), recv: recv.target() },
            None => ToRoot::SendOnly(self.0.source()),
        }
    }
}

/// What the root sends, which alone has a first buffer, and where each rank's part goes: for who asks all ranks at once.
impl<S: Source, R: Target<Element = S::Element>> Form for (Option<S>, R) {
    type Element = S::Element;
    type Buffers = Self;

    fn into_buffers(self) -> Self {
        self
    }
}

impl<S: Source, R: Target<Element = S::Element>> OfOne for (Option<S>, R) {
    fn of_one(&mut self) -> FromRoot<'_, S::Element> {
        match &self.0 {
            Some(send) => FromRoot::OutOfPlace { send: send.source(), recv: self.1.target() },
            None => FromRoot::RecvOnly(self.1.target()),
        }
    }
}

/// What is sent to each rank, and where what comes from each goes: `(send, recv)`.
pub trait Exchanged: Send + 'static {
    /// What they hold.
    type Element: Element;

    /// As the communicator takes them.
    fn both(&mut self) -> (Slice<'_, Self::Element>, SliceMut<'_, Self::Element>);
}

impl<S: Source, R: Target<Element = S::Element>> Exchanged for (S, R) {
    type Element = S::Element;

    fn both(&mut self) -> (Slice<'_, S::Element>, SliceMut<'_, S::Element>) {
        (self.0.source(), self.1.target())
    }
}
