//! Multicast objects: a write to their addresses goes to memory of each of their devices.
//!
//! All processes know of an object what stands in its control block, a file of its own: its devices, and what is bound where. An
//! [`Object`] is the end of one process. A write finds its [`Targets`] when it is enqueued: the memory of each device, mapped as it is
//! bound. Everything in a control block is atomic, and zero means "nothing yet".

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::lock::Mutex;
use crate::memory::access::Fault;
use crate::memory::mapped::Physical;
use crate::memory::object::{ALIGN, Location, Object, Room};
use crate::memory::usage::{InUse, Part, Target};
use crate::memory::{mapped, usage};
use crate::report;
use crate::sys::cudaError;
use crate::visible::visible;

/// The most devices of an object.
pub(crate) const MOST_DEVICES: usize = 64;
/// The most that can be bound to one.
const MOST_BINDS: usize = 1024;

/// What lies in the file of an object.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Control {
    /// How many devices there are to be, how many bytes of each, and how it can be shared.
    pub(super) devices: AtomicU32,
    pub(super) handles: AtomicU32,
    pub(super) bytes: AtomicU64,
    /// How often what is bound has changed.
    pub(super) changes: AtomicU64,
    /// The devices that were added: their numbers on the machine, and one.
    added: [AtomicU64; MOST_DEVICES],
    slots: [Slot; MOST_BINDS],
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const BOUND: u32 = 2;

#[repr(C)]
#[derive(Debug)]
struct Slot {
    state: AtomicU32,
    number: AtomicU32,
    pid: AtomicU64,
    at: AtomicU64,
    bytes: AtomicU64,
    place: [AtomicU64; 4],
}

/// Memory that is bound: of which device, by which process, to which bytes of the object, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) number: i32,
    pub(crate) pid: u32,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) place: Location,
}

impl Control {
    /// The numbers of the devices that were added.
    pub(super) fn added(&self) -> Vec<i32> {
        let numbers = self.added.iter().map(|number| number.load(Ordering::Acquire));
        numbers.take_while(|number| *number > 0).map(|number| number as i32 - 1).collect()
    }

    /// Whether all devices were added.
    pub(super) fn is_complete(&self) -> bool {
        self.added().len() >= self.devices.load(Ordering::Relaxed) as usize
    }

    /// Adds a device; an error says why not.
    pub(super) fn add(&self, number: i32) -> Result<(), String> {
        let (devices, mine) = (self.devices.load(Ordering::Relaxed) as usize, number as u64 + 1);
        for place in self.added.iter().take(devices) {
            match place.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(other) if other == mine => return Err(format!("device {number} of the machine was added before")),
                Err(_) => {}
            }
        }
        Err(format!("the object is for {devices} devices, all of which were added"))
    }

    /// Notes that something is bound: the number of its slot, if there is one left.
    pub(super) fn bind(&self, bind: &Bind) -> Option<usize> {
        let take = |slot: &Slot| slot.state.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let number = self.slots.iter().position(take)?;
        let slot = &self.slots[number];
        slot.number.store(bind.number.cast_unsigned(), Ordering::Relaxed);
        slot.pid.store(u64::from(bind.pid), Ordering::Relaxed);
        slot.at.store(bind.at, Ordering::Relaxed);
        slot.bytes.store(bind.bytes, Ordering::Relaxed);
        for (place, word) in slot.place.iter().zip(bind.place.words()) {
            place.store(word, Ordering::Relaxed);
        }
        slot.state.store(BOUND, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
        Some(number)
    }

    pub(super) fn unbind(&self, slot: usize) {
        self.slots[slot].state.store(FREE, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// All that is bound, by any process; and the numbers of their slots.
    pub(super) fn binds(&self) -> Vec<(usize, Bind)> {
        let all = self.slots.iter().enumerate().filter(|(_, slot)| slot.state.load(Ordering::Acquire) == BOUND);
        all.map(|(number, slot)| (number, slot.read())).collect()
    }
}

impl Slot {
    fn read(&self) -> Bind {
        let word = |place: &AtomicU64| place.load(Ordering::Relaxed);
        Bind {
            number: self.number.load(Ordering::Relaxed).cast_signed(),
            pid: word(&self.pid) as u32,
            at: word(&self.at),
            bytes: word(&self.bytes),
            place: Location::from_words(self.place.each_ref().map(word)),
        }
    }
}

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
    MAPPED.lock().get(&base).cloned()
}

/// What began at `base` was taken away.
pub(crate) fn forget(base: usize) {
    let gone = MAPPED.lock().remove(&base);
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
            LIVE.lock().iter().find_map(|live| live.upgrade().filter(|one| one.file.begin().same_object(&begin)));
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
        let mut live = LIVE.lock();
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
        if mapped::at(address).is_some_and(|mapped| !whole(mapped.span())) {
            return Err(Fault::value(format!("{bytes} bytes at {address:#x} are memory of several mappings")));
        }
        let ptr: *const c_void = std::ptr::with_exposed_provenance(address);
        let (place, used) = usage::locate(ptr, bytes as usize)?;
        if used.device() != Some(ordinal) {
            return Err(Fault::value(format!("{address:#x} is memory of another device than {ordinal}")));
        }
        if used.is_of_malloc() {
            return Err(Fault::value(format!("{address:#x} is memory of cudaMalloc, which is not bound")));
        }
        let shareable =
            used.is_of_nccl() || mapped::at(address).is_some_and(|mapped| mapped.physical.nature.handles != 0);
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
        self.own.lock().push(Own { slot, bind, held });
        Ok(())
    }

    /// Takes away what was bound with just these numbers. `Ok(false)`: nothing was.
    pub(crate) fn unbind(&self, ordinal: i32, at: u64, bytes: u64) -> Result<bool, Fault> {
        let number = number_of(ordinal)?;
        let mut own = self.own.lock();
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
        let mut writes = self.writes.lock();
        writes.retain(|write| write.strong_count() > 0);
        writes.push(Arc::downgrade(&write));
        write
    }

    /// How many writes of this process are under way to any of these bytes.
    fn under_way(&self, from: u64, to: u64) -> usize {
        let writes = self.writes.lock();
        writes.iter().filter_map(Weak::upgrade).filter(|write| write.from < to && from < write.to).count()
    }

    /// Maps it to `base`; `bytes` is all of it.
    pub(crate) fn map(self: &Arc<Self>, base: usize, bytes: usize) -> Result<(), Fault> {
        mapped::map_multicast(base, bytes, &self.stands)?;
        MAPPED.lock().insert(base, Arc::clone(self));
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
        let own = std::mem::take(&mut *self.own.lock());
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
    match all.iter().find(|(_, value)| !value.is_multiple_of(mapped::GRANULARITY as u64)) {
        Some((what, value)) => {
            Err(Fault::value(format!("the {what} is {value}, expected a multiple of {}", mapped::GRANULARITY)))
        }
        None => Ok(()),
    }
}

/// The memory of each device of an object, side by side as it is bound. It stays mapped while work uses it.
#[derive(Debug)]
pub(super) struct Spread {
    /// As of which change.
    pub(super) changes: u64,
    pub(super) devices: Vec<Side>,
}

/// That of one device.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) number: i32,
    pub(super) room: Room,
    /// What is bound: from, to.
    pub(super) filled: Vec<(u64, u64)>,
    /// Whether some of it was bound by a process that is gone.
    pub(super) orphaned: bool,
}

impl Side {
    pub(super) fn covers(&self, from: u64, to: u64) -> bool {
        let mut next = from;
        while next < to {
            match self.filled.iter().find(|(begin, end)| *begin <= next && next < *end) {
                Some((_, end)) => next = *end,
                None => return false,
            }
        }
        true
    }
}

/// As [`usage::hold`], for work that only writes, and so may write to a multicast object.
pub(crate) fn hold(ptr: *const c_void, bytes: usize) -> Result<InUse, Fault> {
    let address = ptr.addr();
    let mapped = if usage::is_reserved(address) { mapped::at(address) } else { None };
    let Some(mapped) = mapped.filter(|mapped| mapped.is_multicast && bytes > 0) else {
        return usage::hold(ptr, bytes);
    };
    let (base, length) = mapped.span();
    let from = address - base;
    if bytes > length - from {
        return Err(Fault::value(format!("{bytes} bytes at {address:#x} run past the end of {mapped}")));
    }
    let multicast = at(base).ok_or_else(|| Fault::value(format!("{mapped} are gone")))?;
    let spread = multicast.spread()?;
    let (from, to) = (from as u64, (from + bytes) as u64);
    let mut targets = Vec::new();
    for side in &spread.devices {
        if side.covers(from, to) {
            targets.push(Target::new(side.room.base() + from as usize));
        } else if !side.orphaned {
            let text = format!(
                "{bytes} bytes at {from} of a multicast object, where device {} has nothing bound",
                side.number
            );
            return Err(Fault::value(text));
        }
    }
    let parts = multicast.parts(from, to);
    let write = multicast.write(from, to, spread);
    Ok(InUse::spread(mapped, address, bytes, targets, parts, write))
}

impl Multicast {
    /// What writes go to now.
    fn spread(&self) -> Result<Arc<Spread>, Fault> {
        let mut known = self.spread.lock();
        let changes = self.control().changes.load(Ordering::Acquire);
        if let Some(spread) = known.as_ref().filter(|spread| spread.changes == changes) {
            return Ok(Arc::clone(spread));
        }
        let spread = Arc::new(Spread { changes, devices: self.sides()? });
        *known = Some(Arc::clone(&spread));
        Ok(spread)
    }

    fn sides(&self) -> Result<Vec<Side>, Fault> {
        let cannot = |error| Fault::value(format!("memory of a multicast object cannot be mapped: {error}"));
        let bytes = self.shape().bytes as usize;
        let mut sides = Vec::new();
        for number in self.control().added() {
            let room = Room::new(bytes, ALIGN).map_err(cannot)?;
            sides.push(Side { number, room, filled: Vec::new(), orphaned: false });
        }
        let own = self.own.lock();
        for (_, bind) in self.control().binds() {
            let Some(side) = sides.iter_mut().find(|side| side.number == bind.number) else { continue };
            let (address, length) = (side.room.base() + bind.at as usize, bind.bytes as usize);
            let mine = own.iter().find(|own| own.bind == bind);
            let mapped = match mine.map(|own| &own.held) {
                Some(Held::Physical(physical)) => physical.map_at(&side.room, address, bind.place.offset, length),
                _ => Object::open(&bind.place)
                    .and_then(|object| object.map_at(&side.room, address, bind.place.offset, length)),
            };
            match mapped {
                Ok(()) => side.filled.push((bind.at, bind.at + bind.bytes)),
                // The process that bound this memory has ended, so no process can read what is written there.
                Err(error) if mine.is_none() => {
                    side.orphaned = true;
                    report::line(format!("what process {} has bound to a multicast object is gone: {error}", bind.pid));
                }
                Err(error) => return Err(cannot(error)),
            }
        }
        Ok(sides)
    }

    /// What this process has bound of a range, for those who look for races.
    fn parts(&self, from: u64, to: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        for own in self.own.lock().iter() {
            let (begin, end) = (own.bind.at.max(from), (own.bind.at + own.bind.bytes).min(to));
            if begin >= end {
                continue;
            }
            let offset = begin - own.bind.at;
            match &own.held {
                Held::Physical(physical) => {
                    let start = own.bind.place.offset + offset;
                    parts.push(Part::Physical(Arc::clone(physical), start..start + (end - begin)));
                }
                Held::Address(_, address) => {
                    let ptr = std::ptr::with_exposed_provenance(address + offset as usize);
                    parts.extend(usage::hold(ptr, (end - begin) as usize).ok().map(Part::Used));
                }
            }
        }
        parts
    }
}
