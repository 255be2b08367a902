//! Memory that a request may own.

use std::ops::Range;
use std::sync::Arc;

use crate::cuda::{DeviceBuffer, Slice, SliceMut};
use crate::element::Element;
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
/// use gpucomm::world::{Op, Part, World};
/// use gpucomm::{Device, DeviceBuffer, InPlace, Stream};
///
/// # fn main() -> gpucomm::Result<()> {
/// let world = World::new(&Device::all()?[..1])?;
/// let stream = Stream::new(world.devices()[0])?;
/// let whole = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3, 4])?;
/// // The elements in the middle.
/// let back = world.rank(0)?.all_reduce(InPlace(Part::new(whole, 1..3)), Op::Sum).wait()?;
/// assert_eq!(back.whole.to_vec(&stream)?, [1, 2, 3, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Part<B> {
    /// The buffer.
    pub whole: B,
    /// Which of its elements; those beyond its end are none.
    pub range: Range<usize>,
}

impl<B> Part<B> {
    /// The elements of `range` of a buffer.
    pub fn new(whole: B, range: Range<usize>) -> Self {
        Self { whole, range }
    }
}

/// What there is of a range.
fn within(range: &Range<usize>, len: usize) -> Range<usize> {
    let end = range.end.min(len);
    range.start.min(end)..end
}

impl<B: Source> Source for Part<B> {
    type Element = B::Element;

    fn source(&self) -> Slice<'_, B::Element> {
        let whole = self.whole.source();
        let range = within(&self.range, whole.len());
        whole.slice(range)
    }
}

impl<B: Target> Target for Part<B> {
    fn target(&mut self) -> SliceMut<'_, B::Element> {
        let range = within(&self.range, self.whole.source().len());
        let (_, rest) = self.whole.target().into_split(range.start);
        rest.into_split(range.len()).0
    }
}
