//! Binding memory, and unbinding just what was bound.

use std::any::Any;
use std::sync::Arc;

use super::bound::Bound as Kept;
use super::functions::{BindAddress, BindMemory, check, functions, refused};
use super::object::{Binding, Object};
use super::part::{BindSource, Source};
use super::patience::{bounded_call, persist};
use super::state::{Bound, Complete, Mapped, Multicast};
use super::votes::MAP;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::owners;
use crate::cuda::devices::thread::outside_host_functions;
use crate::cuda::memory::allocated::region::Region;
use crate::cuda::vmm::{HandleTypes, PhysicalMemory, handles_at, held_by};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::refusal::Refusal;
use crate::sys;

const BIND: &str = "Multicast::bind";

impl Multicast<Complete> {
    /// Wraps `cuMulticastBindMem` or `cuMulticastBindAddr`, in the version that names the device where the driver has it: binds memory of a device
    /// of this process. What is written to these bytes of the object comes to that memory from then on.
    ///
    /// The memory stays as long as it is bound. Where it is a buffer, what was asked of it before is waited for.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, BindSource};
    /// # use gpucomm::cuda::vmm::PhysicalMemory;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let device = Device::new(0)?;
    /// let complete = Multicast::single_process(&[device], 1 << 20)?;
    /// let memory = PhysicalMemory::new(device, complete.properties().bytes())?;
    /// let bound = complete.bind(BindSource::memory(&memory))?;
    /// # bound.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a device that this process has not added, for offsets and sizes that are no multiples of
    /// the least step or lie outside, and where something is bound already; [`Multicast`](Error::Multicast) for memory that cannot be shared,
    /// where the object can, where the driver is out of memory, the fabric in the wrong state, or the system not ready;
    /// [`Timeout`](Error::Timeout) where the driver does not return, as a device is missing; what CUDA says. The object is gone then, and the
    /// other ranks of it are told. Where the driver has not returned, memory that it binds later stays for good.
    #[doc(alias("cuMulticastBindMem", "cuMulticastBindAddr"))]
    pub fn bind(self, part: BindSource<'_>) -> Result<Multicast<Bound>> {
        let mut object = self.into_object();
        match bind(&mut object, part) {
            Ok(()) => Ok(Multicast::of(object)),
            Err(error) => Err(given_up(object, error)),
        }
    }

    /// As [`Multicast::bind`], for several pieces of memory: the first of each device from the start of the object on, further ones behind it.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::Multicast;
    /// # use gpucomm::cuda::vmm::PhysicalMemory;
    /// # use gpucomm::{Device, Result};
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let devices = Device::all()?;
    /// let complete = Multicast::single_process(&devices, 1 << 20)?;
    /// let bytes = complete.properties().bytes();
    /// let memory = devices.iter().map(|device| PhysicalMemory::new(*device, bytes)).collect::<Result<Vec<_>>>()?;
    /// let mapped = complete.bind_all(&memory)?.map()?;
    /// # mapped.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there; [`InvalidArgument`](Error::InvalidArgument) for no memory.
    pub fn bind_all(self, memory: &[PhysicalMemory]) -> Result<Multicast<Bound>> {
        let mut object = self.into_object();
        if memory.is_empty() {
            let error = Error::argument("Multicast::bind_all", "memory", "some memory", "none");
            return Err(given_up(object, error));
        }
        for one in memory {
            let at = object.bound_for(one.device()).last().map_or(0, |(_, end)| *end);
            if let Err(error) = bind(&mut object, BindSource::memory(one).at(at)) {
                return Err(given_up(object, error));
            }
        }
        Ok(Multicast::of(object))
    }
}

macro_rules! more {
    ($($state:ident)*) => {$(
        impl Multicast<$state> {
            /// As [`Multicast::bind`]; where it fails, the object stays as it was, but for a [`Timeout`](Error::Timeout) of the driver: what was to
            /// be bound may be bound later, without anybody's knowing, and then stays for good, as does the object, which can no more be closed.
            ///
            /// # Errors
            /// As there.
            pub fn bind_more(&mut self, part: BindSource<'_>) -> Result<()> {
                bind(self.object_mut(), part)
            }

            /// Wraps `cuMulticastUnbind`: takes away what was bound for a device in one call, at these bytes of the object, just as it was bound.
            /// Waits until the devices are done with it.
            ///
            /// # Errors
            /// [`InvalidArgument`](Error::InvalidArgument) where nothing that was bound begins there; [`InvalidUsage`](Error::InvalidUsage) where
            /// ranks have mapped the object in common, as others may write there; [`Timeout`](Error::Timeout) where the devices are not done;
            /// what CUDA says. The memory stays bound then.
            #[doc(alias = "cuMulticastUnbind")]
            pub fn unbind(&mut self, device: Device, at: usize) -> Result<()> {
                unbind(self.object_mut(), device, at)
            }
        }
    )*};
}

more! { Bound Mapped }

/// Tells the other ranks, which come to a vote when they have mapped it, and ends it.
fn given_up(object: Box<Object>, error: Error) -> Error {
    if let Some(party) = &object.party {
        let _ = party.ask(MAP, &Err(error.clone()));
    }
    object.leave();
    error
}

fn bind(object: &mut Object, part: BindSource<'_>) -> Result<()> {
    outside_host_functions(BIND)?;
    let device = part.device();
    if !object.devices.contains(&device) {
        let expected = format!("memory of a device that this process has added: {:?}", object.devices);
        return Err(Error::argument(BIND, "memory", expected, format_args!("memory of {device}")));
    }
    let bytes = checked(object, &part)?;
    // Who will take it down where the devices are not done with it.
    owners::start(BIND)?;
    let deadline = object.deadline();
    let (raw, at) = (object.raw, part.at);
    let (function, call, memory): (_, Box<dyn Fn() -> sys::CUresult + Send + Sync>, _) = match part.source {
        Source::Memory(memory) => {
            let kept = Kept::memory(BIND, memory)?;
            ("cuMulticastBindMem", by_handle(raw, device, at, (memory.as_raw(), part.skip), bytes)?, kept)
        }
        Source::Region(region) => {
            let kept = Kept::allocation(BIND, region.alloc)?;
            let address = region.ptr().addr() + part.skip;
            deadline.poll(BIND, || "uses of the memory that is to be bound".to_owned(), || kept.is_done())?;
            ("cuMulticastBindAddr", by_address(raw, device, at, address as u64, bytes)?, kept)
        }
    };
    let call = Arc::new(call);
    let result = persist(&deadline, || {
        let (call, keeps) = (Arc::clone(&call), Arc::clone(&memory) as Arc<dyn Any + Send + Sync>);
        let code = bounded_call(BIND, device, &deadline, keeps, move || call())?;
        check(function, device, code, || format!("{bytes} bytes at {at}"))
    });
    match result {
        Ok(()) => {
            object.bindings.push(Binding { device, at, bytes, memory });
            Ok(())
        }
        Err(error) => {
            object.stuck |= matches!(error, Error::Timeout { .. });
            Err(error)
        }
    }
}

fn by_handle(
    raw: u64,
    device: Device,
    at: usize,
    (memory, skip): (u64, usize),
    bytes: usize,
) -> Result<Box<dyn Fn() -> sys::CUresult + Send + Sync>> {
    let ordinal = device.ordinal();
    Ok(match functions(BIND)?.bind_memory {
        // SAFETY: a live object and live memory, which the caller keeps, and numbers that were checked.
        BindMemory::First(bind) => Box::new(move || unsafe { bind(raw, at, memory, skip, bytes, 0) }),
        // SAFETY: as above; the device was added.
        BindMemory::Second(bind) => Box::new(move || unsafe { bind(raw, ordinal, at, memory, skip, bytes, 0) }),
    })
}

fn by_address(
    raw: u64,
    device: Device,
    at: usize,
    address: u64,
    bytes: usize,
) -> Result<Box<dyn Fn() -> sys::CUresult + Send + Sync>> {
    let ordinal = device.ordinal();
    Ok(match functions(BIND)?.bind_address {
        // SAFETY: a live object, and so many bytes of memory, which the caller keeps; numbers that were checked.
        BindAddress::First(bind) => Box::new(move || unsafe { bind(raw, at, address, bytes, 0) }),
        // SAFETY: as above; the device was added.
        BindAddress::Second(bind) => Box::new(move || unsafe { bind(raw, ordinal, at, address, bytes, 0) }),
    })
}

/// How many bytes are to be bound, if that can be.
fn checked(object: &Object, part: &BindSource<'_>) -> Result<usize> {
    let (step, all, has, device) = (object.steps.minimum, object.properties.bytes(), part.has(), part.device());
    let bytes = part.bytes.unwrap_or_else(|| has.saturating_sub(part.skip).min(all.saturating_sub(part.at)));
    let mut numbers = vec![("at", part.at), ("skip", part.skip), ("bytes", bytes)];
    if let Source::Region(region) = &part.source {
        numbers.push(("address", region.ptr().addr()));
    }
    if let Some((what, number)) = numbers.iter().find(|(_, number)| !number.is_multiple_of(step)) {
        return Err(Error::argument(BIND, what, format_args!("a multiple of {step}"), number));
    }
    let inside = |from: usize, of: usize| bytes > 0 && from.checked_add(bytes).is_some_and(|end| end <= of);
    let wrong = |expected: String, from: usize| {
        Err(Error::argument(BIND, "bytes", expected, format_args!("{bytes} bytes from {from} on")))
    };
    if !inside(part.at, all) {
        return wrong(format!("some of the {all} bytes of the object"), part.at);
    }
    if !inside(part.skip, has) {
        return wrong(format!("some of the {has} bytes of the memory"), part.skip);
    }
    let end = part.at + bytes;
    if let Some((from, to)) = object.bound_for(device).into_iter().find(|(from, to)| *from < end && part.at < *to) {
        return wrong(format!("bytes of which none are bound for {device}: {from} to {to} are"), part.at);
    }
    if object.properties.handle_types() != HandleTypes::NONE && !is_shareable(part)? {
        let detail = format!("memory of {device}, for {}", object.properties);
        return Err(refused(BIND, Refusal::NotShareable, detail));
    }
    Ok(bytes)
}

/// Whether memory can be shared with other processes, as the driver says.
fn is_shareable(part: &BindSource<'_>) -> Result<bool> {
    let _current = part.device().bind(BIND)?;
    match part.source {
        Source::Memory(memory) => {
            Ok(held_by(BIND, memory.device(), memory.as_raw())?.handle_types() != HandleTypes::NONE)
        }
        Source::Region(Region { address, .. }) => {
            Ok(handles_at(BIND, address.ptr()).is_some_and(|handles| handles != HandleTypes::NONE))
        }
    }
}

fn unbind(object: &mut Object, device: Device, at: usize) -> Result<()> {
    const OPERATION: &str = "Multicast::unbind";
    outside_host_functions(OPERATION)?;
    if object.shown {
        let reason = "other ranks may write there: all close it together".to_owned();
        return Err(Error::InvalidUsage { operation: OPERATION, reason });
    }
    let found = object.bindings.iter().position(|binding| (binding.device, binding.at) == (device, at));
    let Some(found) = found else {
        let expected = format!("where something begins that is bound for {device}: {:?}", object.bound_for(device));
        return Err(Error::argument(OPERATION, "at", expected, at));
    };
    let deadline: Deadline = object.deadline();
    object.settle(OPERATION, &deadline)?;
    object.unbind(&object.bindings[found])?;
    drop(object.bindings.swap_remove(found));
    Ok(())
}
