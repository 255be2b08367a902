//! Copies between devices and pinned memory.

use super::copy::same_length;
use super::host::slice::PinnedSlice;
use super::host::slice_mut::PinnedSliceMut;
use super::views::slice::Slice;
use super::views::slice_mut::SliceMut;
use super::way::{Way, enqueue, reached};
use crate::cuda::order::in_flight::ENTRY;
use crate::cuda::order::ranged::Span;
use crate::cuda::order::recording::{note, order, overwritten};
use crate::cuda::order::stream::Stream;
use crate::cuda::order::turns::Waits;
use crate::cuda::order::uses::Access;
use crate::cuda::works::carry::Source;
use crate::deadline::default_timeout;
use crate::element::Element;
use crate::error::Result;
use crate::shared_deadline::SharedDeadline;

impl<T: Element> Slice<'_, T> {
    /// The copy of `operation`.
    pub(crate) fn copy_to_pinned_for(
        &self,
        operation: &'static str,
        stream: &Stream,
        target: PinnedSliceMut<'_, T>,
    ) -> Result<()> {
        same_length(operation, self.len(), target.len())?;
        let (region, pinned) = (self.region(), target.memory());
        let _current = reached(operation, region, Access::Read, stream)?;
        pinned.check_use(operation, stream)?;
        if region.bytes == 0 {
            return Ok(());
        }
        let _waits = SharedDeadline::begin();
        stream.room_or_part(ENTRY, operation, default_timeout, || None)?;
        let _turns =
            stream.turns(Waits { operation, timeout: default_timeout, refusal: || None }, [region.alloc.tracker()])?;
        let mut read = Source::of(region.alloc.lineage(), stream.history());
        if !region.order(Access::Read, stream)? {
            read = read.beside_others();
        }
        order(pinned, Span::ALL, Access::Write, stream)?;
        // SAFETY: both have that many bytes. They are not freed or overwritten before the copy is done, for it is
        // noted in the uses of both; whoever made a view of memory of others has promised the same of that.
        let result = unsafe { enqueue(target.as_raw(), region.ptr(), region.bytes, Way::ToHost, stream) };
        region.note(Access::Read, stream);
        note(pinned, Span::ALL, Access::Write, stream);
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
    /// The copy of `operation`.
    pub(crate) fn copy_from_pinned_for(
        &mut self,
        operation: &'static str,
        stream: &Stream,
        source: PinnedSlice<'_, T>,
    ) -> Result<()> {
        same_length(operation, self.len(), source.len())?;
        let (region, pinned) = (self.region(), source.memory());
        let _current = reached(operation, region, Access::Write, stream)?;
        pinned.check_use(operation, stream)?;
        if region.bytes == 0 {
            return Ok(());
        }
        let _waits = SharedDeadline::begin();
        stream.room_or_part(ENTRY, operation, default_timeout, || None)?;
        let _turns =
            stream.turns(Waits { operation, timeout: default_timeout, refusal: || None }, [region.alloc.tracker()])?;
        let read = Source::of(pinned.lineage(), stream.history());
        region.order(Access::Write, stream)?;
        order(pinned, Span::ALL, Access::Read, stream)?;
        // SAFETY: both have that many bytes. They are not freed or overwritten before the copy is done, for it is
        // noted in the uses of both; whoever made a view of memory of others has promised the same of that.
        let result = unsafe { enqueue(region.ptr(), source.as_raw(), region.bytes, Way::ToDevice, stream) };
        region.note(Access::Write, stream);
        note(pinned, Span::ALL, Access::Read, stream);
        result?;
        if !stream.records() {
            read.carry(pinned.lineage(), region.alloc.lineage(), region.is_whole(), stream.history());
        } else if region.is_whole() {
            region.alloc.overwrite(stream);
        }
        Ok(())
    }
}
