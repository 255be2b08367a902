//! Device buffers with guard elements around the part that an operation may touch.

use std::sync::atomic::{AtomicUsize, Ordering};

use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::{DeviceBuffer, Result, Stream};

use super::Number;

/// Odd numbers of elements, so that what operations get is not aligned to anything but its element.
const FRONT: usize = 5;
const BACK: usize = 7;

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Elements in memory of others, to be used by `stream` first.
pub fn foreign<T: Number>(stream: &Stream, len: usize) -> Result<DeviceBuffer<T>> {
    let memory = DeviceBuffer::<T>::uninit(stream, len)?;
    let (device, ptr) = (memory.device(), memory.as_raw());
    // SAFETY: the memory goes with its owner, which nobody else has, and is there for `stream`.
    unsafe { DeviceBuffer::from_raw_parts(device, ptr, len, memory) }
}

/// `len` elements within a larger buffer of poison. Every other one lies in memory that the crate takes for that of others.
#[derive(Debug)]
pub struct Guarded<T: Number> {
    buffer: DeviceBuffer<T>,
    len: usize,
}

impl<T: Number> Guarded<T> {
    /// All poison.
    pub fn poisoned(stream: &Stream, len: usize) -> Result<Self> {
        Self::holding(stream, &T::poisoned(len))
    }

    /// `values` between guards.
    pub fn holding(stream: &Stream, values: &[T]) -> Result<Self> {
        let mut all = T::poisoned(FRONT + values.len() + BACK);
        all[FRONT..FRONT + values.len()].copy_from_slice(values);
        let buffer = if COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            DeviceBuffer::from_slice(stream, &all)?
        } else {
            let mut buffer = foreign(stream, all.len())?;
            buffer.copy_from_slice(stream, &all)?;
            buffer
        };
        Ok(Self { buffer, len: values.len() })
    }

    pub fn inner(&self) -> Slice<'_, T> {
        self.buffer.slice(FRONT..FRONT + self.len)
    }

    pub fn inner_mut(&mut self) -> SliceMut<'_, T> {
        self.buffer.slice_mut(FRONT..FRONT + self.len)
    }

    /// Takes what is there, also where a failed operation has left it.
    pub fn accept(&mut self) {
        self.buffer.accept();
    }

    /// The values; panics if a guard was overwritten.
    pub fn read(&self, stream: &Stream) -> Result<Vec<T>> {
        let mut all = self.buffer.to_vec(stream)?;
        let poison = T::poison();
        let intact = all[..FRONT].iter().chain(&all[FRONT + self.len..]).all(|guard| *guard == poison);
        assert!(intact, "elements around an output of {} were overwritten: {:?}", self.len, edges(&all));
        all.truncate(FRONT + self.len);
        all.drain(..FRONT);
        Ok(all)
    }
}

fn edges<T: Copy>(all: &[T]) -> (Vec<T>, Vec<T>) {
    (all[..FRONT].to_vec(), all[all.len() - BACK..].to_vec())
}
