//! What one PE does with the memory of another.

use gpucomm::nvshmem::{Comparison, Pe, SignalOp, Strides, SymmetricBuffer, SymmetricSignals};
use gpucomm::{DeviceBuffer, PinnedBuffer, Result, Stream};

use super::step::{Send, Transfer, Way};
use crate::support::Here;
use crate::support::random::Bits;

/// Makes a transfer of this PE.
pub fn transfer<T: Bits>(
    here: &Here<'_>,
    target: &mut SymmetricBuffer<'_, T>,
    source: &SymmetricBuffer<'_, T>,
    one: &Transfer,
    stream: &Stream,
) -> Result<()> {
    if one.puts { put(here, target, source, one, stream) } else { get(here, target, source, one, stream) }
}

fn put<T: Bits>(
    here: &Here<'_>,
    target: &SymmetricBuffer<'_, T>,
    source: &SymmetricBuffer<'_, T>,
    one: &Transfer,
    stream: &Stream,
) -> Result<()> {
    let (ctx, other) = (here.ctx, Pe(one.other));
    let (dest, source) = (target.symmetric(one.written()), source.symmetric(one.read()).local());
    let strides = Strides { dest: one.strides.0, source: one.strides.1 };
    match one.way {
        Way::Host => ctx.put(dest, source, other),
        Way::Stream => ctx.on(stream).put(dest, source, other),
        #[cfg(nvshmem_ge_3_8)]
        Way::Batch => ctx.nonblocking(|scope| scope.batched(|scope| scope.put(dest, source, other))),
        #[cfg(not(nvshmem_ge_3_8))]
        Way::Batch => ctx.nonblocking(|scope| scope.put(dest, source, other)),
        Way::Scope => ctx.nonblocking(|scope| scope.put(dest, source, other)),
        Way::StreamScope => ctx.on(stream).nonblocking(|scope| scope.put(dest, source, other)),
        Way::View => dest.peer(other)?.expect("near").copy_from(stream, source),
        Way::Strided => ctx.iput(dest, source, strides, one.count, other),
        Way::StridedOnStream => ctx.on(stream).iput(dest, source, strides, one.count, other),
        Way::Value => ctx.put_value(dest, source.to_vec(stream)?[0], other),
        Way::ValueOnStream => ctx.on(stream).put_value(dest, source.to_vec(stream)?[0], other),
        Way::Pinned => {
            let pinned = PinnedBuffer::from_slice(&source.to_vec(stream)?)?;
            ctx.on(stream).put(dest, &pinned, other)
        }
        Way::Registered => {
            let registered = ctx.register(DeviceBuffer::from_slice(stream, &source.to_vec(stream)?)?)?;
            ctx.put(dest, registered.as_slice(), other)
        }
    }
}

fn get<T: Bits>(
    here: &Here<'_>,
    target: &mut SymmetricBuffer<'_, T>,
    source: &SymmetricBuffer<'_, T>,
    one: &Transfer,
    stream: &Stream,
) -> Result<()> {
    let (ctx, other) = (here.ctx, Pe(one.other));
    let (mut dest, source) = (target.symmetric_mut(one.written()).into_local(), source.symmetric(one.read()));
    let strides = Strides { dest: one.strides.0, source: one.strides.1 };
    let poison = vec![T::poison(); one.count];
    match one.way {
        Way::Host => ctx.get(dest, source, other),
        Way::Stream => ctx.on(stream).get(dest, source, other),
        #[cfg(nvshmem_ge_3_8)]
        Way::Batch => ctx.nonblocking(|scope| scope.batched(|scope| scope.get(dest, source, other))),
        #[cfg(not(nvshmem_ge_3_8))]
        Way::Batch => ctx.nonblocking(|scope| scope.get(dest, source, other)),
        Way::Scope => ctx.nonblocking(|scope| scope.get(dest, source, other)),
        Way::StreamScope => ctx.on(stream).nonblocking(|scope| scope.get(dest, source, other)),
        Way::View => source.peer(other)?.expect("near").copy_to(stream, dest),
        Way::Strided => ctx.iget(dest, source, strides, one.count, other),
        Way::StridedOnStream => ctx.on(stream).iget(dest, source, strides, one.count, other),
        Way::Value | Way::ValueOnStream => dest.copy_from_slice(stream, &[ctx.get_value(source, other)?]),
        Way::Pinned => {
            let mut pinned = PinnedBuffer::from_slice(&poison)?;
            ctx.get(&mut pinned, source, other)?;
            dest.copy_from_slice(stream, pinned.as_slice()?)
        }
        Way::Registered => {
            let mut registered = ctx.register(DeviceBuffer::from_slice(stream, &poison)?)?;
            ctx.on(stream).get(registered.as_slice_mut(), source, other)?;
            dest.copy_from(stream, registered.as_slice())
        }
    }
}

/// What tells that something has come.
pub struct Tell<'a, 'c> {
    pub signals: &'a SymmetricSignals<'c>,
    pub flag: &'a SymmetricBuffer<'c, u64>,
    /// What the signal holds then, and what the flag.
    pub sent: u64,
    pub flagged: u64,
    pub add: bool,
}

/// Sends `len` elements, from one place to the other, and waits for those of the one before.
#[allow(clippy::too_many_arguments, reason = "a step has as many parts")]
pub fn ring<T: Bits>(
    here: &Here<'_>,
    target: &mut SymmetricBuffer<'_, T>,
    source: &SymmetricBuffer<'_, T>,
    (len, at): (usize, (usize, usize)),
    to: Pe,
    send: Send,
    tell: &Tell<'_, '_>,
    stream: &Stream,
) -> Result<()> {
    let (ctx, signal) = (here.ctx, tell.signals.at(0));
    let op = if tell.add { SignalOp::Add(1) } else { SignalOp::Set(tell.sent) };
    let (dest, from) = (target.symmetric(at.0..at.0 + len), source.symmetric(at.1..at.1 + len).local());
    match send {
        Send::Stream => ctx.on(stream).put_signal(dest, from, signal, op, to)?,
        Send::StreamScope => {
            ctx.on(stream).nonblocking(|scope| scope.put_signal(dest, from, signal, op, to))?;
        }
        Send::Host => ctx.put_signal(dest, from, signal, op, to)?,
        Send::HostScope => ctx.nonblocking(|scope| scope.put_signal(dest, from, signal, op, to))?,
        Send::PutThenSignal => {
            ctx.put(dest, from, to)?;
            ctx.quiet()?;
            ctx.signal_op(signal, op, to)?;
        }
        Send::Value => {
            ctx.on(stream).put(dest, from, to)?;
            ctx.on(stream).quiet()?;
            ctx.on(stream).put_value(tell.flag, tell.flagged, to)?;
        }
    }
    let mut arrives = target.as_slice_mut();
    if send == Send::Value {
        return ctx.on(stream).wait_until(tell.flag, Comparison::Ge, tell.flagged, &mut arrives);
    }
    ctx.on(stream).signal_wait_until(signal, Comparison::Ge, tell.sent, &mut arrives)
}
