//! What a communicator takes of the memory of its device.
//!
//! NCCL counts it since 2.29.7, and can give back what it has for its peers, until it is asked to go on. Before that, and what it takes for
//! anything else, is not there. As NCCL's, that of a communicator which ends while it is suspended is lost: what should free all of it stops
//! at the first part that is not mapped.

use std::ffi::c_void;
use std::sync::Mutex;

use crate::bugs::Nccl;
use crate::cuda::tasks::memory;
use crate::lock::lock;
use crate::memory::block::Origin;
use crate::nccl::basics::error::{Failure, Outcome, cuda};
use crate::settings::settings;

/// The first version that counts it.
const FIRST: Nccl = 2_29_07;

/// Bytes that stay, and for each rank bytes that can be given back.
const PERSISTENT: usize = 96 << 10;
const PER_RANK: usize = 128 << 10;

/// That of one communicator, and of those that share its resources.
#[derive(Debug)]
pub(crate) struct Memory(Mutex<Held>);

#[derive(Debug)]
struct Held {
    device: i32,
    /// Addresses, of what there is.
    persistent: Option<usize>,
    suspendable: Option<usize>,
    /// Bytes of what can be given back, whether it is or not.
    bytes: usize,
    is_suspended: bool,
    sharers: usize,
}

impl Default for Memory {
    fn default() -> Self {
        let held = Held { device: 0, persistent: None, suspendable: None, bytes: 0, is_suspended: false, sharers: 1 };
        Self(Mutex::new(held))
    }
}

fn allocate(device: i32, bytes: usize) -> Outcome<usize> {
    let failed = |error| cuda(&format!("{bytes} bytes on device {device} for a communicator"), error);
    memory::allocate(device, bytes, Origin::Malloc).map(|memory| memory.expose_provenance()).map_err(failed)
}

fn free(address: usize) {
    let memory: *mut c_void = std::ptr::with_exposed_provenance_mut(address);
    // The device may be lost.
    let _ = memory::unmap(memory);
}

impl Memory {
    /// A communicator of so many ranks starts; where it shares, all of it is there.
    pub(crate) fn take(&self, device: i32, ranks: usize) -> Outcome {
        let mut held = lock(&self.0);
        if settings().nccl < FIRST || held.bytes > 0 {
            return Ok(());
        }
        held.device = device;
        held.persistent = Some(allocate(device, PERSISTENT)?);
        held.suspendable = Some(allocate(device, ranks * PER_RANK)?);
        held.bytes = ranks * PER_RANK;
        Ok(())
    }

    /// One more shares it.
    pub(super) fn share(&self) {
        lock(&self.0).sharers += 1;
    }

    /// Whether several share it.
    pub(crate) fn is_shared(&self) -> bool {
        lock(&self.0).sharers > 1
    }

    /// One has ended that has it: the last one frees it.
    pub(crate) fn leave(&self) {
        let mut held = lock(&self.0);
        held.sharers = held.sharers.saturating_sub(1);
        if held.sharers == 0 {
            held.free();
        }
    }

    /// Whether it was given back.
    pub(crate) fn is_suspended(&self) -> bool {
        lock(&self.0).is_suspended
    }

    /// Gives back what can be.
    pub(crate) fn suspend(&self) {
        let mut held = lock(&self.0);
        held.suspendable.take().into_iter().for_each(free);
        held.is_suspended = true;
    }

    /// Takes it again, which others may have taken; it counts as suspended until [`Memory::wake`].
    pub(crate) fn resume(&self) -> Outcome {
        let mut held = lock(&self.0);
        if held.suspendable.is_none() {
            held.suspendable = Some(allocate(held.device, held.bytes)?);
        }
        Ok(())
    }

    /// All ranks have it again.
    pub(crate) fn wake(&self) {
        lock(&self.0).is_suspended = false;
    }

    /// `ncclCommMemStats`.
    pub(crate) fn statistic(&self, which: u32) -> Outcome<u64> {
        let held = lock(&self.0);
        let persistent = held.persistent.map_or(0, |_| PERSISTENT);
        match which {
            0 => Ok(held.bytes as u64),
            1 => Ok(u64::from(held.is_suspended)),
            2 => Ok(persistent as u64),
            3 => Ok((held.bytes + persistent) as u64),
            other => Err(Failure::argument(format!("{other} is no statistic"))),
        }
    }
}

impl Held {
    fn free(&mut self) {
        if !self.is_suspended {
            self.persistent.take().into_iter().chain(self.suspendable.take()).for_each(free);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Of one that has not started with the others.
        self.0.get_mut().unwrap_or_else(|held| held.into_inner()).free();
    }
}
