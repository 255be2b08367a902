//! Memory that a request may own.

use std::ops::Range;
use std::sync::Arc;

use crate::cuda::{DeviceBuffer, Slice, SliceMut, resolve};
use crate::element::Element;
use crate::error::Result;
use crate::nccl::CommBuffer;

/// Memory that a request owns and reads: a buffer, a [part](Part) of one, or one that is shared.
pub trait Source: Send + 'static {
    /// What it holds.
    type Element: Element;

    /// What is read.
    fn source(&self) -> Slice<'_, Self::Element>;
}

/// Memory that a request owns and writes.
pub trait Target: Source {
    /// What is written.
    fn target(&mut self) -> SliceMut<'_, Self::Element>;
}

impl<T: Element> Source for DeviceBuffer<T> {
    type Element = T;

    fn source(&self) -> Slice<'_, T> {
        self.as_slice()
    }
}

impl<T: Element> Target for DeviceBuffer<T> {
    fn target(&mut self) -> SliceMut<'_, T> {
        self.as_slice_mut()
    }
}

impl<T: Element> Source for CommBuffer<'static, T> {
    type Element = T;

    fn source(&self) -> Slice<'_, T> {
        self.as_slice()
    }
}

impl<T: Element> Target for CommBuffer<'static, T> {
    fn target(&mut self) -> SliceMut<'_, T> {
        self.as_slice_mut()
    }
}

impl<B: Source + Sync> Source for Arc<B> {
    type Element = B::Element;

    fn source(&self) -> Slice<'_, B::Element> {
        (**self).source()
    }
}

/// A part of a buffer, which goes with the whole.
///
/// ```
/// use gpucomm::world::{Part, World};
/// use gpucomm::{Device, DeviceBuffer, InPlace, ReduceOp, Stream};
///
/// # fn main() -> gpucomm::Result<()> {
/// let world = World::new(&Device::all()?[..1])?;
/// let stream = Stream::new(world.devices()[0])?;
/// let whole = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3, 4])?;
/// // The elements in the middle.
/// let middle = Part::new(whole, 1..3)?;
/// assert_eq!((middle.range(), middle.whole().len()), (1..3, 4));
/// let back = world.rank(0)?.all_reduce(InPlace(middle), ReduceOp::Sum).wait()?;
/// assert_eq!(back.into_whole().to_vec(&stream)?, [1, 2, 3, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Part<B> {
    whole: B,
    /// Within the buffer, whose length never changes.
    range: Range<usize>,
}

impl<B: Source> Part<B> {
    /// The elements of `range` of a buffer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) where the range ends before it starts or beyond the
    /// buffer. The buffer is dropped then.
    pub fn new(whole: B, range: Range<usize>) -> Result<Self> {
        let range = resolve("Part::new", &range, whole.source().len())?;
        Ok(Self { whole, range })
    }

    /// The buffer.
    pub fn whole(&self) -> &B {
        &self.whole
    }

    /// Gives the buffer back.
    pub fn into_whole(self) -> B {
        self.whole
    }

    /// Which of its elements these are.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl<B: Source> Source for Part<B> {
    type Element = B::Element;

    fn source(&self) -> Slice<'_, B::Element> {
        self.whole.source().slice(self.range.clone())
    }
}

impl<B: Target> Target for Part<B> {
    fn target(&mut self) -> SliceMut<'_, B::Element> {
        let (_, rest) = self.whole.target().into_split(self.range.start);
        rest.into_split(self.range.len()).0
    }
}
