//! Where what is written to a multicast object goes.

use super::object::{self, Held, Multicast};
use super::sides::{Side, Spread};
use crate::lock::lock;
use crate::memory::fault::Fault;
use crate::memory::object::{ALIGN, Object};
use crate::memory::room::Room;
use crate::memory::space::held::{InUse, Part, Target};
use crate::memory::space::{locate, table};
use crate::report;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// As [`locate::hold`], for work that only writes, and so may write to a multicast object.
pub(crate) fn hold(ptr: *const c_void, bytes: usize) -> Result<InUse, Fault> {
    let address = ptr.addr();
    let mapped = if locate::is_reserved(address) { table::at(address) } else { None };
    let Some(mapped) = mapped.filter(|mapped| mapped.is_multicast && bytes > 0) else {
        return locate::hold(ptr, bytes);
    };
    let (base, length) = mapped.span();
    let from = address - base;
    if bytes > length - from {
        return Err(Fault::value(format!("{bytes} bytes at {address:#x} run past the end of {mapped}")));
    }
    let multicast = object::at(base).ok_or_else(|| Fault::value(format!("{mapped} are gone")))?;
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
        let mut known = lock(&self.spread);
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
        let own = lock(&self.own);
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
                // Nobody can see any more what is written there.
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
        for own in lock(&self.own).iter() {
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
                    parts.extend(locate::hold(ptr, (end - begin) as usize).ok().map(Part::Used));
                }
            }
        }
        parts
    }
}
