//! Symmetric heaps: memory that each of several processes has alike, at offsets that are the same in all.
//!
//! Each lies in an object of its own. That of this process is made once for a device, and used by one set of processes after the
//! other; those of others are mapped when they are needed, and stay. Who uses a heap says where its allocations lie, in all
//! heaps of its set alike: so a pointer into that of another process is checked here too.

use super::heap::{self, Heap};
use super::map::{self, Kind};
use super::object::{Location, Object};
use crate::lock::Mutex;
use crate::memory::heap::{Arena, Ground};
use crate::visible::visible;
use std::io;

/// All heaps that this process has mapped. They last as long as it.
static ALL: Mutex<Vec<&'static Heap>> = Mutex::new(Vec::new());

/// The heap with this number.
pub(crate) fn heap(number: usize) -> Option<&'static Heap> {
    ALL.lock().get(number).copied()
}

/// Where the memory of a heap begins.
pub(crate) fn begin(heap: &Heap) -> Option<Location> {
    heap.ground.arena().ok().map(Arena::begin)
}

/// The heap of this process that begins on a device: as much as the device has, of which no page is used before it is written.
pub(crate) fn own(ordinal: i32) -> io::Result<&'static Heap> {
    let device = heap::of(ordinal).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let number = device.ground.number;
    let mut all = ALL.lock();
    let mine = |begin: Location| begin.pid == std::process::id() && begin.device == number;
    if let Some(known) = all.iter().find(|heap| begin(heap).is_some_and(mine)) {
        return Ok(known);
    }
    add(&mut all, ordinal, Object::new(number, device.ground.total)?)
}

/// The heap of another process, or of this one, whose object begins there.
pub(crate) fn of(place: &Location, ordinal: i32) -> io::Result<&'static Heap> {
    let mut all = ALL.lock();
    if let Some(known) = all.iter().find(|heap| begin(heap).is_some_and(|begin| begin.same_object(place))) {
        return Ok(known);
    }
    let near = visible().iter().position(|&number| number == place.device).map_or(ordinal, |found| found as i32);
    add(&mut all, near, Object::open(place)?)
}

fn add(all: &mut Vec<&'static Heap>, ordinal: i32, object: Object) -> io::Result<&'static Heap> {
    let base = map::add(&object, Kind::Symmetric { heap: all.len() })?;
    let heap: &'static Heap = Box::leak(Box::new(Heap::on(Ground::of(ordinal, Arena::mapped(object, base)))));
    all.push(heap);
    Ok(heap)
}
