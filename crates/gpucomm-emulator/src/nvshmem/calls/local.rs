//! The local end of a transfer: memory of this PE, of its devices or of the host.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::cuda::tasks::host::{self, PinnedUse};
use crate::memory::usage;
use crate::memory::usage::InUse;
use crate::nvshmem::basics::{Outcome, wrong};
use crate::nvshmem::state::pe::Pe;
use crate::races::{Actor, Touching};
use crate::report;
use crate::settings::settings;

/// Memory that is used, as long as this lives.
#[derive(Debug)]
pub(crate) enum Local {
    Device(InUse),
    Pinned(PinnedUse),
    /// The caller registered it, and vouches for it until it is unregistered.
    Registered,
}

impl Local {
    /// What lies at `ptr`: `bytes` bytes of a device, pinned or registered.
    pub(crate) fn of(pe: &Pe, what: &str, ptr: *const c_void, bytes: usize) -> Outcome<Self> {
        if bytes == 0 {
            return Ok(Self::Registered);
        }
        if let Some((owner, _)) = pe.heap.find(ptr.addr()).filter(|&(owner, _)| owner != pe.me()) {
            return Err(wrong(format!(
                "{what}: {ptr:p} lies in the heap of PE {owner}, expected memory of PE {}",
                pe.me()
            )));
        }
        if usage::is_device(ptr.addr()) {
            let used = usage::hold(ptr, bytes).map_err(|fault| wrong(format!("{what}: {}", fault.text)))?;
            return Ok(Self::Device(used));
        }
        match host::hold(ptr.addr(), bytes) {
            Ok(Some(used)) => Ok(Self::Pinned(used)),
            Err(text) => Err(wrong(format!("{what}: {text}"))),
            Ok(None) => {
                let end = ptr.addr().saturating_add(bytes);
                let known = pe.registered.lock().iter().any(|range| range.start <= ptr.addr() && end <= range.end);
                if known {
                    return Ok(Self::Registered);
                }
                Err(wrong(format!(
                    "{what}: {bytes} bytes at {ptr:p} are memory of the host that is neither pinned nor registered, expected nvshmemx_buffer_register"
                )))
            }
        }
    }

    /// Fails where an end of a transfer over the network is nothing that the library knows.
    pub(crate) fn check_known(pe: &Pe, what: &str, ptr: *const c_void, bytes: usize) -> Outcome {
        let (start, end) = (ptr.addr(), ptr.addr().saturating_add(bytes));
        let registered = || pe.registered.lock().iter().any(|range| range.start <= start && end <= range.end);
        if bytes == 0 || pe.heap.find(start).is_some() || registered() {
            return Ok(());
        }
        Err(wrong(format!(
            "{what}: {bytes} bytes at {ptr:p} are neither symmetric nor registered, and go over the network: NVSHMEM ends the process, or has no handle for them"
        )))
    }

    /// The host is about to read or write it: work that it has not seen done must not be in its way.
    pub(crate) fn ensure_seen(&self, writes: bool) {
        if !settings().races {
            return;
        }
        self.tell(writes, report::call(), &mut |touching| {
            if let Some(unseen) = touching.memory.unseen_by(&touching.range, touching.by, writes) {
                report::violation(format!("{touching} memory, and {unseen}"));
            }
        });
    }

    /// Tells what is done with it.
    pub(crate) fn tell<'a>(&'a self, writes: bool, name: &'static str, tell: &mut dyn FnMut(Touching<'a>)) {
        let actor = Actor::alone(name);
        match self {
            Self::Device(used) => used.tell(writes, actor, tell),
            Self::Pinned(used) => used.tell(writes, actor, tell),
            Self::Registered => {}
        }
    }
}

/// A copy of `bytes` bytes.
///
/// # Safety
/// There are so many at `from`.
pub(crate) unsafe fn copy_of(from: *const u8, bytes: usize) -> Box<[MaybeUninit<u8>]> {
    let mut copy = Box::<[u8]>::new_uninit_slice(bytes);
    // SAFETY: the caller vouches for the source; the box is new and has room.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<MaybeUninit<u8>>(), copy.as_mut_ptr(), bytes) };
    copy
}
