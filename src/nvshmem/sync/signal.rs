//! Signals: words by which PEs tell each other that something has come.

use std::ffi::c_int;

use crate::cuda::{Access, Lend, LentUses, Stream, driver_version};
use crate::error::{Error, Result};
use crate::nvshmem::memory::slice::SymmetricSlice;
use crate::nvshmem::memory::there::There;
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::place::Place;
use crate::nvshmem::state::wait_idle::IdleGuard;
use crate::sys;

/// Since then the driver has streams write to mapped memory of their own, 12.5.
const WRITES: i32 = 12_050;

/// One signal: a `u64` in symmetric memory, at the same place on every PE. Made by [`SymmetricSignals::at`](crate::nvshmem::SymmetricSignals::at), or of an element of
/// a buffer of your own.
///
/// Others change it by [`signal_op`](crate::nvshmem::Context::signal_op) and [`put_signal`](crate::nvshmem::Context::put_signal), by the same on a
/// [stream](crate::nvshmem::OnStream::put_signal), or from kernels; its own PE waits for it and reads it. Signals are compared as
/// numbers below 2^63: the library has some comparisons made by the hardware, which goes round at the end.
///
/// ```
/// # use gpucomm::nvshmem::{Signal, SymmetricBuffer};
/// /// The last of the words is a signal.
/// fn of_mine<'a>(words: &'a SymmetricBuffer<'_, u64>) -> gpucomm::Result<Signal<'a>> {
///     Signal::new(words.symmetric(words.len() - 1..))
/// }
/// ```
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SignalOp, ContextUniqueId};
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # let stream = Stream::new(device)?;
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let signals = ctx.alloc_signals(2)?;
/// let word = signals.at(1).as_symmetric();
/// assert_eq!((word.len(), word.local().to_vec(&stream)?), (1, vec![0]));
/// # drop(signals);
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Signal<'a>(SymmetricSlice<'a, u64>);

impl<'a> Signal<'a> {
    /// The signal that this one element is.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for more or less than one element.
    pub fn new(element: SymmetricSlice<'a, u64>) -> Result<Self> {
        crate::nvshmem::memory::there::one_element("Signal::new", "element", element.len())?;
        Ok(Self(element))
    }

    /// The element that it is.
    pub fn as_symmetric(&self) -> SymmetricSlice<'a, u64> {
        self.0
    }
}

/// What is done to a signal, with its operand.
///
/// ```
/// use gpucomm::nvshmem::SignalOp;
///
/// // Each of several PEs adds one, and who waits for all of them waits until there are as many.
/// let came = SignalOp::Add(1);
/// assert_ne!(came, SignalOp::Set(1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignalOp {
    /// It becomes this.
    Set(u64),
    /// This is added to it, at once with what others add; it goes round at the end.
    Add(u64),
}

impl SignalOp {
    fn raw(self) -> (u64, c_int) {
        match self {
            Self::Set(value) => (value, sys::NVSHMEM_SIGNAL_SET),
            Self::Add(value) => (value, sys::NVSHMEM_SIGNAL_ADD),
        }
    }
}

/// An operation on a signal of a PE, checked.
pub(crate) struct SignalAt<'m> {
    there: There<'m>,
    op: SignalOp,
    near: bool,
}

impl<'m> SignalAt<'m> {
    pub(crate) fn new(
        inner: &Inner,
        operation: &'static str,
        signal: Signal<'m>,
        op: SignalOp,
        pe: Pe,
    ) -> Result<Self> {
        let there = There::one(inner, operation, ("signal", signal.0), pe)?;
        Ok(Self { there, op, near: inner.near[pe.0] })
    }

    /// What a bracket is lent. On this PE it comes after what streams have written there, but not after waits for it, which may wait for this.
    pub(crate) fn add_to<'s>(&'s self, uses: &mut LentUses<'s>) {
        self.there.add_to(uses, Access::Read);
    }

    /// Waits until no stream of this PE writes to it, where it is on this PE.
    pub(crate) fn wait_idle(&self, inner: &Inner, operation: &'static str) -> Result<IdleGuard<'m>> {
        match self.there.own {
            true => inner.wait_idle(operation, [(self.there.region.alloc, Access::Read)]),
            false => inner.wait_idle(operation, []),
        }
    }

    /// Fails where a graph could not have it: without writes of streams, the library copies the value from its stack.
    pub(crate) fn check_part(&self, Place { operation, stream }: Place<'_>) -> Result<()> {
        let copies = self.near && matches!(self.op, SignalOp::Set(_)) && stream.is_some_and(Stream::records);
        if !copies || driver_version()? >= WRITES {
            return Ok(());
        }
        let needs =
            "a driver for CUDA 12.5 or newer, to set a signal in a graph; adding to it works with any".to_owned();
        Err(Error::Unsupported { operation, needs })
    }

    /// The place, the operand and the operation.
    pub(crate) fn raw(&self) -> (*mut u64, u64, c_int) {
        let (value, op) = self.op.raw();
        (self.there.region.ptr().cast(), value, op)
    }

    pub(crate) fn enqueue(&self, stream: sys::cudaStream_t) {
        let (signal, value, op) = self.raw();
        // SAFETY: a word of symmetric memory, a PE, and a stream of its device; it is lent to the bracket that this is in.
        unsafe { sys::nvshmemx_signal_op_on_stream(signal, value, op, self.there.pe, stream) };
    }
}

impl Lend for &SignalAt<'_> {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        self.add_to(uses);
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_the_numbers_of_the_library() {
        assert_eq!(SignalOp::Set(7).raw(), (7, 9));
        assert_eq!(SignalOp::Add(u64::MAX).raw(), (u64::MAX, 10));
    }
}
