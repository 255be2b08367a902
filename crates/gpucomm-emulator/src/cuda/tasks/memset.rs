//! Filling device memory.

use crate::cuda::core::stream::Stream;
use crate::cuda::core::work::{Run, Running, Work};
use crate::cuda::tasks::memory;
use crate::memory::access::Access;
use crate::memory::multicast::hold;
use crate::memory::usage::InUse;
use crate::memory::usage::device_at;
use crate::races::{Actor, Touching};
use crate::report;
use crate::sys::cudaError;
use std::ffi::c_void;
use std::sync::Arc;

/// What memory can be filled with.
pub(crate) trait Pattern: Copy + Send + Sync + 'static {
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

#[derive(Debug, Clone, Copy)]
struct Fill<T> {
    name: &'static str,
    dst: *mut T,
    value: T,
    shape: Shape,
    bytes: usize,
    /// Whose work it is.
    device: i32,
}

// SAFETY: the pointer is to device memory, which is looked up before it is written, and belongs to no thread.
unsafe impl<T: Pattern> Send for Fill<T> {}
// SAFETY: as above; nothing in here changes.
unsafe impl<T: Pattern> Sync for Fill<T> {}

/// A fill whose memory is kept.
struct Filling<T> {
    fill: Fill<T>,
    used: InUse,
}

impl<T: Pattern> Work for Fill<T> {
    type Run = Filling<T>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn fixed(&self) -> String {
        let rows = Some(self.shape).filter(|shape| shape.height > 1);
        format!("on {:?}, {rows:?}", device_at(self.dst.addr()))
    }

    fn start(&self) -> Result<Filling<T>, cudaError> {
        let used = hold(self.dst.cast(), self.bytes).map_err(|fault| reject(self.name, &fault.text))?;
        memory::check_access(self.name, &used, self.device, Access::ReadWrite)?;
        Ok(Filling { fill: *self, used })
    }
}

impl<T: Pattern> Run for Filling<T> {
    fn tell<'a>(&'a self, tell: &mut dyn FnMut(Touching<'a>)) {
        self.used.tell(true, Actor::alone(self.fill.name), tell);
    }

    fn run(self: Box<Self>, _: &Running) {
        // SAFETY: the whole shape was found inside one live allocation, or in what is bound to a multicast object; the alignment was
        // checked when the work was asked for.
        self.used.each(self.fill.dst.cast(), |dst| unsafe { write(dst.cast::<T>(), self.fill.value, self.fill.shape) });
    }
}

/// # Safety
/// All elements of the shape may be written, and `dst` is aligned.
unsafe fn write<T: Pattern>(dst: *mut T, value: T, shape: Shape) {
    for row in 0..shape.height {
        let start = dst.wrapping_byte_add(row * shape.pitch);
        if let Some(byte) = value.byte() {
            // SAFETY: as the caller promises; any byte may be written there.
            unsafe { libc::memset(start.cast(), i32::from(byte), shape.width * size_of::<T>()) };
            continue;
        }
        // SAFETY: as the caller promises: the row has at least the element that its bytes need.
        unsafe { start.write(value) };
        // Twice as many each time: `memcpy` is quick in unoptimised builds, too.
        let mut written = 1;
        while written < shape.width {
            let more = written.min(shape.width - written);
            // SAFETY: as the caller promises; the two parts do not overlap.
            unsafe { start.copy_to_nonoverlapping(start.add(written), more) };
            written += more;
        }
    }
}

fn reject(name: &str, text: &str) -> cudaError {
    report::violation(format!("{name}: {text}"));
    cudaError::cudaErrorInvalidValue
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
    let element = size_of::<T>();
    let bytes = shape
        .bytes(element)
        .ok_or_else(|| reject(name, &format!("{shape:?} is no shape of {element}-byte elements")))?;
    if bytes == 0 {
        return Ok(());
    }
    let dst = dst.cast::<T>();
    if !dst.is_aligned() {
        return Err(reject(name, &format!("{dst:p} is not aligned to elements of {element} bytes")));
    }
    stream.submit(&Fill { name, dst, value, shape, bytes, device: stream.device.ordinal })
}
