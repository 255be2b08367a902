//! A multicast object as this process has it, in whatever state, and how it is taken down.

use std::sync::Arc;
use std::time::Duration;

use super::bound::Bound;
use super::functions::functions;
use super::patience::bounded;
use super::properties::ObjectProperties;
use super::votes::{MAP, Party, decided, nobody_else};
use crate::cuda::devices::check::check_on;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::owners;
use crate::cuda::devices::settle::settle;
use crate::cuda::devices::thread::{is_off_limits, outside_host_functions};
use crate::cuda::vmm::functions::{self as memory, code};
use crate::cuda::vmm::{AddressRange, Granularity};
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};

/// A multicast object: its handle, and what this process has bound and mapped.
pub(super) struct Object {
    pub(super) raw: u64,
    pub(super) properties: ObjectProperties,
    pub(super) steps: Granularity,
    /// The devices that this process has added.
    pub(super) devices: Vec<Device>,
    pub(super) bindings: Vec<Binding>,
    pub(super) views: Vec<View>,
    pub(super) timeout: Option<Duration>,
    /// Those who have it in common.
    pub(super) party: Option<Party>,
    /// They may have mapped it, and write to what is bound here.
    pub(super) shown: bool,
    /// A call of the driver has not returned, which may still use it.
    pub(super) stuck: bool,
}

/// What was bound in one call.
pub(super) struct Binding {
    pub(super) device: Device,
    pub(super) at: usize,
    pub(super) bytes: usize,
    pub(super) memory: Arc<Bound>,
}

/// Where the object is mapped for a device.
pub(super) struct View {
    pub(super) device: Device,
    pub(super) range: AddressRange,
}

impl Object {
    pub(super) fn new(raw: u64, properties: ObjectProperties, steps: Granularity) -> Box<Self> {
        Box::new(Self {
            raw,
            properties,
            steps,
            devices: Vec::new(),
            bindings: Vec::new(),
            views: Vec::new(),
            timeout: None,
            party: None,
            shown: false,
            stuck: false,
        })
    }

    /// The deadline of a call that begins now.
    pub(super) fn deadline(&self) -> Deadline {
        let shared = self.party.as_ref().map(|party| party.exchange.timeout());
        Deadline::after(self.timeout.or(shared).unwrap_or_else(default_timeout))
    }

    /// The device by which it is looked after.
    fn device(&self) -> Option<Device> {
        self.devices.first().copied()
    }

    fn memory(&self) -> Vec<Arc<Bound>> {
        self.bindings.iter().map(|binding| Arc::clone(&binding.memory)).collect()
    }

    /// Waits until the devices are done with what is bound.
    pub(super) fn settle(&self, operation: &'static str, deadline: &Deadline) -> Result<()> {
        let memory = self.memory();
        deadline.poll(operation, || "uses of memory that is bound".to_owned(), || all_done(&memory))
    }

    /// What is bound for a device, in the order of the object.
    pub(super) fn bound_for(&self, device: Device) -> Vec<(usize, usize)> {
        let of_it = self.bindings.iter().filter(|binding| binding.device == device);
        let mut all: Vec<_> = of_it.map(|binding| (binding.at, binding.at + binding.bytes)).collect();
        all.sort_unstable();
        all
    }

    /// Unmaps, unbinds and releases it, in this order, and then lets go of the memory: the first error, after all was tried. What cannot be
    /// unmapped or unbound stays, with what it uses.
    fn take_down(&mut self) -> Result<()> {
        let mut result = Ok(());
        while let Some(view) = self.views.pop() {
            let done = self.unmap(&view);
            if done.is_err() {
                // Something is still there.
                std::mem::forget(view);
            }
            result = result.and(done);
        }
        let (mut memory, mut is_free) = (Vec::new(), true);
        while let Some(binding) = self.bindings.pop() {
            let done = self.unbind(&binding);
            if done.is_ok() {
                memory.push(binding.memory);
            } else {
                // It is bound as before: whoever writes to the object writes there.
                std::mem::forget(binding.memory);
                is_free = false;
            }
            result = result.and(done);
        }
        if is_free {
            result = result.and(self.release());
        }
        self.raw = 0;
        result
    }

    fn release(&self) -> Result<()> {
        let device = self.device().map_or(0, Device::ordinal);
        let release = memory::release("cuMemRelease")?;
        // SAFETY: a handle that was given to us, once.
        check_on(device, "cuMemRelease", code(unsafe { release(self.raw) }))
    }

    fn unmap(&self, view: &View) -> Result<()> {
        let unmap = memory::unmap("cuMemUnmap")?;
        // SAFETY: it was mapped there in one call, and no device uses it any more.
        let result = unsafe { unmap(view.range.base(), view.range.bytes()) };
        check_on(view.device.ordinal(), "cuMemUnmap", code(result))
    }

    /// Just what was bound.
    pub(super) fn unbind(&self, binding: &Binding) -> Result<()> {
        const FUNCTION: &str = "cuMulticastUnbind";
        let unbind = functions(FUNCTION)?.unbind;
        let device = binding.device.ordinal();
        // SAFETY: a live object, and what was bound to it in one call with these numbers.
        let result = unsafe { unbind(self.raw, device, binding.at, binding.bytes) };
        check_on(device, FUNCTION, code(result))
    }

    /// Ends it in order: all ranks have come where they have it in common and mapped, and the devices are done. The first error, after all
    /// was tried that can be.
    pub(super) fn close(self: Box<Self>, operation: &'static str) -> Result<()> {
        if let Err(error) = outside_host_functions(operation) {
            self.leave();
            return Err(error);
        }
        let settled = if self.stuck {
            let reason = "a call of the driver has not returned that uses the object: it is left behind".to_owned();
            Err(Error::InvalidUsage { operation, reason })
        } else {
            self.settle(operation, &self.deadline())
        };
        let agreed = match &self.party {
            Some(party) if self.shown => {
                let vote = party.ask(operation, &settled);
                if !vote.as_ref().is_ok_and(nobody_else) {
                    // Nobody takes away what others may still write to. The exchange stays as well: as long as this process lives, this
                    // rank has not ended.
                    let decided = vote.and_then(|vote| decided(operation, &party.exchange, &vote));
                    std::mem::forget(self);
                    return settled.and(decided);
                }
                vote.and_then(|vote| decided(operation, &party.exchange, &vote))
            }
            Some(party) => {
                // So that the others do not take what this rank votes on next for its yes.
                let reason = "the object is closed before it was mapped".to_owned();
                let _ = party.ask(MAP, &Err(Error::InvalidUsage { operation, reason }));
                Ok(())
            }
            None => Ok(()),
        };
        if let Err(error) = settled {
            self.leave();
            return Err(error);
        }
        let deadline = self.deadline();
        let mut object = self;
        let down = bounded(operation, &deadline, "all devices are idle", drop, move || {
            let ready = object.device().map_or(Ok(()), settle);
            ready.and_then(|()| object.take_down())
        });
        agreed.and(down.and_then(|done| done))
    }

    /// Ends it when the devices are done, perhaps later, on a thread of this crate.
    pub(super) fn leave(self: Box<Self>) {
        if self.stuck || self.shown {
            // The driver may be in a call that uses it; or others may write to it, whom nobody can ask here.
            std::mem::forget(self);
            return;
        }
        match self.device() {
            // With the first binding that thread was started.
            Some(device) if !self.bindings.is_empty() || !self.views.is_empty() => {
                let memory = self.memory();
                owners::drop_later(self, device, Box::new(move || all_done(&memory)));
            }
            _ if is_off_limits() => std::mem::forget(self),
            _ => drop(self),
        }
    }
}

fn all_done(memory: &[Arc<Bound>]) -> Result<bool> {
    memory.iter().try_fold(true, |all, one| Ok(all && one.is_done()?))
}

impl Drop for Object {
    fn drop(&mut self) {
        // Of one that was closed nothing is left.
        if self.raw != 0 {
            let _ = self.take_down();
        }
    }
}
