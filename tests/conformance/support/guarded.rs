//! Device buffers with guard elements around the part that an operation may touch.

use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::{DeviceBuffer, Result, Stream};

use super::Number;

/// Odd numbers of elements, so that what operations get is not aligned to anything but its element.
const FRONT: usize = 5;
const BACK: usize = 7;

/// `len` elements within a larger buffer of poison.
#[derive(Debug)]
pub struct Guarded<T: Number> {
    buffer: DeviceBuffer<T>,
    len: usize,
}

impl<T: Number> Guarded<T> {
    /// All poison.
    pub fn poisoned(stream: &Stream, len: usize) -> Result<Self> {
        Self::holding(stream, &vec![T::poison(); len])
    }

    /// `values` between guards.
    pub fn holding(stream: &Stream, values: &[T]) -> Result<Self> {
        let mut all = vec![T::poison(); FRONT + values.len() + BACK];
        all[FRONT..FRONT + values.len()].copy_from_slice(values);
        Ok(Self { buffer: DeviceBuffer::from_slice(stream, &all)?, len: values.len() })
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
