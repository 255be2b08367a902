//! Views of device memory, to write.

use std::marker::PhantomData;

use super::slice::{AsSlice, Slice};
use crate::cuda::memory::allocated::allocation::Allocation;
use crate::cuda::memory::allocated::region::Region;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::methods::device::device_methods;
use crate::cuda::memory::methods::parts::part_methods;
use crate::cuda::order::turns::{Turns, Waits};
use crate::deadline::default_timeout;
use crate::element::{self, Element};

/// A view of elements in device memory, to write: what `&mut [T]` is to host memory, without access from the host.
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # use gpucomm::cuda::SliceMut;
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// fn count(mut values: SliceMut<'_, i32>, stream: &Stream) -> gpucomm::Result<()> {
///     assert_eq!(values.device(), stream.device());
///     if !values.is_empty() {
///         let numbers: Vec<_> = (0..values.len() as i32).collect();
///         values.copy_from_slice(stream, &numbers)?;
///     }
///     assert_eq!(values.as_slice().len(), values.slice(..).len());
///     Ok(())
/// }
///
/// let mut x = DeviceBuffer::<i32>::zeroed(&stream, 4)?;
/// count(x.slice_mut(1..), &stream)?;
/// assert_eq!(x.to_vec(&stream)?, [0, 0, 1, 2]);
/// # Ok(())
/// # }
/// ```
pub struct SliceMut<'a, T: Element> {
    alloc: &'a Allocation,
    address: Address,
    len: usize,
    _elements: PhantomData<&'a mut [T]>,
}

/// What can be given as a [`SliceMut`]: device memory to write to, whole or in part.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no device memory, with elements of type `{T}`, to write to",
    label = "expected `&mut buffer`, or a part such as `buffer.slice_mut(..8)`",
    note = "results get to the host by `buffer.to_vec(&stream)`, and to a `PinnedBuffer` by `copy_to_pinned`"
)]
pub trait AsSliceMut<'a, T: Element>: Into<SliceMut<'a, T>> {}

/// What examples begin and end with.
macro_rules! begin {
    () => {
        "# use gpucomm::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};
# use std::time::Duration;
# fn main() -> gpucomm::Result<()> {
# let stream = Stream::new(Device::new(0)?)?;
let mut buffer = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4])?;
let mut x = buffer.as_slice_mut();"
    };
}
macro_rules! end {
    () => {
        "# Ok(())
# }"
    };
}

part_methods! {
    view_mut SliceMut over alloc: Allocation, AsSliceMut, Slice, AsSlice,
    (begin!(), end!(), ".to_vec(&stream)?", ".fill(&stream, 7)?")
}
device_methods! { read ['a, T: Element] SliceMut<'a, T>, '_, *mut, (begin!(), end!()) }
device_methods! { write ['a, T: Element] SliceMut<'a, T>, (begin!(), end!()) }

impl<'a, T: Element> SliceMut<'a, T> {
    #[inline]
    fn allocation(&self) -> &'a Allocation {
        self.alloc
    }

    #[inline]
    pub(crate) fn region(&self) -> Region<'_> {
        self.as_slice().region()
    }

    /// The region for as long as the memory is borrowed.
    #[inline]
    pub(crate) fn into_region(self) -> Region<'a> {
        Slice::from(self).region()
    }

    pub(crate) fn accept_as_is(&mut self) {
        if self.region().is_whole() {
            // Launches of graphs do not come in between, unless one takes too long.
            let waits = Waits { operation: "SliceMut::accept", timeout: default_timeout, refusal: || None };
            let _turns = Turns::of(waits, [self.alloc.tracker()]);
            self.alloc.lineage().accept();
        }
    }
}

impl<T: Element> std::fmt::Debug for SliceMut<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SliceMut<{}>({} elements on {})", element::name::<T>(), self.len, self.device())
    }
}
