//! Signals: words of 64 bits in symmetric memory.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::stream::{self, Doing, enqueue};
use crate::cuda::core::work::Running;
use crate::nvshmem::basics::entry::{Outcome, wrong};
use crate::nvshmem::state::heap::Place;
use crate::nvshmem::state::life;
use crate::nvshmem::state::pe::Pe;
use crate::sys::{NVSHMEM_SIGNAL_ADD, NVSHMEM_SIGNAL_SET, cudaStream_t};

/// What is done to a signal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal {
    pub(crate) address: *mut u64,
    pub(crate) value: u64,
    pub(crate) operation: i32,
}

// SAFETY: the pointer is to symmetric memory, which is looked up before it is used.
unsafe impl Send for Signal {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Signal {}

/// The same, at the PE that it is for.
#[derive(Debug)]
pub(crate) struct Given {
    there: *mut u64,
    value: u64,
    adds: bool,
    _place: Place,
}

// SAFETY: the place is kept, and used by atomic operations only.
unsafe impl Send for Given {}

/// A signal of this PE.
fn place(pe: &Pe, address: *const u64) -> Outcome<Place> {
    if !address.addr().is_multiple_of(8) {
        return Err(wrong(format!("the signal at {address:p} is not aligned to 8 bytes")));
    }
    pe.heap.place("the signal", address.cast::<c_void>(), 8)
}

impl Signal {
    /// At PE `other`.
    pub(crate) fn at(&self, pe: &Pe, other: usize) -> Outcome<Given> {
        let adds = match self.operation {
            NVSHMEM_SIGNAL_SET => false,
            NVSHMEM_SIGNAL_ADD => true,
            operation => {
                return Err(wrong(format!(
                    "{operation} is no operation of signals, expected NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD"
                )));
            }
        };
        let place = place(pe, self.address)?;
        Ok(Given { there: pe.heap.at(other, place.offset).cast(), value: self.value, adds, _place: place })
    }
}

impl Given {
    pub(crate) fn give(&self) {
        // SAFETY: the word is aligned and looked up, and kept as long as this lives.
        let word = unsafe { AtomicU64::from_ptr(self.there) };
        if self.adds {
            word.fetch_add(self.value, Ordering::AcqRel);
        } else {
            word.store(self.value, Ordering::Release);
        }
    }
}

/// `nvshmem_signal_fetch`.
pub(crate) fn fetch(address: *mut u64) -> Outcome<u64> {
    let pe = life::pe()?;
    let place = place(&pe, address)?;
    // SAFETY: the word is aligned and looked up, and kept until this returns.
    Ok(unsafe { AtomicU64::from_ptr(pe.heap.at(pe.me(), place.offset).cast()) }.load(Ordering::Acquire))
}

/// A signal by itself, on a stream.
struct Alone(Signal, i32);

impl Doing for Alone {
    type Kept = (Given, usize);

    fn keep(&self, pe: &Arc<Pe>) -> Outcome<Self::Kept> {
        let other = pe.pe(self.1)?;
        Ok((self.0.at(pe, other)?, other))
    }

    fn act(&self, pe: &Arc<Pe>, (given, other): Self::Kept, _: &Running) {
        given.give();
        pe.boot.ring(other);
    }
}

/// `nvshmemx_signal_op_on_stream`.
pub(crate) fn on_stream(signal: Signal, pe: i32, stream: cudaStream_t) -> Outcome {
    enqueue(&life::pe()?, (stream, stream::Place::On), Alone(signal, pe))
}
