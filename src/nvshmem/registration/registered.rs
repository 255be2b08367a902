//! Registered memory.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::cuda::{AsSlice, AsSliceMut, DeviceBuffer, Quiet, Slice, SliceMut, drop_deadline, give_up_on};
use crate::deadline::Deadline;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::life::context::Context;
use crate::nvshmem::registration::registrable::Registrable;
use crate::nvshmem::state::abandoned::Object;
use crate::nvshmem::state::code::check;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::wait_state::Awaited;
use crate::sys;

/// Memory of this PE that the library knows, a [`DeviceBuffer`] or a [`PinnedBuffer`](crate::PinnedBuffer), so that it can be the local operand of a put or a get
/// where the other PE is reached by the network. Where all are near, any such memory can.
///
/// It owns the buffer. Where it is dropped while work uses it, it waits for that, 5 seconds at most. What is still in use then, or is in a graph, or cannot be
/// unregistered there, as within [`Context::nonblocking`] or during a capture, stays registered and is freed where all PEs come together next and that is
/// over: in an allocation, in [`Context::reclaim`] or in [`Context::close`]. Another thread drops the buffer there, with its owner. What is in use to the end, or belongs to a context that is lost, is never freed.
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// # let stream = Stream::new(device)?;
/// let mut local = ctx.register(DeviceBuffer::from_slice(&stream, &[1.5f32; 100])?)?;
/// local.as_slice_mut().fill(&stream, 2.5)?;
/// assert_eq!(local.as_slice().to_vec(&stream)?, [2.5; 100]);
/// let back = local.unregister()?;
/// assert_eq!(back.len(), 100);
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropped, it is registered no longer"]
pub struct Registered<'ctx, B: Registrable> {
    buffer: ManuallyDrop<B>,
    inner: Arc<Inner>,
    /// The library is called by who has the context, one call at a time.
    _context: PhantomData<&'ctx Context>,
}

impl Context {
    /// Wraps `nvshmemx_buffer_register`: memory of this PE, of its device or pinned on the host, becomes known to the library. No other PE takes part.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, ContextUniqueId};
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let source = ctx.register(DeviceBuffer::from_slice(&stream, &[1, 2, 3])?)?;
    /// let target = ctx.alloc::<i32>(3)?;
    /// ctx.put(&target, &source, Pe(0))?;
    /// assert_eq!(target.to_vec(&stream)?, [1, 2, 3]);
    /// // The host reads what was got.
    /// let mut pinned = ctx.register(PinnedBuffer::<i32>::zeroed(3)?)?;
    /// ctx.get(&mut pinned, &target, Pe(0))?;
    /// assert_eq!(pinned.as_slice()?, [1, 2, 3]);
    /// # drop((source, target, pinned));
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for memory of another device, and for a part of a buffer that was split; [`Error::Nvshmem`] where the library
    /// refuses it: what the driver may move (managed memory), or what the network's transport cannot take. The buffer is dropped then.
    #[doc(alias = "nvshmemx_buffer_register")]
    pub fn register<B: Registrable>(&self, buffer: B) -> Result<Registered<'_, B>> {
        const OPERATION: &str = "Context::register";
        let inner = self.inner();
        inner.ready(OPERATION)?;
        if let Some(device) = buffer.on().filter(|device| *device != inner.device) {
            let expected = format!("memory of {}, the device of this PE", inner.device);
            return Err(Error::argument(OPERATION, "buffer", expected, format_args!("some of {device}")));
        }
        let (ptr, bytes) = (buffer.whole().ptr(), buffer.whole().bytes());
        if let Some(all) = buffer.part_of() {
            let got = format!("{bytes} bytes of {all}");
            return Err(Error::argument(OPERATION, "buffer", "all of what was allocated together", got));
        }
        if bytes > 0 {
            // SAFETY: the library runs; the memory is there, and stays until it is unregistered.
            let code = inner.on_quiet_device(OPERATION, &Awaited::Nobody, || unsafe {
                sys::nvshmemx_buffer_register(ptr, bytes)
            })?;
            let registered = check("nvshmemx_buffer_register", code);
            if registered.is_err() && !inner.own.has(buffer.whole().key()) {
                // Some of the library's transports may have it.
                // SAFETY: the library runs, and nobody uses what it has registered; it may be asked for what it does not know.
                let _ = inner
                    .on_quiet_device(OPERATION, &Awaited::Nobody, || unsafe { sys::nvshmemx_buffer_unregister(ptr) });
            }
            registered?;
            inner.own.add(buffer.whole().key());
        }
        Ok(Registered { buffer: ManuallyDrop::new(buffer), inner: Arc::clone(inner), _context: PhantomData })
    }
}

impl<B: Registrable> Registered<'_, B> {
    /// Wraps `nvshmemx_buffer_unregister`: waits until nobody uses the memory, and gives it back.
    ///
    /// # Errors
    /// [`Error::Timeout`] where work that uses it is not done in time; [`Error::InvalidUsage`] where a graph uses it, or something else does that was made of
    /// it, and within [`Context::nonblocking`]. The memory is dropped then, and freed later, as what is dropped while it is in use.
    #[doc(alias = "nvshmemx_buffer_unregister")]
    pub fn unregister(self) -> Result<B> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: neither is used again, as `this` is not dropped.
        let (buffer, inner) = unsafe { (ManuallyDrop::take(&mut this.buffer), std::ptr::read(&raw const this.inner)) };
        match end(&inner, &buffer, "Registered::unregister", &inner.deadline()) {
            Ok(()) => Ok(buffer),
            Err(error) => {
                leave(&inner, buffer);
                Err(error)
            }
        }
    }

    /// The buffer, for who has this one alone, and leaves it where it is.
    pub(super) fn buffer_mut(&mut self) -> &mut B {
        &mut self.buffer
    }
}

impl<T: Element> Registered<'_, DeviceBuffer<T>> {
    /// The elements, to be read.
    pub fn as_slice(&self) -> Slice<'_, T> {
        self.buffer.slice(..)
    }

    /// The elements, to be written.
    pub fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        self.buffer.slice_mut(..)
    }
}

/// The memory is registered no longer, where that can be within the deadline.
fn end(inner: &Inner, buffer: &impl Registrable, operation: &'static str, deadline: &Deadline) -> Result<()> {
    let memory = buffer.whole();
    if memory.bytes() == 0 {
        return Ok(());
    }
    inner.ready(operation)?;
    Quiet::check(operation, &[inner.device])?;
    if buffer.is_shared() {
        let reason = "a graph uses the registered memory, or something else that was made of it: drop that before";
        return Err(Error::InvalidUsage { operation, reason: reason.to_owned() });
    }
    let what = "work that uses registered memory";
    inner.poll_local(operation, deadline, what, || memory.used().tracker().is_done())?;
    let ptr = memory.ptr();
    // SAFETY: it is registered, and nobody uses it.
    let code = inner.on_quiet_device_by(operation, &Awaited::Nobody, deadline, || unsafe {
        sys::nvshmemx_buffer_unregister(ptr)
    })?;
    check("nvshmemx_buffer_unregister", code)?;
    inner.own.remove(memory.key());
    Ok(())
}

/// What could not be ended is left to a meeting. It stays as it is where none can do it, and is not freed: the library knows it.
fn leave(inner: &Inner, buffer: impl Registrable) {
    let mut kept = ManuallyDrop::new(Some(buffer));
    inner.left.add(Box::new(move |inner, operation| {
        let buffer = kept.as_ref()?;
        let over = inner.is_closed() || end(inner, buffer, operation, &Deadline::after(Duration::ZERO)).is_ok();
        over.then(|| kept.take().map(|buffer| Box::new(buffer) as Object)).flatten()
    }));
}

impl<B: Registrable> Drop for Registered<'_, B> {
    fn drop(&mut self) {
        // SAFETY: it is taken once, here.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        let deadline = self.inner.deadline_of_work(&drop_deadline());
        if let Err(error) = end(&self.inner, &buffer, "Registered", &deadline) {
            give_up_on(self.inner.device, &error);
            leave(&self.inner, buffer);
        }
    }
}

/// The buffer, to be looked at. What would move the memory elsewhere is not to be had.
impl<B: Registrable> Deref for Registered<'_, B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.buffer
    }
}

impl<'a, T: Element> AsSlice<'a, T> for &'a Registered<'_, DeviceBuffer<T>> {}
impl<'a, T: Element> AsSliceMut<'a, T> for &'a mut Registered<'_, DeviceBuffer<T>> {}

impl<'a, T: Element> From<&'a Registered<'_, DeviceBuffer<T>>> for Slice<'a, T> {
    fn from(registered: &'a Registered<'_, DeviceBuffer<T>>) -> Self {
        registered.as_slice()
    }
}

impl<'a, T: Element> From<&'a mut Registered<'_, DeviceBuffer<T>>> for SliceMut<'a, T> {
    fn from(registered: &'a mut Registered<'_, DeviceBuffer<T>>) -> Self {
        registered.as_slice_mut()
    }
}

impl<B: Registrable + std::fmt::Debug> std::fmt::Debug for Registered<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registered").field(&*self.buffer).finish()
    }
}
