//! Buffers as tensors for others.

use dlpark::ffi::DLDevice;
use dlpark::metadata::Dynamic;
use dlpark::{Managed, ManagedTensorBase};

use super::typed::Typed;
use crate::cuda::memory::buffers::buffer::DeviceBuffer;
use crate::cuda::order::in_flight::ENTRY;
use crate::cuda::order::ranged::Span;
use crate::cuda::order::stream::Stream;
use crate::cuda::order::uses::Access;
use crate::error::{Error, Result};

/// What a tensor keeps alive, and the stream on which others use it.
struct Exported<T: Typed> {
    buffer: DeviceBuffer<T>,
    stream: Stream,
}

impl<T: Typed> Drop for Exported<T> {
    fn drop(&mut self) {
        // What others have enqueued there until now may use it: counted, so that a mark behind it is a new one.
        self.stream.count(ENTRY);
        self.buffer.allocation().note(Span::ALL, Access::Write, &self.stream);
    }
}

impl<T: Typed> DeviceBuffer<T> {
    /// Makes a `DLManagedTensor` or a `DLManagedTensorVersioned`: the buffer as a tensor of this shape, row by row, for others, to whom it belongs from now on.
    ///
    /// They use it on `stream`, or in an order with it: that stream waits for all uses of the buffer here, and when the deleter is called, which any thread may
    /// do, the memory is freed behind all that was enqueued there until then. Nothing waits on the host. From now on others may enqueue there: as after [`Stream::as_raw`], fewer
    /// operations of this crate may be on their way on `stream`, for as long as it lives.
    ///
    /// Whether the work that wrote it has failed they do not learn: wait for a stream that comes after it first, where that may be
    /// ([failed work](crate::cuda#failed-work)).
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::<f32>::zeroed(&stream, 12)?;
    /// let tensor: dlpark::versioned::Dlpack = x.into_dlpack(&stream, &[3, 4])?;
    /// // What a capsule of Python is made of.
    /// let raw: *mut dlpark::ffi::DLManagedTensorVersioned = tensor.into_raw();
    /// # // SAFETY: it belongs to us.
    /// # drop(unsafe { dlpark::versioned::Dlpack::from_raw(raw) });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a shape of another number of elements, and a stream of another device;
    /// [`InvalidUsage`](Error::InvalidUsage) within a host function, and while the stream is being captured; what CUDA says. The buffer is dropped then.
    pub fn into_dlpack<M: ManagedTensorBase>(self, stream: &Stream, shape: &[usize]) -> Result<Managed<M>> {
        const OPERATION: &str = "DeviceBuffer::into_dlpack";
        let elements = shape.iter().try_fold(1usize, |all, len| all.checked_mul(*len));
        if elements != Some(self.len()) && !(self.is_empty() && shape.contains(&0)) {
            let expected = format!("one of {} elements", self.len());
            return Err(Error::argument(OPERATION, "shape", expected, format_args!("{shape:?}")));
        }
        if stream.device() != self.device() {
            return Err(Error::argument(
                OPERATION,
                "stream",
                format_args!("one of {}", self.device()),
                stream.device(),
            ));
        }
        stream.in_flight().expose();
        stream.ready(OPERATION)?;
        self.allocation().order(Span::ALL, Access::Write, stream)?;
        self.allocation().note(Span::ALL, Access::Write, stream);
        let wrong = |error| Error::argument(OPERATION, "shape", "one that DLPack has", error);
        let prepared = Dynamic::compact(shape).prepare_as::<M>().map_err(wrong)?;
        let (data, device) = (self.as_raw(), DLDevice::cuda(self.device().ordinal()));
        let mut tensor = prepared.initialize(Box::new(Exported { buffer: self, stream: stream.clone() }));
        tensor.set_data(data).set_device(device).set_dtype(T::TYPE);
        // SAFETY: so many elements lie there until the context is dropped, which the deleter does; shape and strides lie in the tensor itself, and the flags
        // say that it may be written to, and is no copy.
        Ok(unsafe { tensor.finish() })
    }
}
