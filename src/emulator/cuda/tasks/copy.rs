//! Copies between all kinds of memory.
//!
//! As with CUDA, what may be done at once depends on the memory of the host. Pinned memory is read and written when the
//! stream comes to the copy. Pageable memory is read before the call returns, and the call does not return before pageable
//! memory is written.

use super::host::{self, PinnedUse};
use crate::emulator::cuda::core::device::{self, Device};
use crate::emulator::cuda::core::stream::{Running, Stream, Task};
use crate::emulator::memory::block::InUse;
use crate::emulator::memory::heap;
use crate::emulator::report;
use crate::sys::{cudaError, cudaMemcpyKind};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// What a pointer points to, kept alive as long as this lives.
enum Place {
    Device(#[allow(dead_code, reason = "held for its drop")] InUse, i32),
    Pinned(#[allow(dead_code, reason = "held for its drop")] PinnedUse),
    Pageable,
}

impl Place {
    fn of(operation: &str, ptr: *const c_void, bytes: usize) -> Result<Self, cudaError> {
        if let Some((heap, _)) = heap::owner(ptr.addr()) {
            device::answers(heap.ground.ordinal)?;
            let (_, used) = heap::locate(ptr, bytes).map_err(|fault| reject(operation, fault.text))?;
            return Ok(Self::Device(used, heap.ground.ordinal));
        }
        match host::hold(ptr.addr(), bytes) {
            Ok(Some(used)) => Ok(Self::Pinned(used)),
            Ok(None) if ptr.is_null() => Err(reject(operation, format!("null, where {bytes} bytes were to be used"))),
            Ok(None) => Ok(Self::Pageable),
            Err(text) => Err(reject(operation, text)),
        }
    }

    fn is_device(&self) -> bool {
        matches!(self, Self::Device(..))
    }
}

fn reject(operation: &str, text: impl std::fmt::Display) -> cudaError {
    report::violation(format!("{operation}: {text}"));
    cudaError::cudaErrorInvalidValue
}

/// Wraps `cudaMemcpyAsync`.
pub(crate) fn copy(
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
    stream: &Arc<Stream>,
) -> Result<(), cudaError> {
    const NAME: &str = "cudaMemcpyAsync";
    stream.device.check()?;
    if kind.0 > cudaMemcpyKind::cudaMemcpyDefault.0 {
        return Err(reject(NAME, format!("{} is no direction of a copy", kind.0)));
    }
    if bytes == 0 {
        return Ok(());
    }
    let (to, from) = (Place::of(NAME, dst, bytes)?, Place::of(NAME, src, bytes)?);
    let expected = match kind {
        cudaMemcpyKind::cudaMemcpyHostToHost => Some((false, false)),
        cudaMemcpyKind::cudaMemcpyHostToDevice => Some((false, true)),
        cudaMemcpyKind::cudaMemcpyDeviceToHost => Some((true, false)),
        cudaMemcpyKind::cudaMemcpyDeviceToDevice => Some((true, true)),
        _ => None,
    };
    if expected.is_some_and(|expected| expected != (from.is_device(), to.is_device())) {
        let side = |device| if device { "device" } else { "host" };
        return Err(reject(
            NAME,
            format!(
                "the direction is {}, but {src:p} is {} memory and {dst:p} is {} memory",
                ["host to host", "host to device", "device to host", "device to device"][kind.0 as usize],
                side(from.is_device()),
                side(to.is_device())
            ),
        ));
    }
    submit(NAME, (dst, to), (src, from), bytes, stream)
}

/// Wraps `cudaMemcpyPeerAsync`: a copy whose pointers must belong to the devices that are named.
pub(crate) fn copy_peer(
    (dst, dst_device): (*mut c_void, &Device),
    (src, src_device): (*const c_void, &Device),
    bytes: usize,
    stream: &Arc<Stream>,
) -> Result<(), cudaError> {
    const NAME: &str = "cudaMemcpyPeerAsync";
    for device in [stream.device, dst_device, src_device] {
        device.check()?;
    }
    if bytes == 0 {
        return Ok(());
    }
    let (to, from) = (Place::of(NAME, dst, bytes)?, Place::of(NAME, src, bytes)?);
    for (ptr, place, device) in [(dst.cast_const(), &to, dst_device), (src, &from, src_device)] {
        match place {
            Place::Device(_, ordinal) if *ordinal == device.ordinal => {}
            Place::Device(_, ordinal) => {
                return Err(reject(NAME, format!("{ptr:p} belongs to device {ordinal}, not to {}", device.ordinal)));
            }
            _ => return Err(reject(NAME, format!("{ptr:p} is no device memory"))),
        }
    }
    submit(NAME, (dst, to), (src, from), bytes, stream)
}

/// Where the bytes come from when the stream gets there.
enum Source {
    Memory(*const c_void, #[allow(dead_code, reason = "held for its drop")] Place),
    Staged(Box<[MaybeUninit<u8>]>),
}

/// One copy that is ready to run.
struct Move {
    dst: *mut c_void,
    src: Source,
    bytes: usize,
    /// Declared last: the use ends after the pointers went out of use.
    _to: Place,
}

// SAFETY: the pointers are to memory that the guards in here keep alive, or that the caller of the copy keeps alive by
// waiting for it; no thread owns any of that.
unsafe impl Send for Move {}

impl Move {
    fn run(self) {
        let src = match &self.src {
            Source::Memory(src, _) => *src,
            Source::Staged(bytes) => bytes.as_ptr().cast(),
        };
        // SAFETY: both ranges were checked when the copy was enqueued, and live as the guards do. They may overlap, which
        // memmove allows. Other work may touch the same bytes at the same time where the emulated program forgot to order
        // its work; as on a device, the bytes are then unspecified.
        unsafe { libc::memmove(self.dst, src, self.bytes) };
    }
}

fn submit(
    name: &'static str,
    (dst, to): (*mut c_void, Place),
    (src, from): (*const c_void, Place),
    bytes: usize,
    stream: &Arc<Stream>,
) -> Result<(), cudaError> {
    let waits = matches!(to, Place::Pageable);
    let src = match from {
        Place::Pageable => Source::Staged(stage(src, bytes)),
        place => Source::Memory(src, place),
    };
    let work = Move { dst, src, bytes, _to: to };
    let ticket = stream.push(Task::Run(name, Box::new(move |_: &Running<'_>| work.run())))?;
    if waits {
        ticket.wait();
        return stream.device.check();
    }
    Ok(())
}

fn stage(src: *const c_void, bytes: usize) -> Box<[MaybeUninit<u8>]> {
    let mut staged = Box::<[u8]>::new_uninit_slice(bytes);
    // SAFETY: the caller of the copy promises `bytes` readable bytes at `src`, as C does; the box is new and has room.
    unsafe { std::ptr::copy_nonoverlapping(src.cast::<MaybeUninit<u8>>(), staged.as_mut_ptr(), bytes) };
    staged
}
