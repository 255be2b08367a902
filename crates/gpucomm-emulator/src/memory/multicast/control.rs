//! What all processes know of a multicast object. Everything in it is atomic, and zero means "nothing yet".

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::memory::object::Location;

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
