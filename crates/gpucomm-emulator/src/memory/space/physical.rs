//! Physical memory: an object of its own, that may be mapped anywhere, any number of times.

use crate::lock::lock;
use crate::memory::fault::Fault;
use crate::memory::object::{ALIGN, Location, Object};
use crate::memory::room::Room;
use crate::memory::{heap, poison};
use crate::races::touches::Touches;
use crate::settings::settings;
use crate::sys::cudaError;
use crate::visible::visible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// What physical memory is: of which device, and what else was asked for when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nature {
    /// As this process counts.
    pub ordinal: i32,
    /// The kinds of handles that it may be exported as: a bit for each.
    pub handles: u32,
    /// Network cards may reach it.
    pub rdma: bool,
}

/// A piece of physical memory. It ends with the last handle and the last mapping, of any process.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(super) object: Object,
    pub(crate) nature: Nature,
    /// What its bytes were used for, under whatever addresses.
    pub(crate) touches: Touches,
    /// The device counts it as used: it was made by this process.
    lent: bool,
    exported: AtomicBool,
    /// How many multicast objects it is bound to by this process.
    pub(crate) bound: AtomicUsize,
    /// Whether it was unmapped while it was bound.
    pub(crate) torn: AtomicBool,
}

/// What this process has made or imported, and may still have.
static LIVE: Mutex<Vec<Weak<Physical>>> = Mutex::new(Vec::new());

impl Physical {
    /// New memory of `bytes` bytes.
    pub(crate) fn new(bytes: u64, nature: Nature) -> Result<Arc<Self>, Fault> {
        let heap = heap::of(nature.ordinal).ok_or_else(|| no_device(nature.ordinal))?;
        let out_of_memory = |why: &str| Fault {
            cuda: cudaError::cudaErrorMemoryAllocation,
            text: format!("{bytes} bytes of device {}: {why}", nature.ordinal),
        };
        if !heap.ground.lend(bytes) {
            return Err(out_of_memory("it has not as many"));
        }
        let label = u64::from(nature.handles) | u64::from(nature.rdma) << 32;
        let made = Object::labelled(heap.ground.number, bytes, label).and_then(|object| {
            soil(&object, bytes as usize)?;
            Ok(object)
        });
        match made {
            Ok(object) => Ok(enter(Self::of(object, nature, true))),
            Err(error) => {
                heap.ground.restore(bytes);
                Err(out_of_memory(&error.to_string()))
            }
        }
    }

    fn of(object: Object, nature: Nature, lent: bool) -> Self {
        let (exported, bound, torn) = (AtomicBool::new(!lent), AtomicUsize::new(0), AtomicBool::new(false));
        Self { object, nature, touches: Touches::default(), lent, exported, bound, torn }
    }

    /// What stands for so many bytes that are no memory: addresses of a multicast object. `ordinal` is that of a device of it.
    pub(crate) fn none(ordinal: i32, bytes: u64) -> io::Result<Arc<Self>> {
        let number = usize::try_from(ordinal).ok().and_then(|at| visible().get(at).copied()).unwrap_or(-1);
        let nature = Nature { ordinal, handles: 0, rdma: false };
        Ok(Arc::new(Self::of(Object::new(number, bytes)?, nature, false)))
    }

    /// The memory that is an object of another process.
    pub(crate) fn import(object: Object) -> Result<Arc<Self>, Fault> {
        let begin = object.begin();
        let known = lock(&LIVE)
            .iter()
            .find_map(|live| live.upgrade().filter(|physical| physical.object.begin().same_object(&begin)));
        if let Some(known) = known {
            return Ok(known);
        }
        let ordinal = visible().iter().position(|&number| number == begin.device);
        let ordinal = ordinal.ok_or_else(|| no_device(begin.device))? as i32;
        let label = object.label();
        let nature = Nature { ordinal, handles: label as u32, rdma: label >> 32 != 0 };
        Ok(enter(Self::of(object, nature, false)))
    }

    /// A descriptor by which another process can import it.
    pub(crate) fn export(&self) -> io::Result<OwnedFd> {
        self.exported.store(true, Ordering::Relaxed);
        self.object.share()
    }

    /// Where it begins, for other processes.
    pub(crate) fn begin(&self) -> Location {
        self.object.begin()
    }

    /// Maps a part of it to `address` and up, in room that is empty there.
    pub(crate) fn map_at(&self, room: &Room, address: usize, offset: u64, bytes: usize) -> io::Result<()> {
        self.object.map_at(room, address, offset, bytes)
    }

    /// How much it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.object.begin().bytes
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // Others of NCCL may have it mapped for good. What was exported may be in use wherever the descriptor went.
        if !*self.exported.get_mut() {
            self.object.punch(0, self.bytes());
        }
        if self.lent
            && let Some(heap) = heap::of(self.nature.ordinal)
        {
            heap.ground.restore(self.bytes());
        }
    }
}

fn enter(physical: Physical) -> Arc<Physical> {
    let physical = Arc::new(physical);
    let mut live = lock(&LIVE);
    live.retain(|live| live.strong_count() > 0);
    live.push(Arc::downgrade(&physical));
    physical
}

fn no_device(device: i32) -> Fault {
    let text = format!("it belongs to device {device}, which this process does not have");
    Fault { cuda: cudaError::cudaErrorInvalidDevice, text }
}

/// Leaves in new memory what [`poison`] has for it.
fn soil(object: &Object, bytes: usize) -> io::Result<()> {
    if settings().strict {
        let room = Room::new(bytes, ALIGN)?;
        object.map_at(&room, room.base(), 0, bytes)?;
        // SAFETY: the range was just mapped, and nobody else knows the object.
        unsafe { poison::fill(std::ptr::with_exposed_provenance_mut(room.base()), bytes) };
    }
    Ok(())
}

impl std::fmt::Display for Physical {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of device {}", self.bytes(), self.nature.ordinal)
    }
}
