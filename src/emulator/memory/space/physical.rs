//! Physical memory: an object of its own, that may be mapped anywhere, any number of times.

use crate::emulator::lock::lock;
use crate::emulator::memory::fault::Fault;
use crate::emulator::memory::object::{ALIGN, Object};
use crate::emulator::memory::room::Room;
use crate::emulator::memory::{heap, poison};
use crate::emulator::races::touches::Touches;
use crate::emulator::settings::settings;
use crate::emulator::visible::visible;
use crate::sys::cudaError;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
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
            Ok(object) => Ok(enter(Self {
                object,
                nature,
                touches: Touches::default(),
                lent: true,
                exported: AtomicBool::new(false),
            })),
            Err(error) => {
                heap.ground.restore(bytes);
                Err(out_of_memory(&error.to_string()))
            }
        }
    }

    /// The memory behind a descriptor, which stays with the caller.
    pub(crate) fn import(fd: OwnedFd) -> Result<Arc<Self>, Fault> {
        let object = Object::adopt(fd).map_err(|error| Fault::value(error.to_string()))?;
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
        Ok(enter(Self { object, nature, touches: Touches::default(), lent: false, exported: AtomicBool::new(true) }))
    }

    /// A descriptor by which another process can import it.
    pub(crate) fn export(&self) -> io::Result<OwnedFd> {
        self.exported.store(true, Ordering::Relaxed);
        self.object.share()
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
