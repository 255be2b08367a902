//! Copies between devices and pinned memory.

use super::copy::same_length;
use super::host::slice::AsPinned;
use super::host::slice_mut::AsPinnedMut;
use super::views::slice::Slice;
use super::views::slice_mut::SliceMut;
use super::way::{Way, enqueue, reached};
use crate::cuda::order::in_flight::ENTRY;
use crate::cuda::order::recording::{note, order, overwritten};
use crate::cuda::order::stream::Stream;
use crate::cuda::order::turns::Waits;
use crate::cuda::order::uses::Access;
use crate::cuda::works::carry::Source;
use crate::deadline::default_timeout;
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::shared_deadline::SharedDeadline;

impl<T: Element> Slice<'_, T> {
    /// Wraps `cudaMemcpyAsync`: copies to pinned memory, a buffer or a part of one, without waiting. Reading `target` waits.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?;
    /// let mut last = PinnedBuffer::<i32>::new(1)?;
    /// x.slice(2..).copy_to_pinned(&stream, &mut last)?;
    /// assert_eq!(last.as_slice()?, [3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another length, or a stream of another device; what CUDA says.
    pub fn copy_to_pinned<'a>(&self, stream: &Stream, target: impl AsPinnedMut<'a, T>) -> Result<()> {
        const OPERATION: &str = "Slice::copy_to_pinned";
        let target = target.into();
        same_length(OPERATION, self.len(), target.len())?;
        let (region, pinned) = (self.region(), target.memory());
        let _current = reached(OPERATION, region, Access::Read, stream)?;
        pinned.check_use(OPERATION, stream)?;
        if region.bytes == 0 {
            return Ok(());
        }
        let _waits = SharedDeadline::begin();
        stream.room_or_part(ENTRY, OPERATION, default_timeout, || None)?;
        let _turns = stream.turns(
            Waits { operation: OPERATION, timeout: default_timeout, refusal: || None },
            [region.alloc.tracker()],
        )?;
        let read = Source::of(region.alloc.lineage(), stream.history());
        region.alloc.order(Access::Read, stream)?;
        order(pinned, Access::Write, stream)?;
        // SAFETY: both have that many bytes. They are not freed or overwritten before the copy is done, for it is
        // noted in the uses of both; whoever made a view of memory of others has promised the same of that.
        let result = unsafe { enqueue(target.as_raw(), region.ptr(), region.bytes, Way::ToHost, stream) };
        region.alloc.note(Access::Read, stream);
        note(pinned, Access::Write, stream);
        result?;
        if !stream.records() {
            read.carry(region.alloc.lineage(), pinned.lineage(), target.is_whole(), stream.history());
        } else if target.is_whole() {
            overwritten(pinned, stream);
        }
        Ok(())
    }
}

impl<T: Element> SliceMut<'_, T> {
    /// Wraps `cudaMemcpyAsync`: copies from pinned memory, a buffer or a part of one, without waiting. Changing `source` waits.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let pinned = PinnedBuffer::from_slice(&[8, 9])?;
    /// let mut x = DeviceBuffer::<i32>::zeroed(&stream, 3)?;
    /// x.slice_mut(1..).copy_from_pinned(&stream, &pinned)?;
    /// assert_eq!(x.to_vec(&stream)?, [0, 8, 9]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another length, or a stream of another device; what CUDA says.
    pub fn copy_from_pinned<'a>(&mut self, stream: &Stream, source: impl AsPinned<'a, T>) -> Result<()> {
        const OPERATION: &str = "SliceMut::copy_from_pinned";
        let source = source.into();
        same_length(OPERATION, self.len(), source.len())?;
        let (region, pinned) = (self.region(), source.memory());
        let _current = reached(OPERATION, region, Access::Write, stream)?;
        pinned.check_use(OPERATION, stream)?;
        if region.bytes == 0 {
            return Ok(());
        }
        let _waits = SharedDeadline::begin();
        stream.room_or_part(ENTRY, OPERATION, default_timeout, || None)?;
        let _turns = stream.turns(
            Waits { operation: OPERATION, timeout: default_timeout, refusal: || None },
            [region.alloc.tracker()],
        )?;
        let read = Source::of(pinned.lineage(), stream.history());
        region.alloc.order(Access::Write, stream)?;
        order(pinned, Access::Read, stream)?;
        // SAFETY: both have that many bytes. They are not freed or overwritten before the copy is done, for it is
        // noted in the uses of both; whoever made a view of memory of others has promised the same of that.
        let result = unsafe { enqueue(region.ptr(), source.as_raw(), region.bytes, Way::ToDevice, stream) };
        region.alloc.note(Access::Write, stream);
        note(pinned, Access::Read, stream);
        result?;
        if !stream.records() {
            read.carry(pinned.lineage(), region.alloc.lineage(), region.is_whole(), stream.history());
        } else if region.is_whole() {
            region.alloc.overwrite(stream);
        }
        Ok(())
    }
}
