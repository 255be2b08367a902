//! Filling device memory.

use crate::emulator::cuda::core::stream::{Running, Stream, Task};
use crate::emulator::memory::block::InUse;
use crate::emulator::memory::heap;
use crate::emulator::report;
use crate::sys::cudaError;
use std::ffi::c_void;
use std::sync::Arc;

/// What memory can be filled with.
pub(crate) trait Pattern: Copy + Send + 'static {
    /// The byte that all of this consists of, if it does.
    fn byte(self) -> Option<u8>;
}

impl Pattern for u8 {
    fn byte(self) -> Option<u8> {
        Some(self)
    }
}

impl Pattern for u16 {
    fn byte(self) -> Option<u8> {
        let [first, second] = self.to_ne_bytes();
        (first == second).then_some(first)
    }
}

impl Pattern for u32 {
    fn byte(self) -> Option<u8> {
        let bytes = self.to_ne_bytes();
        (bytes == [bytes[0]; 4]).then_some(bytes[0])
    }
}

/// A rectangle of `height` rows of `width` elements, whose rows start `pitch` bytes after each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub pitch: usize,
    pub width: usize,
    pub height: usize,
}

impl Shape {
    /// One row.
    pub fn row(width: usize) -> Self {
        Self { pitch: 0, width, height: 1 }
    }

    /// Bytes from the first to the last, where that is a number and the rows do not overlap.
    fn bytes(self, element: usize) -> Option<usize> {
        if self.width == 0 || self.height == 0 {
            return Some(0);
        }
        let row = self.width.checked_mul(element)?;
        if self.height > 1 && (self.pitch < row || !self.pitch.is_multiple_of(element)) {
            return None;
        }
        self.pitch.checked_mul(self.height - 1)?.checked_add(row)
    }
}

struct Fill<T> {
    dst: *mut T,
    value: T,
    shape: Shape,
    _used: InUse,
}

// SAFETY: the pointer is to device memory, which the guard keeps alive and which belongs to no thread.
unsafe impl<T: Pattern> Send for Fill<T> {}

impl<T: Pattern> Fill<T> {
    fn run(self) {
        for row in 0..self.shape.height {
            let start = self.dst.wrapping_byte_add(row * self.shape.pitch);
            if let Some(byte) = self.value.byte() {
                // SAFETY: the whole shape was found inside one live allocation, and any byte may be written there.
                unsafe { libc::memset(start.cast(), i32::from(byte), self.shape.width * size_of::<T>()) };
                continue;
            }
            for column in 0..self.shape.width {
                // SAFETY: as above; the alignment was checked when the work was enqueued.
                unsafe { start.add(column).write(self.value) };
            }
        }
    }
}

/// Lets `stream` write `value` to every element of `shape` at `dst`.
pub(crate) fn fill<T: Pattern>(
    name: &'static str,
    dst: *mut c_void,
    value: T,
    shape: Shape,
    stream: &Arc<Stream>,
) -> Result<(), cudaError> {
    stream.device.check()?;
    let reject = |text: String| {
        report::violation(format!("{name}: {text}"));
        cudaError::cudaErrorInvalidValue
    };
    let bytes = shape
        .bytes(size_of::<T>())
        .ok_or_else(|| reject(format!("{shape:?} is no shape of {}-byte elements", size_of::<T>())))?;
    if bytes == 0 {
        return Ok(());
    }
    let dst = dst.cast::<T>();
    if !dst.is_aligned() {
        return Err(reject(format!("{dst:p} is not aligned to elements of {} bytes", size_of::<T>())));
    }
    let (_, used) = heap::locate(dst.cast(), bytes).map_err(|fault| reject(fault.text))?;
    let work = Fill { dst, value, shape, _used: used };
    stream.push(Task::Run(name, Box::new(move |_: &Running<'_>| work.run()))).map(drop)
}
