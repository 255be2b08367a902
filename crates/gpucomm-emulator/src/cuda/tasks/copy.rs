//! Copies between all kinds of memory.
//!
//! As with CUDA, what may be done at once depends on the memory of the host. Pinned memory is read and written when the
//! stream comes to the copy. Pageable memory is read before the call returns: at once where that is not much, else when the stream comes
//! to it, as the driver may. The call does not return before pageable memory is written, nor where both ends are of the host. But a graph
//! does as with pinned memory.

use super::host::{self, PinnedUse};
use crate::cuda::core::device::{self, Device};
use crate::cuda::core::stream::Stream;
use crate::cuda::core::work::{Run, Running, Work};
use crate::cuda::tasks::memory;
use crate::memory::access::Access;
use crate::memory::multicast;
use crate::memory::usage;
use crate::memory::usage::InUse;
use crate::races::{Actor, Touching};
use crate::report;
use crate::sys::{cudaError, cudaMemcpyKind};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Bytes of pageable memory that the driver takes without a wait for the stream.
const STAGED: usize = 64 << 10;

/// What a pointer points to, kept alive as long as this lives.
enum Place {
    Device(InUse),
    Pinned(PinnedUse),
    Pageable,
}

impl Place {
    fn of(operation: &str, ptr: *const c_void, bytes: usize, writes: bool) -> Result<Self, cudaError> {
        if usage::is_device(ptr.addr()) {
            if let Some(ordinal) = usage::device_at(ptr.addr()) {
                device::answers(ordinal)?;
            }
            let used = if writes { multicast::hold(ptr, bytes) } else { usage::hold(ptr, bytes) };
            let used = used.map_err(|fault| reject(operation, fault.text))?;
            return Ok(Self::Device(used));
        }
        match host::hold(ptr.addr(), bytes) {
            Ok(Some(used)) => Ok(Self::Pinned(used)),
            Ok(None) if ptr.is_null() => Err(reject(operation, format!("null, where {bytes} bytes were to be used"))),
            Ok(None) => Ok(Self::Pageable),
            Err(text) => Err(reject(operation, text)),
        }
    }

    /// Tells what `actor` does with it. What is done with pageable memory is over when the call returns.
    fn tell<'a>(&'a self, writes: bool, actor: Actor, tell: &mut dyn FnMut(Touching<'a>)) {
        match self {
            Self::Device(used) => used.tell(writes, actor, tell),
            Self::Pinned(used) => used.tell(writes, actor, tell),
            Self::Pageable => {}
        }
    }

    /// Writes to each place where what is written to `ptr` goes.
    fn each(&self, ptr: *mut c_void, mut write: impl FnMut(*mut c_void)) {
        match self {
            Self::Device(used) => used.each(ptr, write),
            Self::Pinned(_) | Self::Pageable => write(ptr),
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

/// Where the ends of a copy must lie.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// As the direction says, and open to this device, that of the stream; what the program has mapped, to the device that was current
    /// where the copy was asked for.
    Direction { kind: cudaMemcpyKind, stream: i32, current: i32 },
    /// On these devices, to which it is open: the target, and the source. The device of the stream needs no access.
    Devices(i32, i32),
}

/// A copy, as it was asked for.
#[derive(Debug, Clone, Copy)]
struct Copying {
    name: &'static str,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    rule: Rule,
}

// SAFETY: the pointers are to memory of devices or pinned memory, which are looked up before they are used, or to memory of the caller,
// who vouches for it. No thread owns any of that.
unsafe impl Send for Copying {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Copying {}

/// Wraps `cudaMemcpyAsync`.
pub(crate) fn copy(
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
    stream: &Arc<Stream>,
) -> Result<(), cudaError> {
    let rule = Rule::Direction { kind, stream: stream.device.ordinal, current: device::current_device() };
    let copy = Copying { name: "cudaMemcpyAsync", dst, src, bytes, rule };
    stream.device.check()?;
    if kind.0 > cudaMemcpyKind::cudaMemcpyDefault.0 {
        return Err(reject(copy.name, format!("{} is no direction of a copy", kind.0)));
    }
    submit(&copy, stream)
}

/// Wraps `cudaMemcpyPeerAsync`: a copy whose pointers must belong to the devices that are named.
pub(crate) fn copy_peer(
    (dst, dst_device): (*mut c_void, &Device),
    (src, src_device): (*const c_void, &Device),
    bytes: usize,
    stream: &Arc<Stream>,
) -> Result<(), cudaError> {
    for device in [stream.device, dst_device, src_device] {
        device.check()?;
    }
    let rule = Rule::Devices(dst_device.ordinal, src_device.ordinal);
    submit(&Copying { name: "cudaMemcpyPeerAsync", dst, src, bytes, rule }, stream)
}

impl Rule {
    /// Why a copy may not go so.
    fn refuses(self, copy: &Copying, from: &Place, to: &Place) -> Option<String> {
        let Copying { dst, src, .. } = *copy;
        match self {
            Self::Direction { kind, .. } => {
                let (name, expected) = match kind {
                    cudaMemcpyKind::cudaMemcpyHostToHost => ("host to host", (false, false)),
                    cudaMemcpyKind::cudaMemcpyHostToDevice => ("host to device", (false, true)),
                    cudaMemcpyKind::cudaMemcpyDeviceToHost => ("device to host", (true, false)),
                    cudaMemcpyKind::cudaMemcpyDeviceToDevice => ("device to device", (true, true)),
                    _ => return None,
                };
                let side = |place: &Place| if place.is_device() { "device" } else { "host" };
                (expected != (from.is_device(), to.is_device())).then(|| {
                    let (from, to) = (side(from), side(to));
                    format!("the direction is {name}, but {src:p} is {from} memory and {dst:p} is {to} memory")
                })
            }
            Self::Devices(dst_device, src_device) => {
                let ends = [(dst.cast_const(), to, dst_device), (src, from, src_device)];
                ends.into_iter().find_map(|(ptr, place, device)| match place {
                    Place::Device(used) => used
                        .device()
                        .filter(|&owner| owner != device)
                        .map(|owner| format!("{ptr:p} belongs to device {owner}, not to {device}")),
                    _ => Some(format!("{ptr:p} is no device memory")),
                })
            }
        }
    }

    /// Refuses a copy of memory that is not open to who copies it. That of cudaMalloc is to all: the driver goes by way of devices
    /// that have access.
    fn check(self, name: &str, from: &Place, to: &Place) -> Result<(), cudaError> {
        for (place, is_target, wanted) in [(to, true, Access::ReadWrite), (from, false, Access::Read)] {
            let Place::Device(used) = place else { continue };
            let device = match self {
                Self::Direction { current, .. } if used.is_mapped_by_program() => current,
                Self::Direction { stream, .. } => stream,
                Self::Devices(target, _) if is_target => target,
                Self::Devices(_, source) => source,
            };
            if !used.is_of_malloc() {
                memory::check_access(name, used, device, wanted)?;
            }
        }
        Ok(())
    }
}

impl Work for Copying {
    type Run = Move;

    fn name(&self) -> &'static str {
        self.name
    }

    fn fixed(&self) -> String {
        let of = |address: usize| (usage::is_device(address), usage::device_at(address));
        format!("from {:?} to {:?}", of(self.src.addr()), of(self.dst.addr()))
    }

    fn start(&self) -> Result<Move, cudaError> {
        let Self { name, dst, src, bytes, rule } = *self;
        // Onto itself is no harm.
        if (1..bytes).contains(&dst.addr().abs_diff(src.addr())) {
            return Err(reject(name, format!("{bytes} bytes at {src:p} and at {dst:p} overlap, expected them apart")));
        }
        let (to, from) = (Place::of(name, dst, bytes, true)?, Place::of(name, src, bytes, false)?);
        if let Some(text) = rule.refuses(self, &from, &to) {
            return Err(reject(name, text));
        }
        rule.check(name, &from, &to)?;
        Ok(Move { name, dst, src: Source::Memory(src, from), bytes, to })
    }
}

/// Where the bytes come from when the stream gets there.
enum Source {
    Memory(*const c_void, Place),
    Staged(Box<[MaybeUninit<u8>]>),
}

/// One copy that is ready to run.
struct Move {
    name: &'static str,
    dst: *mut c_void,
    src: Source,
    bytes: usize,
    /// Declared last: the use ends after the pointers went out of use.
    to: Place,
}

// SAFETY: the pointers are to memory that the guards in here keep alive, or that the caller of the copy keeps alive by
// waiting for it, or for the graph; no thread owns any of that.
unsafe impl Send for Move {}

impl Run for Move {
    fn tell<'a>(&'a self, tell: &mut dyn FnMut(Touching<'a>)) {
        let actor = Actor::alone(self.name);
        if let Source::Memory(_, from) = &self.src {
            from.tell(false, actor, tell);
        }
        self.to.tell(true, actor, tell);
    }

    fn run(self: Box<Self>, _: &Running) {
        let src = match &self.src {
            Source::Memory(src, _) => *src,
            Source::Staged(bytes) => bytes.as_ptr().cast(),
        };
        // SAFETY: both ranges were checked when the copy was enqueued, and live as the guards do. They may be the same memory under two
        // addresses, which memmove allows. Other work may touch the same bytes at the same time where the emulated program forgot to order
        // its work; as on a device, the bytes are then unspecified.
        self.to.each(self.dst, |dst| unsafe {
            libc::memmove(dst, src, self.bytes);
        });
    }
}

fn submit(copy: &Copying, stream: &Arc<Stream>) -> Result<(), cudaError> {
    if copy.bytes == 0 {
        return Ok(());
    }
    let mut run = copy.start()?;
    // A graph reads and writes pageable memory when it comes to the copy.
    if stream.captures(copy)? {
        return Ok(());
    }
    let Source::Memory(src, from) = &run.src else { return Ok(()) };
    let (is_pageable, within_host) = (matches!(from, Place::Pageable), !from.is_device() && !run.to.is_device());
    let waits = matches!(run.to, Place::Pageable) || within_host || is_pageable && copy.bytes > STAGED;
    if is_pageable && !waits {
        run.src = Source::Staged(stage(*src, copy.bytes));
    }
    let ticket = stream.push_run(copy.name, Box::new(run))?;
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
