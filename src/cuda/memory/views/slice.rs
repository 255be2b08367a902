//! Views of device memory, to read.

use std::marker::PhantomData;

use crate::cuda::memory::allocated::allocation::Allocation;
use crate::cuda::memory::allocated::region::Region;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::methods::device::device_methods;
use crate::cuda::memory::methods::parts::part_methods;
use crate::element::{self, Element};

/// A view of elements in device memory, to read: what `&[T]` is to host memory, without access from the host.
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # use gpucomm::cuda::Slice;
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// fn sum(values: Slice<'_, f32>, stream: &Stream) -> gpucomm::Result<f32> {
///     assert_eq!(values.device(), stream.device());
///     Ok(if values.is_empty() { 0.0 } else { values.to_vec(stream)?.iter().sum() })
/// }
///
/// let x = DeviceBuffer::from_slice(&stream, &[1.0, 2.0, 3.0])?;
/// let (front, back) = x.as_slice().split_at(1);
/// assert_eq!((sum(front, &stream)?, sum(back, &stream)?, back.len()), (1.0, 5.0, 2));
/// # Ok(())
/// # }
/// ```
pub struct Slice<'a, T: Element> {
    alloc: &'a Allocation,
    address: Address,
    len: usize,
    _elements: PhantomData<&'a [T]>,
}

/// What can be given as a [`Slice`]: device memory to read from, whole or in part.
///
/// ```
/// # use gpucomm::cuda::AsSlice;
/// # use gpucomm::{Device, DeviceBuffer, Result, Stream};
/// fn bytes<'a>(memory: impl AsSlice<'a, f32>) -> usize {
///     4 * memory.into().len()
/// }
/// # fn main() -> Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// let buffer = DeviceBuffer::<f32>::zeroed(&stream, 10)?;
/// assert_eq!((bytes(&buffer), bytes(buffer.slice(2..5))), (40, 12));
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no device memory, with elements of type `{T}`, to read from",
    label = "expected `&buffer`, or a part such as `buffer.slice(..8)`",
    note = "values of the host get to a device by `DeviceBuffer::from_slice(&stream, &values)`, and those of a `PinnedBuffer` by \
            `copy_from_pinned`"
)]
pub trait AsSlice<'a, T: Element>: Into<Slice<'a, T>> {}

part_methods! { view Slice over alloc: Allocation, AsSlice }

device_methods! {
    read ['a, T: Element] Slice<'a, T>, 'a, *const, (
        "# use gpucomm::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};
# use std::time::Duration;
# fn main() -> gpucomm::Result<()> {
# let stream = Stream::new(Device::new(0)?)?;
let buffer = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4])?;
let x = buffer.as_slice();",
        "# Ok(())
# }"
    )
}

impl<'a, T: Element> Slice<'a, T> {
    #[inline]
    fn allocation(&self) -> &'a Allocation {
        self.alloc
    }

    #[inline]
    pub(crate) fn region(&self) -> Region<'a> {
        Region { alloc: self.alloc, address: self.address, bytes: self.len * size_of::<T>() }
    }
}

impl<T: Element> std::fmt::Debug for Slice<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slice<{}>({} elements on {})", element::name::<T>(), self.len, self.device())
    }
}
