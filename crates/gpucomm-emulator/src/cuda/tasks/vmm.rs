//! Physical memory and multicast objects by their handles, and what programs map themselves.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cuda::core::device;
use crate::lock::Mutex;
use crate::memory::access::Fault;
use crate::memory::mapped::{Nature, Physical};
use crate::memory::multicast::Multicast;
use crate::memory::object::Object;
use crate::memory::{mapped, multicast};
use crate::refusals::Step;
use crate::settings::settings;
use crate::sys::cudaError;
use crate::{fault, report};

/// What a handle is one of.
#[derive(Debug, Clone)]
pub(crate) enum Thing {
    Physical(Arc<Physical>),
    Multicast(Arc<Multicast>),
}

/// What the program has a handle of, and how often: once, and whenever it was retained, less releases.
#[derive(Debug)]
struct Owned {
    thing: Thing,
    times: u64,
}

/// By their handles, which are never used twice.
#[derive(Debug)]
struct Handles {
    all: BTreeMap<u64, Owned>,
    last: u64,
}

static HANDLES: Mutex<Handles> = Mutex::new(Handles { all: BTreeMap::new(), last: 0 });

/// A new handle.
pub(crate) fn own(thing: Thing) -> u64 {
    let mut handles = HANDLES.lock();
    // Multiples of 16, as if it pointed to something, and with bits that no pointer has.
    handles.last += 1;
    let handle = 0x56 << 56 | handles.last << 4;
    handles.all.insert(handle, Owned { thing, times: 1 });
    handle
}

/// The memory behind a handle.
pub(crate) fn physical(handle: u64) -> Result<Arc<Physical>, Fault> {
    match thing(handle)? {
        Thing::Physical(physical) => Ok(physical),
        Thing::Multicast(_) => {
            Err(Fault::value(format!("{handle:#x} is the handle of a multicast object, expected memory")))
        }
    }
}

/// The multicast object behind a handle.
pub(crate) fn multicast(handle: u64) -> Result<Arc<Multicast>, Fault> {
    match thing(handle)? {
        Thing::Multicast(multicast) => Ok(multicast),
        Thing::Physical(_) => {
            Err(Fault::value(format!("{handle:#x} is the handle of memory, expected a multicast object")))
        }
    }
}

/// What is behind a handle.
pub(crate) fn thing(handle: u64) -> Result<Thing, Fault> {
    HANDLES.lock().all.get(&handle).map(|owned| owned.thing.clone()).ok_or_else(|| no_handle(handle))
}

fn no_handle(handle: u64) -> Fault {
    Fault::value(format!("{handle:#x} is no handle of memory: released, or never given"))
}

/// Wraps `cuMemCreate`.
pub(crate) fn create(bytes: u64, nature: Nature) -> Result<u64, Fault> {
    let device = device::device(nature.ordinal).map_err(|cuda| Fault { cuda, text: "the device".into() })?;
    device.check().map_err(|cuda| Fault { cuda, text: format!("device {} is lost", nature.ordinal) })?;
    if bytes == 0 || !bytes.is_multiple_of(mapped::GRANULARITY as u64) {
        let text = format!("the size is {bytes}, expected a multiple of {}", mapped::GRANULARITY);
        return Err(Fault::value(text));
    }
    if fault::on_alloc(device.number(), bytes as usize) {
        let text = format!("{bytes} bytes of device {}", nature.ordinal);
        return Err(Fault { cuda: cudaError::cudaErrorMemoryAllocation, text });
    }
    Physical::new(bytes, nature).map(|made| own(Thing::Physical(made)))
}

/// Wraps `cuMemRelease`: the memory stays as long as it is mapped.
pub(crate) fn release(handle: u64) -> Result<(), Fault> {
    let mut handles = HANDLES.lock();
    let owned = handles.all.get_mut(&handle).ok_or_else(|| no_handle(handle))?;
    owned.times -= 1;
    let gone = if owned.times == 0 { handles.all.remove(&handle) } else { None };
    drop(handles);
    drop(gone);
    Ok(())
}

/// Wraps `cuMemRetainAllocationHandle`: a handle that the program has, or a new one where it has none.
pub(crate) fn retain(address: usize) -> Result<u64, Fault> {
    let mapped = mapped::at(address).filter(|mapped| !mapped.is_multicast);
    let physical = mapped.ok_or_else(|| nothing_at(address))?.physical.clone();
    let mut handles = HANDLES.lock();
    let is_it = |thing: &Thing| matches!(thing, Thing::Physical(known) if Arc::ptr_eq(known, &physical));
    let known = handles.all.iter_mut().find(|(_, owned)| is_it(&owned.thing));
    if let Some((&handle, owned)) = known {
        owned.times += 1;
        return Ok(handle);
    }
    drop(handles);
    Ok(own(Thing::Physical(physical)))
}

/// Nothing is mapped at an address.
pub(crate) fn nothing_at(address: usize) -> Fault {
    Fault::value(format!("nothing is mapped at {address:#x}"))
}

/// Wraps `cuMemImportFromShareableHandle` for a descriptor.
pub(crate) fn import(fd: OwnedFd) -> Result<u64, Fault> {
    let file = Object::adopt(fd).map_err(|error| Fault::value(error.to_string()))?;
    if multicast::is_one(&file) {
        refuse(Step::Import)?;
        return Multicast::import(file, device::current_device()).map(|one| own(Thing::Multicast(one)));
    }
    Physical::import(file).map(|one| own(Thing::Physical(one)))
}

/// Wraps `cuMemUnmap`: waits for nothing, so the memory must not be in use there.
pub(crate) fn unmap(base: usize, bytes: usize) -> Result<(), Fault> {
    for mapped in mapped::unmap(base, bytes)? {
        if mapped.is_multicast {
            multicast::forget(mapped.span().0);
        } else if mapped.physical.bound.load(Ordering::Acquire) > 0 {
            mapped.physical.torn.store(true, Ordering::Release);
        }
        if let Some(unseen) = mapped.physical.touches.unseen(&mapped.all(), mapped.span().0) {
            report::violation(format!("cuMemUnmap takes {mapped} away: {unseen}"));
        }
        let uses = mapped.uses();
        if uses > 0 {
            let ordinal = mapped.physical.nature.ordinal;
            report::violation(format!(
                "cuMemUnmap takes {mapped} away while {uses} queued or running operations use it"
            ));
            if let Ok(device) = device::device(ordinal) {
                device.fail(cudaError::cudaErrorIllegalAddress);
            }
        }
    }
    Ok(())
}

/// Fails where the program has asked for that.
pub(crate) fn refuse(step: Step) -> Result<(), Fault> {
    match settings().multicast.code(step) {
        Some(code) => Err(Fault { cuda: cudaError(code), text: "as GPUCOMM_EMULATOR_MULTICAST asks for".into() }),
        None => Ok(()),
    }
}
