//! Which buffers a request reads and writes: the forms of [`nccl`](crate::nccl#operations), owned.

use super::memory::{Source, Target};
use crate::element::Element;
use crate::nccl::{AllRanks, Buffers, FromRoot, InPlace, RecvOnly, SendOnly, ToRoot, sealed};

/// Buffers that a request owns: `(send, recv)`, `InPlace(buffer)`, `SendOnly(send)` or `RecvOnly(recv)`, as far as the role `R` of
/// the operation allows. Sealed; implement [`Source`] and [`Target`] for memory of your own.
///
/// The roles are [`AllRanks`], [`ToRoot`], [`FromRoot`] and [`AllToAll`](crate::nccl::AllToAll). For requests to all ranks at once, `ToRoot` also
/// takes `(send, Option<recv>)`, and `FromRoot` takes `(Option<send>, recv)`: only the root has both buffers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what is sent and where the result goes",
    label = "expected `(send, recv)`, or another form that `{R}` takes, of buffers that the request may own",
    note = "one buffer that is both read and written is given as `InPlace(buffer)`; `AllToAll` does not take it",
    note = "on ranks that are not the root, `ToRoot` takes `SendOnly(send)`, and `FromRoot` takes `RecvOnly(recv)`"
)]
pub trait OwnedBuffers<R>: sealed::Sealed + Send + 'static {
    /// What they hold.
    type Element: Element;
    /// What comes back: the buffer, or both.
    type Back: Send + 'static;

    /// As the communicator takes them.
    fn buffers(&mut self) -> Buffers<'_, Self::Element>;

    /// Gives them back.
    fn into_back(self) -> Self::Back;
}

impl<S: Source, V: Target<Element = S::Element>, R: sealed::Role> OwnedBuffers<R> for (S, V) {
    type Element = S::Element;
    type Back = Self;

    fn buffers(&mut self) -> Buffers<'_, S::Element> {
        Buffers::OutOfPlace { send: self.0.source(), recv: self.1.target() }
    }

    fn into_back(self) -> Self {
        self
    }
}

/// One for each role, so that the compiler's message about another one is that of the trait.
macro_rules! in_place {
    ($($role:ident)*) => {$(
        impl<B: Target> OwnedBuffers<$role> for InPlace<B> {
            type Element = B::Element;
            type Back = B;

            fn buffers(&mut self) -> Buffers<'_, B::Element> {
                Buffers::InPlace(self.0.target())
            }

            fn into_back(self) -> B {
                self.0
            }
        }
    )*};
}

in_place!(AllRanks ToRoot FromRoot);

impl<S: Source> OwnedBuffers<ToRoot> for SendOnly<S> {
    type Element = S::Element;
    type Back = S;

    fn buffers(&mut self) -> Buffers<'_, S::Element> {
        Buffers::SendOnly(self.0.source())
    }

    fn into_back(self) -> S {
        self.0
    }
}

impl<V: Target> OwnedBuffers<FromRoot> for RecvOnly<V> {
    type Element = V::Element;
    type Back = V;

    fn buffers(&mut self) -> Buffers<'_, V::Element> {
        Buffers::RecvOnly(self.0.target())
    }

    fn into_back(self) -> V {
        self.0
    }
}

/// What each rank sends, and where all goes at the root, which alone has a second buffer: for who asks all ranks at once.
impl<S: Source, V: Target<Element = S::Element>> OwnedBuffers<ToRoot> for (S, Option<V>) {
    type Element = S::Element;
    type Back = Self;

    fn buffers(&mut self) -> Buffers<'_, S::Element> {
        match &mut self.1 {
            Some(recv) => Buffers::OutOfPlace { send: self.0.source(), recv: recv.target() },
            None => Buffers::SendOnly(self.0.source()),
        }
    }

    fn into_back(self) -> Self {
        self
    }
}

/// What the root sends, which alone has a first buffer, and where each rank's part goes: for who asks all ranks at once.
impl<S: Source, V: Target<Element = S::Element>> OwnedBuffers<FromRoot> for (Option<S>, V) {
    type Element = S::Element;
    type Back = Self;

    fn buffers(&mut self) -> Buffers<'_, S::Element> {
        match &self.0 {
            Some(send) => Buffers::OutOfPlace { send: send.source(), recv: self.1.target() },
            None => Buffers::RecvOnly(self.1.target()),
        }
    }

    fn into_back(self) -> Self {
        self
    }
}
