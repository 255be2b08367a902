//! Which buffers a collective reads and writes.
//!
//! In place is a form of its own, so that one region is never borrowed both shared and mutably, and regions that overlap
//! in part cannot be written down.

use crate::cuda::{AsSlice, AsSliceMut, Slice, SliceMut};
use crate::element::Element;

pub(crate) mod sealed {
    /// A form, or a value of one.
    pub trait Sealed {}
    pub trait Role {}
}

/// One buffer that is both read and written.
#[derive(Debug, Clone, Copy)]
pub struct InPlace<B>(pub B);

/// The buffer of a rank that only sends: a rank other than the root of a reduce or gather.
#[derive(Debug, Clone, Copy)]
pub struct SendOnly<B>(pub B);

/// The buffer of a rank that only receives: a rank other than the root of a broadcast or scatter.
#[derive(Debug, Clone, Copy)]
pub struct RecvOnly<B>(pub B);

/// The role of operations in which every rank sends and receives, such as `all_reduce`: `(&send, &mut recv)` or
/// [`InPlace`]`(&mut buffer)`.
#[derive(Debug)]
pub enum AllRanks {}

/// The role of operations that send to a root, such as `reduce`: `(&send, &mut recv)` or [`InPlace`]`(&mut buffer)`, and on
/// ranks that are not the root [`SendOnly`]`(&send)`.
#[derive(Debug)]
pub enum ToRoot {}

/// The role of operations that send from a root, such as `broadcast`: `(&send, &mut recv)` or [`InPlace`]`(&mut buffer)`, and
/// on ranks that are not the root [`RecvOnly`]`(&mut recv)`.
#[derive(Debug)]
pub enum FromRoot {}

/// The role of `all_to_all` and `all_to_all_v`, which NCCL does not do in place: `(&send, &mut recv)`.
#[derive(Debug)]
pub enum AllToAll {}

impl sealed::Role for AllRanks {}
impl sealed::Role for ToRoot {}
impl sealed::Role for FromRoot {}
impl sealed::Role for AllToAll {}

/// The buffers of an operation, as a value. Each form converts into it where an operation takes it: see [`IntoBuffers`].
///
/// Name the type where a program chooses a form. A form that the operation does not take is an
/// [`InvalidArgument`](crate::Error::InvalidArgument) then:
///
/// ```
/// use gpucomm::nccl::Buffers;
/// use gpucomm::{Clique, Device, DeviceBuffer, Error, ReduceOp, Stream};
///
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// let (losses, mut sums) = (DeviceBuffer::from_slice(&stream, &[1f32; 2])?, DeviceBuffer::zeroed(&stream, 2)?);
/// let buffers = match comm.rank() {
///     0 => Buffers::OutOfPlace { send: losses.as_slice(), recv: sums.as_slice_mut() },
///     _ => Buffers::SendOnly(losses.as_slice()),
/// };
/// comm.reduce(buffers, ReduceOp::Sum, 0, &stream)?;
///
/// let sent = comm.all_reduce(Buffers::SendOnly(losses.as_slice()), ReduceOp::Sum, &stream);
/// assert!(matches!(sent, Err(Error::InvalidArgument { .. })));
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum Buffers<'a, T: Element> {
    /// Two buffers: `(&send, &mut recv)`. Where a root alone sends or receives, the other ranks do not use `send` or `recv`.
    OutOfPlace {
        /// What this rank sends.
        send: Slice<'a, T>,
        /// Where it receives.
        recv: SliceMut<'a, T>,
    },
    /// One buffer that is read and written: [`InPlace`]`(&mut buffer)`.
    InPlace(SliceMut<'a, T>),
    /// This rank receives nothing: [`SendOnly`]`(&send)`.
    SendOnly(Slice<'a, T>),
    /// This rank sends nothing: [`RecvOnly`]`(&mut recv)`.
    RecvOnly(SliceMut<'a, T>),
}

/// What an operation takes as its buffers: `(&send, &mut recv)`, [`InPlace`]`(&mut buffer)`, [`SendOnly`]`(&send)` or
/// [`RecvOnly`]`(&mut recv)`, as far as its role `R` allows, and [`Buffers`]. Sealed.
///
/// The roles are [`AllRanks`], [`ToRoot`], [`FromRoot`] and [`AllToAll`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what is sent and where the result goes",
    label = "expected `(&send, &mut recv)`, or another form that `{R}` takes",
    note = "one buffer that is both read and written is given as `InPlace(&mut buffer)`; `AllToAll` does not take it",
    note = "on ranks that are not the root, `ToRoot` takes `SendOnly(&send)`, and `FromRoot` takes `RecvOnly(&mut recv)`"
)]
pub trait IntoBuffers<'a, T: Element, R>: sealed::Sealed {
    #[doc(hidden)]
    fn into_buffers(self) -> Buffers<'a, T>;
}

impl<T: Element> sealed::Sealed for Buffers<'_, T> {}
impl<S, V> sealed::Sealed for (S, V) {}
impl<B> sealed::Sealed for InPlace<B> {}
impl<S> sealed::Sealed for SendOnly<S> {}
impl<V> sealed::Sealed for RecvOnly<V> {}

impl<'a, T: Element, R: sealed::Role> IntoBuffers<'a, T, R> for Buffers<'a, T> {
    #[inline]
    fn into_buffers(self) -> Self {
        self
    }
}

impl<'a, T: Element, S: AsSlice<'a, T>, V: AsSliceMut<'a, T>, R: sealed::Role> IntoBuffers<'a, T, R> for (S, V) {
    #[inline]
    fn into_buffers(self) -> Buffers<'a, T> {
        Buffers::OutOfPlace { send: self.0.into(), recv: self.1.into() }
    }
}

/// One for each role, so that the compiler's message about another one is that of the trait.
macro_rules! in_place {
    ($($role:ident)*) => {$(
        impl<'a, T: Element, B: AsSliceMut<'a, T>> IntoBuffers<'a, T, $role> for InPlace<B> {
            #[inline]
            fn into_buffers(self) -> Buffers<'a, T> {
                Buffers::InPlace(self.0.into())
            }
        }
    )*};
}

in_place!(AllRanks ToRoot FromRoot);

impl<'a, T: Element, S: AsSlice<'a, T>> IntoBuffers<'a, T, ToRoot> for SendOnly<S> {
    #[inline]
    fn into_buffers(self) -> Buffers<'a, T> {
        Buffers::SendOnly(self.0.into())
    }
}

impl<'a, T: Element, V: AsSliceMut<'a, T>> IntoBuffers<'a, T, FromRoot> for RecvOnly<V> {
    #[inline]
    fn into_buffers(self) -> Buffers<'a, T> {
        Buffers::RecvOnly(self.0.into())
    }
}
