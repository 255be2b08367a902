//! Filling device memory with one value.

use std::ffi::c_void;

use super::allocated::region::Region;
use super::host::staging::Staged;
use super::views::slice_mut::SliceMut;
use super::way::{Way, enqueue, reached};
use crate::cuda::devices::check::{check, check_on};
use crate::cuda::devices::driver;
use crate::cuda::order::in_flight::ENTRY;
use crate::cuda::order::stream::Stream;
use crate::cuda::order::turns::Waits;
use crate::cuda::order::uses::Access;
use crate::deadline::{Deadline, default_timeout};
use crate::element::Element;
use crate::error::Result;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// Bytes that come from the host where the driver has no such fill.
const PIECE: usize = 64 << 10;

impl<T: Element> SliceMut<'_, T> {
    /// The fill of `operation`.
    pub(crate) fn fill_for(&mut self, operation: &'static str, stream: &Stream, value: T) -> Result<()> {
        let region = self.region();
        let _reached = reached(operation, region, Access::Write, stream)?;
        if region.bytes == 0 {
            return Ok(());
        }
        // SAFETY: all bytes of an element are initialised, and it stays until this returns.
        let pattern = unsafe { std::slice::from_raw_parts((&raw const value).cast(), size_of::<T>()) };
        let _current = stream.device().bind(operation)?;
        let _waits = SharedDeadline::begin();
        stream.room_or_part(ENTRY, operation, default_timeout, || None)?;
        let _turns =
            stream.turns(Waits { operation, timeout: default_timeout, refusal: || None }, [region.alloc.tracker()])?;
        region.order(Access::Write, stream)?;
        let result = fill(operation, region, pattern, stream);
        // Elements of 8 bytes may take two fills.
        stream.count(if size_of::<T>() == 8 { 2 * ENTRY } else { ENTRY });
        region.note(Access::Write, stream);
        result?;
        if region.is_whole() {
            region.alloc.overwrite(stream);
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
    // A driver fills by words, whose addresses are multiples of them; of an array of bytes it may be any.
    let word = pattern.len().min(4);
    let memset = if to.addr().is_multiple_of(word) { driver::memset() } else { driver::Memset::default() };
    match (pattern, memset) {
        (&[a, b], driver::Memset { d16: Some(d16), .. }) => {
            // SAFETY: as above; the address is even.
            let code = unsafe { d16(address, u16::from_ne_bytes([a, b]), count, raw) };
            result("cuMemsetD16Async", code)
        }
        (&[a, b, c, d], driver::Memset { d32: Some(d32), .. }) => {
            // SAFETY: as above; the address is a multiple of 4.
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

/// Where the driver has no such fill: a first piece from the host, then copies of what is there, twice as long each time.
fn fill_by_copies(operation: &'static str, region: Region<'_>, pattern: &[u8], stream: &Stream) -> Result<()> {
    let deadline = Deadline::after(default_timeout());
    let mut done = first_piece(operation, region, pattern, stream, &deadline)?;
    while done < region.bytes {
        stream.room_for_one(operation, || deadline.remaining())?;
        let bytes = done.min(region.bytes - done);
        // SAFETY: both pieces lie within the region, the second after the first.
        unsafe { enqueue(region.ptr().wrapping_byte_add(done), region.ptr(), bytes, Way::OnDevice, stream)? };
        done += bytes;
    }
    Ok(())
}

/// Fills the beginning of `region` from the host: how many bytes, a multiple of the pattern.
fn first_piece(
    operation: &'static str,
    region: Region<'_>,
    pattern: &[u8],
    stream: &Stream,
    deadline: &Deadline,
) -> Result<usize> {
    let most = region.bytes.min(PIECE.max(pattern.len()));
    let (mut done, bytes) = (0, most - most % pattern.len());
    while done < bytes {
        stream.room_for_one(operation, || deadline.remaining())?;
        let block = Staged::take(operation, stream, bytes - done, deadline)?;
        let length = block.size().min(bytes - done);
        // SAFETY: the block has room for that many bytes, which were initialised when it was made, and nobody else uses it.
        let piece = unsafe { std::slice::from_raw_parts_mut(block.ptr(), length) };
        for (to, byte) in piece.iter_mut().zip(pattern.iter().cycle().skip(done % pattern.len())) {
            *to = *byte;
        }
        let to = region.ptr().wrapping_byte_add(done);
        // SAFETY: the region is at least that long; it and the block stay until the copy is done.
        let copied = unsafe { enqueue(to, block.ptr().cast::<c_void>(), length, Way::ToDevice, stream) };
        super::copy::park(block, stream);
        copied?;
        done += length;
    }
    Ok(done)
}
