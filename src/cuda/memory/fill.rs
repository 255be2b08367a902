//! Filling device memory with one value.

use std::ffi::c_void;

use super::copy::{Way, enqueue, same_device};
use super::region::Region;
use super::slice::SliceMut;
use super::staging::Staged;
use crate::cuda::devices::check::{check, check_on};
use crate::cuda::devices::driver;
use crate::cuda::order::in_flight::ENTRY;
use crate::cuda::order::stream::Stream;
use crate::cuda::order::uses::Access;
use crate::deadline::{Deadline, default_timeout};
use crate::element::Element;
use crate::error::Result;
use crate::sys;

impl<T: Element> SliceMut<'_, T> {
    /// Wraps `cudaMemsetAsync`, `cuMemsetD16Async`, `cuMemsetD32Async` and `cuMemsetD2D32Async`: sets every element to
    /// `value`, without waiting.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a stream of another device; what CUDA says.
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.fill_for("SliceMut::fill", stream, value)
    }

    /// The fill of `operation`.
    pub(crate) fn fill_for(&mut self, operation: &'static str, stream: &Stream, value: T) -> Result<()> {
        same_device(operation, self.device(), stream)?;
        let region = self.region();
        if region.bytes == 0 {
            return Ok(());
        }
        let mut bytes = [0; 8];
        // SAFETY: an element has at most 8 bytes, all of them initialised.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping((&raw const value).cast(), size_of::<T>()) };
        let _current = stream.device().bind(operation)?;
        stream.room_for_one(operation, default_timeout())?;
        region.alloc.order(Access::Write, stream)?;
        let result = fill(operation, region, &bytes[..size_of::<T>()], stream);
        // Elements of 8 bytes may take two fills.
        stream.count(if size_of::<T>() == 8 { 2 * ENTRY } else { ENTRY });
        region.alloc.note(Access::Write, stream);
        result?;
        if region.is_whole() {
            region.alloc.lineage().overwrite();
        }
        Ok(())
    }
}

/// Fills `region`, which is borrowed exclusively and ordered on `stream`, with `pattern`. The device is current.
fn fill(operation: &'static str, region: Region<'_>, pattern: &[u8], stream: &Stream) -> Result<()> {
    let to = region.ptr();
    let raw = stream.raw();
    let count = region.bytes / pattern.len();
    let address = to.addr() as sys::CUdeviceptr_v2;
    if pattern.iter().all(|b| *b == pattern[0]) {
        // SAFETY: the region is that long, and not freed before the stream is done, for the use is noted, or
        // was promised of memory of others.
        let code = unsafe { sys::cudaMemsetAsync(to, i32::from(pattern[0]), region.bytes, raw) };
        return check_on(stream.device().ordinal(), "cudaMemsetAsync", code);
    }
    let memset = driver::memset();
    match (pattern, memset) {
        (&[a, b], driver::Memset { d16: Some(d16), .. }) => {
            // SAFETY: as above; addresses of 2-byte elements are even.
            let code = unsafe { d16(address, u16::from_ne_bytes([a, b]), count, raw) };
            result("cuMemsetD16Async", code)
        }
        (&[a, b, c, d], driver::Memset { d32: Some(d32), .. }) => {
            // SAFETY: as above; addresses of 4-byte elements are multiples of 4.
            let code = unsafe { d32(address, u32::from_ne_bytes([a, b, c, d]), count, raw) };
            result("cuMemsetD32Async", code)
        }
        (&[a, b, c, d, e, f, g, h], driver::Memset { d32: Some(d32), .. }) if [a, b, c, d] == [e, f, g, h] => {
            // SAFETY: as above, and there are two 4-byte halves in each element.
            let code = unsafe { d32(address, u32::from_ne_bytes([a, b, c, d]), 2 * count, raw) };
            result("cuMemsetD32Async", code)
        }
        (&[a, b, c, d, e, f, g, h], driver::Memset { d2d32: Some(d2d32), .. }) => {
            // A column of 4 bytes in rows of 8, and then the other one.
            let halves = [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])];
            for (at, half) in [0, 4].into_iter().zip(halves) {
                // SAFETY: as above; the last row begins 8 bytes before the end of the region.
                let code = unsafe { d2d32(address + at, 8, half, 1, count, raw) };
                result("cuMemsetD2D32Async", code)?;
            }
            Ok(())
        }
        _ => fill_by_copies(operation, region, pattern, stream),
    }
}

fn result(operation: &'static str, code: sys::CUresult) -> Result<()> {
    // The codes of the driver are those of the runtime.
    check(operation, sys::cudaError(code.0 as _))
}

/// For drivers without the fill that is needed: a first piece from the host, then copies of what is there, twice as
/// long each time.
fn fill_by_copies(operation: &'static str, region: Region<'_>, pattern: &[u8], stream: &Stream) -> Result<()> {
    let deadline = Deadline::after(default_timeout());
    let first = region.bytes.min(64 << 10);
    let block = Staged::take(operation, stream, first, &deadline)?;
    let first = first.min(block.size());
    // SAFETY: the block has room for `first` bytes, a multiple of the pattern, and nobody else uses it.
    let piece = unsafe { std::slice::from_raw_parts_mut(block.ptr(), first) };
    for chunk in piece.chunks_exact_mut(pattern.len()) {
        chunk.copy_from_slice(pattern);
    }
    // SAFETY: the region is at least that long; it and the block stay until the copy is done.
    let copied = unsafe { enqueue(region.ptr(), block.ptr().cast::<c_void>(), first, Way::ToDevice, stream) };
    super::copy::park(block, stream);
    copied?;
    let mut done = first;
    while done < region.bytes {
        stream.room_for_one(operation, deadline.remaining())?;
        let bytes = done.min(region.bytes - done);
        // SAFETY: both pieces lie within the region, the second after the first.
        unsafe { enqueue(region.ptr().wrapping_byte_add(done), region.ptr(), bytes, Way::OnDevice, stream)? };
        done += bytes;
    }
    Ok(())
}
