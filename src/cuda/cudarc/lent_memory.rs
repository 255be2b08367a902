//! Memory of cudarc while it is lent.

use std::sync::Arc;
use std::{mem, process, ptr};

use cudarc::driver::{CudaStream, DeviceSlice};
use smallvec::SmallVec;

use super::held::{Held, RECORDING};
use super::pair::{Pair, device_of, is_of_thread};
use crate::cuda::memory::allocated::allocation::Allocation;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::bytes::bytes_of;
use crate::cuda::order::in_flight::ENTRY;
use crate::cuda::order::mark::Mark;
use crate::cuda::order::ranged::Span;
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

/// One piece on the lent: its number there, its address and its length.
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
    /// The stream that has it first and last; where cudarc keeps no events, all that has used it is there.
    home: Arc<CudaStream>,
    /// Whether cudarc kept events when it was lent.
    events: bool,
}

/// What is lent in one bracket.
pub(super) struct LentMemory<'m> {
    pair: Pair,
    parts: SmallVec<[Part<'m>; 2]>,
    open: bool,
}

impl<'m> LentMemory<'m> {
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
        if is_of_thread(&home) {
            // Who drops it may be another thread, whose stream is another one.
            let expected = "memory of a stream that all threads see";
            return Err(Error::argument(LEND, "memory", expected, "memory of the default stream of a thread"));
        }
        let bytes = bytes_of::<T>(LEND, len)?;
        ours.room_or_part(BEFORE + AFTER, LEND, default_timeout, || None)?;
        let events = self.pair.keeps_events(&home);
        let mut held: Box<dyn Held + 'm> = Box::new(view);
        let address = held.wait(theirs);
        if home != *theirs {
            // Events do not tell when the memory is there: its home does, and all uses where there are no events.
            self.pair.not_captured(LEND, &home)?;
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
        memory.note(Span::ALL, Access::Write, ours);
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
        let Self { pair, parts, .. } = self;
        // What is told below is of what is done here.
        let mut result = pair.told();
        let returned =
            |part: &mut Part<'_>| pair.ours.not_captured(LEND).and_then(|()| part.memory.return_to(&pair.ours));
        parts.retain_mut(|part| match returned(part) {
            Ok(()) => true,
            Err(error) => {
                // In no order with this stream.
                until_unused(|| part.memory.tracker().is_done());
                result = mem::replace(&mut result, Ok(())).and(Err(error));
                false
            }
        });
        if parts.is_empty() {
            return result;
        }
        let told = pair.ours.not_captured(LEND).and_then(|()| parts.iter_mut().try_for_each(|part| part.tell(pair)));
        if told.is_err() {
            // Nothing tells cudarc of the uses: they are done when it goes on.
            let mut mark = None;
            until_unused(|| {
                if mark.is_none() {
                    pair.ours.not_captured(LEND)?;
                    mark = Some(pair.ours.mark()?);
                }
                mark.as_ref().map_or(Ok(false), Mark::reached)
            });
        }
        result.and(told)
    }
}

impl Part<'_> {
    /// What cudarc enqueues on any stream comes after what `pair` was given.
    fn tell(&mut self, pair: &Pair) -> Result<()> {
        let Pair { ours, theirs } = pair;
        let _recording = RECORDING.lock();
        self.held.record(theirs);
        ours.count(AFTER);
        pair.told()?;
        // Asked again after that: it has recorded nothing if the last stream of the context went meanwhile.
        let events = self.events && pair.keeps_events(&self.home);
        // cudarc frees the memory there, whatever its events say by then: it looks at them only while its context has a stream that it has made, and
        // whether the home is one, or was wrapped, it does not tell.
        if self.home != *theirs {
            pair.not_captured(LEND, &self.home)?;
            self.home.join(theirs).map_err(|error| pair.failed("cuStreamWaitEvent", error))?;
        }
        if !events {
            // The context of the memory may keep them all the same: other streams look at these alone.
            self.held.record(&self.home);
            self.home.context().check_err().map_err(|error| pair.failed("cudarc", error))?;
        }
        Ok(())
    }
}

/// Waits until memory that was lent is used no more, or its device is lost. Where that cannot be known within the default timeout, the process ends: who goes on
/// would write to memory that is in use, or free it.
fn until_unused(mut is_done: impl FnMut() -> Result<bool>) {
    let mut last = None;
    let waited = Deadline::after(default_timeout()).until(|| match is_done() {
        Ok(true) | Err(Error::DeviceLost { .. }) => Ok(Some(())),
        Ok(false) => Ok(None),
        Err(error) => {
            last = Some(error);
            Ok(None)
        }
    });
    if !matches!(waited, Ok(Some(()))) {
        let why = last.map_or_else(
            || "it is in use, or a stream that uses it is being captured".to_owned(),
            |error| error.to_string(),
        );
        eprintln!("gpucomm: {LEND}: memory of cudarc cannot be given back after {:?}: {why}", default_timeout());
        process::abort();
    }
}

impl Drop for LentMemory<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = self.settle();
        }
    }
}
