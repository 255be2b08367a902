//! A multicast object, as one process has it.

use super::control::{Bind, Control, MOST_DEVICES};
use super::sides::Spread;
use crate::lock::lock;
use crate::memory::fault::Fault;
use crate::memory::object::{ALIGN, Location, Object};
use crate::memory::room::Room;
use crate::memory::space::held::InUse;
use crate::memory::space::physical::Physical;
use crate::memory::space::{locate, table};
use crate::report;
use crate::sys::cudaError;
use crate::visible::visible;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

/// The bit in the label of files of multicast objects.
const MARK: u64 = 1 << 62;

/// What an object is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) devices: u32,
    pub(crate) bytes: u64,
    /// The kinds of handles that it may be exported as: a bit for each.
    pub(crate) handles: u32,
}

/// What this process has bound.
#[derive(Debug)]
pub(super) struct Own {
    slot: usize,
    pub(super) bind: Bind,
    pub(super) held: Held,
}

/// What keeps memory there while it is bound.
#[derive(Debug)]
pub(super) enum Held {
    Physical(Arc<Physical>),
    /// Bound by its address: to free it, or to take it away from there, is a mistake.
    Address(#[allow(dead_code, reason = "it is dropped")] InUse, usize),
}

/// One process's end of a multicast object. The object lives as long as anybody has it.
#[derive(Debug)]
pub(crate) struct Multicast {
    file: Object,
    /// Where the file is mapped.
    room: Room,
    /// Stands for the object where it is mapped.
    stands: Arc<Physical>,
    pub(super) own: Mutex<Vec<Own>>,
    /// What writes go to, as of the last change that was seen.
    pub(super) spread: Mutex<Option<Arc<Spread>>>,
    /// What this process writes, as long as it does.
    pub(super) writes: Mutex<Vec<Weak<Write>>>,
}

/// A write that is queued, or under way: its bytes of the object, and what keeps those mapped.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) _keeps: Arc<Spread>,
}

/// The objects of this process that are alive.
static LIVE: Mutex<Vec<Weak<Multicast>>> = Mutex::new(Vec::new());
/// Which are mapped where.
static MAPPED: Mutex<BTreeMap<usize, Arc<Multicast>>> = Mutex::new(BTreeMap::new());

/// The object whose addresses begin at `base`.
pub(super) fn at(base: usize) -> Option<Arc<Multicast>> {
    lock(&MAPPED).get(&base).cloned()
}

/// What began at `base` was taken away.
pub(crate) fn forget(base: usize) {
    let gone = lock(&MAPPED).remove(&base);
    drop(gone);
}

/// Whether a file is that of a multicast object.
pub(crate) fn is_one(file: &Object) -> bool {
    file.label() & MARK != 0 && file.label() >> 63 == 0
}

fn failed(error: io::Error) -> Fault {
    Fault { cuda: cudaError::cudaErrorMemoryAllocation, text: format!("a multicast object: {error}") }
}

impl Multicast {
    pub(crate) fn new(ordinal: i32, shape: Shape) -> Result<Arc<Self>, Fault> {
        let Shape { devices, bytes, handles } = shape;
        if devices == 0 || devices as usize > MOST_DEVICES {
            return Err(Fault::value(format!("{devices} devices, expected 1 to {MOST_DEVICES}")));
        }
        multiples(&[("size", bytes)])?;
        if bytes == 0 {
            return Err(Fault::value("the size is 0, expected some bytes"));
        }
        let number = visible().get(ordinal as usize).copied().unwrap_or(-1);
        let file = Object::labelled(number, ALIGN as u64, MARK | u64::from(handles)).map_err(failed)?;
        Self::of(file, ordinal, |control| {
            control.devices.store(devices, Ordering::Relaxed);
            control.handles.store(handles, Ordering::Relaxed);
            control.bytes.store(bytes, Ordering::Relaxed);
        })
    }

    /// The object whose file another process has sent, or this one.
    pub(crate) fn import(file: Object, ordinal: i32) -> Result<Arc<Self>, Fault> {
        let begin = file.begin();
        let known =
            lock(&LIVE).iter().find_map(|live| live.upgrade().filter(|one| one.file.begin().same_object(&begin)));
        match known {
            Some(known) => Ok(known),
            None => Self::of(file, ordinal, |_| ()),
        }
    }

    fn of(file: Object, ordinal: i32, prepare: impl FnOnce(&Control)) -> Result<Arc<Self>, Fault> {
        const { assert!(size_of::<Control>() <= ALIGN) };
        let room = Room::new(ALIGN, ALIGN).map_err(failed)?;
        file.map_at(&room, room.base(), 0, ALIGN).map_err(failed)?;
        // SAFETY: the room holds that many bytes, all atomics, of which any bits are values.
        let control = unsafe { &*std::ptr::with_exposed_provenance::<Control>(room.base()) };
        prepare(control);
        let stands = Physical::none(ordinal, control.bytes.load(Ordering::Relaxed)).map_err(failed)?;
        let (own, spread, writes) = (Mutex::default(), Mutex::default(), Mutex::default());
        let made = Arc::new(Self { file, room, stands, own, spread, writes });
        let mut live = lock(&LIVE);
        live.retain(|live| live.strong_count() > 0);
        live.push(Arc::downgrade(&made));
        Ok(made)
    }

    pub(super) fn control(&self) -> &Control {
        // SAFETY: as in `of`; it is mapped as long as this lives.
        unsafe { &*std::ptr::with_exposed_provenance::<Control>(self.room.base()) }
    }

    pub(crate) fn shape(&self) -> Shape {
        let control = self.control();
        Shape {
            devices: control.devices.load(Ordering::Relaxed),
            bytes: control.bytes.load(Ordering::Relaxed),
            handles: control.handles.load(Ordering::Relaxed),
        }
    }

    /// A descriptor by which another process can import it.
    pub(crate) fn export(&self) -> io::Result<OwnedFd> {
        self.file.share()
    }

    pub(crate) fn add(&self, ordinal: i32) -> Result<(), Fault> {
        self.control().add(number_of(ordinal)?).map_err(Fault::value)
    }

    /// Whether all devices were added: before that, binds and mappings do not return.
    pub(crate) fn is_complete(&self) -> bool {
        self.control().is_complete()
    }

    /// Refuses a device that was not added.
    pub(crate) fn has(&self, ordinal: i32) -> Result<(), Fault> {
        if self.control().added().contains(&number_of(ordinal)?) {
            return Ok(());
        }
        let text = format!("device {ordinal} was not added to the object");
        Err(Fault { cuda: cudaError::cudaErrorInvalidDevice, text })
    }

    /// How many devices were added.
    pub(crate) fn added(&self) -> usize {
        self.control().added().len()
    }

    /// Whether `ordinal` is a device of it, and so many bytes from `at` on are its.
    pub(crate) fn check(&self, ordinal: i32, at: u64, bytes: u64) -> Result<(), Fault> {
        let (shape, number) = (self.shape(), number_of(ordinal)?);
        multiples(&[("offset in the object", at), ("size", bytes)])?;
        if bytes == 0 || at.checked_add(bytes).is_none_or(|end| end > shape.bytes) {
            return Err(Fault::value(format!("{bytes} bytes at {at} of an object of {} bytes", shape.bytes)));
        }
        let binds = self.control().binds();
        let over = binds
            .iter()
            .find(|(_, other)| other.number == number && other.at < at + bytes && at < other.at + other.bytes);
        match over {
            Some((_, other)) => {
                let text =
                    format!("{bytes} bytes at {at}, where device {ordinal} has {} bound at {}", other.bytes, other.at);
                Err(Fault::value(text))
            }
            None => Ok(()),
        }
    }

    /// Binds `bytes` bytes of `physical` from `from` on to those at `at`.
    pub(crate) fn bind(&self, physical: Arc<Physical>, at: u64, from: u64, bytes: u64) -> Result<(), Fault> {
        multiples(&[("offset in the memory", from)])?;
        if from.checked_add(bytes).is_none_or(|end| end > physical.bytes()) {
            return Err(Fault::value(format!("{bytes} bytes at {from} of {physical}")));
        }
        if self.shape().handles != 0 && physical.nature.handles == 0 {
            return Err(Fault::value(format!("{physical}, which cannot be shared, and the object can")));
        }
        let place = Location { offset: from, ..physical.begin() };
        physical.bound.fetch_add(1, Ordering::AcqRel);
        self.enter(physical.nature.ordinal, at, bytes, place, Held::Physical(physical))
    }

    /// Binds what lies at an address of the program to the bytes at `at`.
    pub(crate) fn bind_address(&self, ordinal: i32, at: u64, address: usize, bytes: u64) -> Result<(), Fault> {
        multiples(&[("address", address as u64)])?;
        let whole = |(base, length): (usize, usize)| bytes <= (base + length - address) as u64;
        if table::at(address).is_some_and(|mapped| !whole(mapped.span())) {
            return Err(Fault::value(format!("{bytes} bytes at {address:#x} are memory of several mappings")));
        }
        let ptr: *const c_void = std::ptr::with_exposed_provenance(address);
        let (place, used) = locate::locate(ptr, bytes as usize)?;
        if used.device() != Some(ordinal) {
            return Err(Fault::value(format!("{address:#x} is memory of another device than {ordinal}")));
        }
        if used.is_of_malloc() {
            return Err(Fault::value(format!("{address:#x} is memory of cudaMalloc, which is not bound")));
        }
        let shareable =
            used.is_of_nccl() || table::at(address).is_some_and(|mapped| mapped.physical.nature.handles != 0);
        if self.shape().handles != 0 && !shareable {
            return Err(Fault::value(format!("{address:#x} is memory that cannot be shared, and the object can")));
        }
        self.enter(ordinal, at, bytes, place, Held::Address(used, address))
    }

    fn enter(&self, ordinal: i32, at: u64, bytes: u64, place: Location, held: Held) -> Result<(), Fault> {
        let bind = Bind { number: number_of(ordinal)?, pid: std::process::id(), at, bytes, place };
        let Some(slot) = self.control().bind(&bind) else {
            return Err(Fault { cuda: cudaError::cudaErrorMemoryAllocation, text: "no more can be bound".into() });
        };
        lock(&self.own).push(Own { slot, bind, held });
        Ok(())
    }

    /// Takes away what was bound with just these numbers. `Ok(false)`: nothing was.
    pub(crate) fn unbind(&self, ordinal: i32, at: u64, bytes: u64) -> Result<bool, Fault> {
        let number = number_of(ordinal)?;
        let mut own = lock(&self.own);
        let exact = |own: &Own| (own.bind.number, own.bind.at, own.bind.bytes) == (number, at, bytes);
        let Some(found) = own.iter().position(exact) else { return Ok(false) };
        let gone = own.swap_remove(found);
        drop(own);
        let writes = self.under_way(at, at + bytes);
        if writes > 0 {
            report::violation(format!(
                "cuMulticastUnbind takes {bytes} bytes at {at} of device {ordinal} away while {writes} queued or running operations write there"
            ));
        }
        self.control().unbind(gone.slot);
        if gone.held.let_go() {
            return Err(Fault::value("the memory was unmapped before it was unbound, which B200s do not take"));
        }
        Ok(true)
    }

    /// A write to these bytes begins, which lasts as long as what is returned.
    pub(super) fn write(&self, from: u64, to: u64, spread: Arc<Spread>) -> Arc<Write> {
        let write = Arc::new(Write { from, to, _keeps: spread });
        let mut writes = lock(&self.writes);
        writes.retain(|write| write.strong_count() > 0);
        writes.push(Arc::downgrade(&write));
        write
    }

    /// How many writes of this process are under way to any of these bytes.
    fn under_way(&self, from: u64, to: u64) -> usize {
        let writes = lock(&self.writes);
        writes.iter().filter_map(Weak::upgrade).filter(|write| write.from < to && from < write.to).count()
    }

    /// Maps it to `base`; `bytes` is all of it.
    pub(crate) fn map(self: &Arc<Self>, base: usize, bytes: usize) -> Result<(), Fault> {
        table::map_multicast(base, bytes, &self.stands)?;
        lock(&MAPPED).insert(base, Arc::clone(self));
        Ok(())
    }
}

impl Held {
    /// It is no longer bound. Whether it was unmapped before.
    fn let_go(&self) -> bool {
        let Self::Physical(physical) = self else { return false };
        let last = physical.bound.fetch_sub(1, Ordering::AcqRel) == 1;
        if last { physical.torn.swap(false, Ordering::AcqRel) } else { physical.torn.load(Ordering::Acquire) }
    }
}

impl Drop for Multicast {
    fn drop(&mut self) {
        let own = std::mem::take(&mut *lock(&self.own));
        if !own.is_empty() {
            report::violation(format!(
                "a multicast object is released to which {} pieces of memory are bound",
                own.len()
            ));
        }
        for own in own {
            self.control().unbind(own.slot);
            own.held.let_go();
        }
    }
}

fn number_of(ordinal: i32) -> Result<i32, Fault> {
    let number = usize::try_from(ordinal).ok().and_then(|at| visible().get(at).copied());
    number
        .ok_or_else(|| Fault { cuda: cudaError::cudaErrorInvalidDevice, text: format!("there is no device {ordinal}") })
}

/// Refuses what is no multiple of the granularity.
fn multiples(all: &[(&str, u64)]) -> Result<(), Fault> {
    match all.iter().find(|(_, value)| !value.is_multiple_of(table::GRANULARITY as u64)) {
        Some((what, value)) => {
            Err(Fault::value(format!("the {what} is {value}, expected a multiple of {}", table::GRANULARITY)))
        }
        None => Ok(()),
    }
}
