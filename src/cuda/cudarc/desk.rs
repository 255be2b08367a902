//! Memory of cudarc while it is lent.

use std::ptr;
use std::sync::{Arc, PoisonError};

use cudarc::driver::{CudaStream, DeviceSlice};
use smallvec::SmallVec;

use super::held::{Held, RECORDING};
use super::pair::{Pair, device_of};
use crate::cuda::memory::allocated::allocation::Allocation;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::bytes::bytes_of;
use crate::cuda::order::in_flight::ENTRY;
use crate::cuda::order::uses::Access;
use crate::deadline::{Deadline, default_timeout};
use crate::element::Element;
use crate::error::{Error, Result};

/// The method that lends.
pub(super) const LEND: &str = "SharedStream::lend";

/// What cudarc enqueues on the stream for one piece of memory at most, before its uses: waits for two events, or for its home.
const BEFORE: u64 = 3 * ENTRY;

/// And after: waits again, and an event that is recorded, or two.
const AFTER: u64 = 4 * ENTRY;

/// One piece on the desk: its number there, its address and its length.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub(super) number: usize,
    pub(super) address: Address,
    pub(super) len: usize,
}

/// One piece of memory that is lent.
struct Part<'m> {
    /// Who uses it while it is lent.
    memory: Allocation,
    held: Box<dyn Held + 'm>,
    /// The stream on which cudarc frees it, and all that has used it, where cudarc keeps no events.
    home: Arc<CudaStream>,
    /// Whether cudarc kept events when it was lent.
    events: bool,
}

/// What is lent in one bracket.
pub(super) struct Desk<'m> {
    pair: Pair,
    parts: SmallVec<[Part<'m>; 2]>,
    open: bool,
}

impl<'m> Desk<'m> {
    /// An empty one, of this stream.
    pub(super) fn new(pair: Pair) -> Self {
        Self { pair, parts: SmallVec::new(), open: true }
    }

    /// Has the stream wait for what conflicts with `view`; from now on it counts as used there.
    pub(super) fn put<T: Element>(&mut self, view: impl Held + DeviceSlice<T> + 'm) -> Result<Place> {
        let Pair { ours, theirs } = &self.pair;
        let (home, len) = (Arc::clone(view.stream()), view.len());
        let device = device_of(LEND, &home)?;
        if device != ours.device() || home.context().cu_ctx() != theirs.context().cu_ctx() {
            let expected = format!("memory of {}", ours.device());
            return Err(Error::argument(LEND, "memory", expected, format_args!("memory of {device}")));
        }
        let bytes = bytes_of::<T>(LEND, len)?;
        ours.room_or_part(BEFORE + AFTER, LEND, default_timeout(), || None)?;
        let events = self.pair.keeps_events(&home);
        let mut held: Box<dyn Held + 'm> = Box::new(view);
        let address = held.wait(theirs);
        if !events && home != *theirs {
            theirs.join(&home).map_err(|error| self.pair.failed("cuStreamWaitEvent", error))?;
        }
        ours.count(BEFORE);
        let misaligned =
            |address| Error::argument(LEND, "memory", format_args!("a multiple of {}", align_of::<T>()), address);
        let number = usize::try_from(address).map_err(|_| misaligned(address))?;
        if !number.is_multiple_of(align_of::<T>()) {
            return Err(misaligned(address));
        }
        let address = Address::new(ptr::with_exposed_provenance_mut(number));
        let memory = Allocation::lent(address, bytes, device);
        // Other streams come after what this one waits for.
        memory.note(Access::Write, ours);
        self.parts.push(Part { memory, held, home, events });
        Ok(Place { number: self.parts.len() - 1, address, len })
    }

    pub(super) fn allocation(&self, place: Place) -> &Allocation {
        &self.parts[place.number].memory
    }

    /// The stream comes after all uses, and cudarc's events are recorded there.
    pub(super) fn close(mut self) -> Result<()> {
        self.settle()
    }

    fn settle(&mut self) -> Result<()> {
        self.open = false;
        let Pair { ours, theirs } = &self.pair;
        let mut result: Result<()> = Ok(());
        for part in &mut self.parts {
            if let Err(error) = part.memory.return_to(ours) {
                // In no order with this stream: it stays lent until it is used no more.
                let deadline = Deadline::after(default_timeout());
                let done =
                    deadline.poll(LEND, || "what uses memory of cudarc".to_owned(), || part.memory.tracker().is_done());
                result = result.and(Err(error));
                result = result.and(done);
            }
        }
        for part in &mut self.parts {
            let _recording = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
            part.held.record(theirs);
            ours.count(AFTER);
            let (home, events) = (Arc::clone(&part.home), part.events);
            // Asked again after that: it has recorded nothing if the last stream of the context went meanwhile.
            if !(events && self.pair.keeps_events(&home)) && home != *theirs {
                result = result.and(home.join(theirs).map_err(|error| self.pair.failed("cuStreamWaitEvent", error)));
            }
        }
        result = result.and(self.pair.told());
        if result.is_err() {
            // Nothing tells cudarc of the uses: they are done when it goes on.
            result = result.and(ours.synchronize());
        }
        result
    }
}

impl Drop for Desk<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = self.settle();
        }
    }
}
