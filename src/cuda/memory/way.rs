//! The way of a copy: who can get at both ends, and the call.

use std::ffi::c_void;

use super::allocated::region::Region;
use crate::cuda::devices::check::check_on;
use crate::cuda::devices::current::CurrentDevice;
use crate::cuda::order::in_flight::ENTRY;
use crate::cuda::order::stream::Stream;
use crate::cuda::order::uses::Access;
use crate::error::{Error, Result};
use crate::sys;

/// Checks that the device of `stream` can get at `region`, which CUDA looks at during the life of what is returned.
pub(crate) fn reached(
    operation: &'static str,
    region: Region<'_>,
    access: Access,
    stream: &Stream,
) -> Result<Option<CurrentDevice>> {
    if region.alloc.serves(stream.device(), access) {
        return seen(operation, &[region], stream);
    }
    let does = if access == Access::Read { "read" } else { "write to" };
    let expected = format!("one of a device that may {does} {}", region.alloc.who());
    Err(Error::argument(operation, "stream", expected, format_args!("one of {}", stream.device())))
}

/// Mapped memory is for CUDA what the current device sees of it, whatever stream a copy is for.
#[inline]
fn seen(operation: &'static str, regions: &[Region<'_>], stream: &Stream) -> Result<Option<CurrentDevice>> {
    let mapped = regions.iter().any(|region| region.alloc.shown().is_some());
    mapped.then(|| stream.device().make_current(operation)).transpose()
}

/// The way of a copy on `stream`: the one that its device can go alone, else between the devices that hold the memory, if it is one of
/// those. It is to be gone during the life of what else is returned.
pub(crate) fn way_between(
    operation: &'static str,
    to: Region<'_>,
    from: Region<'_>,
    stream: &Stream,
) -> Result<(Way, Option<CurrentDevice>)> {
    let goes = |to_device, from_device| {
        to.alloc.serves(to_device, Access::Write) && from.alloc.serves(from_device, Access::Read)
    };
    let (device, to_device, from_device) = (stream.device(), to.device(), from.device());
    let current = || seen(operation, &[to, from], stream);
    if goes(device, device) {
        return Ok((Way::OnDevice, current()?));
    }
    if to_device != from_device && [to_device, from_device].contains(&device) && goes(to_device, from_device) {
        return Ok((Way::Between(to_device.ordinal(), from_device.ordinal()), current()?));
    }
    let (to, from) = (to.alloc.who(), from.alloc.who());
    let expected = if to_device == from_device {
        format!("one of a device that may write to {to}, and read {from}")
    } else {
        format!("one of {to_device} or {from_device}, for a copy to {to}, from {from}")
    };
    Err(Error::argument(operation, "stream", expected, format_args!("one of {device}")))
}

/// From where to where.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    ToDevice,
    ToHost,
    OnDevice,
    /// To the first device, from the second.
    Between(i32, i32),
}

/// Wraps `cudaMemcpyAsync` and `cudaMemcpyPeerAsync`, for which the caller has made room, and counts it.
///
/// # Safety
/// `bytes` at `to` and `from` lie where `way` says, do not overlap, and stay allocated until the stream is done with
/// the copy; host memory is pinned. The stream was ordered after conflicting accesses.
pub(crate) unsafe fn enqueue(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    way: Way,
    stream: &Stream,
) -> Result<()> {
    let kind = match way {
        Way::ToDevice => sys::cudaMemcpyKind::cudaMemcpyHostToDevice,
        Way::ToHost => sys::cudaMemcpyKind::cudaMemcpyDeviceToHost,
        Way::OnDevice => sys::cudaMemcpyKind::cudaMemcpyDeviceToDevice,
        Way::Between(to_device, from_device) => {
            // SAFETY: as the caller promises.
            let code = unsafe { sys::cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream.raw()) };
            stream.count(ENTRY);
            return check_on(stream.device().ordinal(), "cudaMemcpyPeerAsync", code);
        }
    };
    // SAFETY: as the caller promises.
    let code = unsafe { sys::cudaMemcpyAsync(to, from, bytes, kind, stream.raw()) };
    stream.count(ENTRY);
    check_on(stream.device().ordinal(), "cudaMemcpyAsync", code)
}
