//! Copies: between host and device, and between devices.

use std::collections::VecDeque;

use super::allocated::region::Region;
use super::basics::values;
use super::host::staging::Staged;
use super::views::slice::Slice;
use super::views::slice_mut::SliceMut;
use super::way::{Way, enqueue, reached, way_between};
use crate::cuda::order::in_flight::ENTRY;
use crate::cuda::order::mark::Mark;
use crate::cuda::order::stream::Stream;
use crate::cuda::order::turns::{Turns, Waits};
use crate::cuda::order::uses::Access;
use crate::cuda::works::carry::{self, Source};
use crate::deadline::{Deadline, default_timeout};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::shared_deadline::SharedDeadline;
use crate::trace;

/// Blocks that one copy to the host has under way.
const DEPTH: usize = 4;

impl<T: Element> Slice<'_, T> {
    /// The copy of `operation`.
    pub(crate) fn copy_to_slice_until(
        &self,
        operation: &'static str,
        stream: &Stream,
        values: &mut [T],
        deadline: &Deadline,
    ) -> Result<()> {
        same_length(operation, self.len(), values.len())?;
        let _current = reached(operation, self.region(), Access::Read, stream)?;
        if T::CHECK.is_some() {
            // Elsewhere first: what is no value must not lie in `values`.
            values.copy_from_slice(&self.fetch(operation, stream, deadline)?);
            return Ok(());
        }
        let to = values.as_mut_ptr().cast();
        // SAFETY: `values` is that many bytes, exclusively borrowed, and every bit pattern is an element.
        unsafe { download(operation, (self.region(), size_of::<T>()), stream, to, deadline) }
    }

    /// The elements as a vector, for `operation`.
    pub(crate) fn fetch(&self, operation: &'static str, stream: &Stream, deadline: &Deadline) -> Result<Vec<T>> {
        let _current = reached(operation, self.region(), Access::Read, stream)?;
        let mut elements = Vec::<T>::with_capacity(self.len());
        let (region, to) = (self.region(), elements.as_mut_ptr().cast::<u8>());
        // SAFETY: the vector has room for that many bytes.
        unsafe { download(operation, (region, size_of::<T>()), stream, to, deadline)? };
        // SAFETY: so many bytes were written there.
        values::check::<T>(operation, unsafe { std::slice::from_raw_parts(to, region.bytes) })?;
        // SAFETY: they are so many values: every bit pattern is one, or was looked at.
        unsafe { elements.set_len(self.len()) };
        Ok(elements)
    }
}

impl<T: Element> SliceMut<'_, T> {
    /// The copy of `operation`.
    pub(crate) fn copy_from_slice_for(&mut self, operation: &'static str, stream: &Stream, values: &[T]) -> Result<()> {
        same_length(operation, self.len(), values.len())?;
        let _current = reached(operation, self.region(), Access::Write, stream)?;
        // SAFETY: `values` is that many bytes.
        unsafe { upload(operation, self.region(), stream, values.as_ptr().cast(), &Deadline::after(default_timeout())) }
    }

    /// The copy of `operation`.
    pub(crate) fn copy_from_for(
        &mut self,
        operation: &'static str,
        stream: &Stream,
        source: Slice<'_, T>,
    ) -> Result<()> {
        same_length(operation, self.len(), source.len())?;
        let (to, from) = (self.region(), source.region());
        let (way, _current) = way_between(operation, to, from, stream)?;
        if to.bytes == 0 {
            return Ok(());
        }
        let _waits = SharedDeadline::begin();
        stream.room_or_part(ENTRY, operation, default_timeout, || None)?;
        let _turns = stream.turns(
            Waits { operation, timeout: default_timeout, refusal: || None },
            [from.alloc.tracker(), to.alloc.tracker()],
        )?;
        let mut read = Source::of(from.alloc.lineage(), stream.history());
        if !from.order(Access::Read, stream)? {
            read = read.beside_others();
        }
        to.order(Access::Write, stream)?;
        // SAFETY: both have that many bytes, and do not overlap, for one is borrowed exclusively. They are not freed
        // or overwritten before the copy is done, for it is noted in the uses of both; whoever made an alias, or a view of memory
        // of others, has promised the same of that.
        let result = unsafe { enqueue(to.ptr(), from.ptr(), to.bytes, way, stream) };
        from.note(Access::Read, stream);
        to.note(Access::Write, stream);
        result?;
        if !stream.records() {
            read.carry(from.alloc.lineage(), to.alloc.lineage(), to.is_whole(), stream.history());
        } else if to.is_whole() {
            to.alloc.overwrite(stream);
        }
        Ok(())
    }
}

pub(crate) fn same_length(operation: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::argument(operation, "length", format_args!("{expected} elements"), format_args!("{got} elements")))
}

/// Copies `from` to `region` through staging blocks; returns when the last bytes are read.
///
/// # Safety
/// `from` has as many bytes as `region`, which is borrowed exclusively.
pub(crate) unsafe fn upload(
    operation: &'static str,
    region: Region<'_>,
    stream: &Stream,
    from: *const u8,
    deadline: &Deadline,
) -> Result<()> {
    if region.bytes == 0 {
        return Ok(());
    }
    stream.ready(operation)?;
    let _turns = stream
        .turns(Waits { operation, timeout: || deadline.remaining(), refusal: || None }, [region.alloc.tracker()])?;
    region.order(Access::Write, stream)?;
    let mut at = 0;
    let result = loop {
        let room = stream.room_for_one(operation, || deadline.remaining());
        let block = match room.and_then(|()| Staged::take(operation, stream, region.bytes - at, deadline)) {
            Ok(block) => block,
            Err(error) => break Err(error),
        };
        let bytes = block.size().min(region.bytes - at);
        // SAFETY: `at + bytes` is within both; the block has room for `bytes`, is not used by a device, and stays
        // allocated. It is reused only when the copy is done.
        let copied = unsafe {
            block.ptr().copy_from_nonoverlapping(from.add(at), bytes);
            let to = region.ptr().wrapping_byte_add(at);
            enqueue(to, block.ptr().cast(), bytes, Way::ToDevice, stream)
        };
        park(block, stream);
        at += bytes;
        if copied.is_err() || at == region.bytes {
            break copied;
        }
    };
    region.note(Access::Write, stream);
    result?;
    if region.is_whole() {
        region.alloc.lineage().overwrite();
    }
    Ok(())
}

/// Gives back a block that `stream` uses now.
pub(crate) fn park(block: Staged, stream: &Stream) {
    match stream.mark() {
        Ok(mark) => block.park(mark),
        Err(_) => block.abandon(),
    }
}

/// Copies `region`, of elements of so many bytes, to `to` through staging blocks, and waits.
///
/// # Safety
/// `to` has as many bytes as `region`, and nobody else uses them now.
unsafe fn download(
    operation: &'static str,
    (region, element): (Region<'_>, usize),
    stream: &Stream,
    to: *mut u8,
    deadline: &Deadline,
) -> Result<()> {
    if region.bytes == 0 {
        return Ok(());
    }
    stream.ready(operation)?;
    let _span = trace::wait(operation, stream.device().ordinal(), stream.serial());
    let mut turns = stream
        .turns(Waits { operation, timeout: || deadline.remaining(), refusal: || None }, [region.alloc.tracker()])?;
    // First: the stream need not come after what others write from now on, to other parts of the memory.
    let mut origins = carry::origins(region.alloc.lineage(), stream.history());
    if !region.order(Access::Read, stream)? {
        origins.follow_nothing();
    }
    let mut queue = VecDeque::with_capacity(DEPTH);
    let mut asked = 0;
    let mut got = 0;
    let result = loop {
        while asked < region.bytes && queue.len() < DEPTH {
            let left = region.bytes - asked;
            if let Err(error) = stream.room_for_one(operation, || deadline.remaining()) {
                return finish(region, stream, queue, Err(error));
            }
            // Waits only while holding no block: two copies cannot wait for each other.
            let block = if queue.is_empty() {
                Staged::take(operation, stream, left, deadline).map(Some)
            } else {
                Staged::try_take(stream, left)
            };
            let block = match block {
                Ok(Some(block)) => block,
                Ok(None) => break,
                Err(error) => return finish(region, stream, queue, Err(error)),
            };
            // Whole elements, unless there is no room for one.
            let beyond = if element <= block.size() { block.size() % element } else { 0 };
            let bytes = (block.size() - beyond).min(left);
            // SAFETY: `asked + bytes` is within the region; the block has room for `bytes`, and is neither used by
            // others nor freed before the copy is done.
            let copied = unsafe {
                let from = region.ptr().wrapping_byte_add(asked);
                enqueue(block.ptr().cast(), from, bytes, Way::ToHost, stream)
            };
            match (copied, stream.mark()) {
                (Ok(()), Ok(mark)) => queue.push_back((block, mark, bytes)),
                (Err(error), Ok(mark)) => {
                    block.park(mark);
                    return finish(region, stream, queue, Err(error));
                }
                (Err(error), Err(_)) | (Ok(()), Err(error)) => {
                    block.abandon();
                    return finish(region, stream, queue, Err(error));
                }
            }
            asked += bytes;
        }
        if asked == region.bytes && !turns.is_empty() {
            // Others need not wait for what is on its way.
            region.note(Access::Read, stream);
            turns = Turns::default();
        }
        let Some((block, mark, bytes)) = queue.pop_front() else { break Ok(()) };
        let what = || format!("work on a stream of {}{}", stream.device(), origins.pending());
        let look = || origins.look_around();
        let waited = deadline.poll_and_look(operation, what, look, || stream.has_reached(&mark));
        let waited = waited.inspect_err(|error| {
            stream.history().tell(&origins, true);
            stream.give_up(Some(&mark), error);
            origins.give_up(error);
        });
        let waited = waited.and_then(|()| stream.judge(operation, &origins, deadline));
        if waited.is_err() {
            queue.push_front((block, mark, bytes));
            break waited;
        }
        // SAFETY: the device is done with the block; `got + bytes` is within `to`.
        unsafe { to.add(got).copy_from_nonoverlapping(block.ptr(), bytes) };
        block.release();
        got += bytes;
    };
    finish(region, stream, queue, result)
}

fn finish(
    region: Region<'_>,
    stream: &Stream,
    queue: VecDeque<(Staged, Mark, usize)>,
    result: Result<()>,
) -> Result<()> {
    for (block, mark, _) in queue {
        block.park(mark);
    }
    region.note(Access::Read, stream);
    result
}
