//! Channels: the launch queues of a device, which its streams share.
//!
//! As was seen on H200s, a device has eight, each with 1021 entries (GPUCOMM_EMULATOR_QUEUE), and streams take them in turn.
//! Kernels, copies and fills take an entry until they are done; host functions, and events that are recorded or waited for,
//! take none. Whoever enqueues more is blocked inside the call, whatever happens meanwhile.

use crate::lock::lock;
use crate::patience::Patience;
use crate::report;
use crate::settings::settings;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How many a device has.
pub(crate) const CHANNELS: usize = 8;

/// One launch queue.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Channel {
    /// Takes so many entries, when there is room for all of them; or the whole queue, where they are more than that.
    pub fn take(&self, device: i32, entries: usize) {
        let most = settings().queue;
        let mut taken = lock(&self.taken);
        let full = |taken: usize| taken > 0 && taken + entries > most;
        if full(*taken) {
            let mut patience = Patience::new();
            while full(*taken) {
                let call = report::call();
                patience.check(|| format!("a launch queue of device {device} is full ({most} entries): {call}"));
                let slice = Duration::from_millis(50);
                taken = self.freed.wait_timeout(taken, slice).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        *taken += entries;
    }

    /// Gives them back.
    pub fn give(&self, entries: usize) {
        *lock(&self.taken) -= entries;
        // Who wants many may still have to wait where another need not.
        self.freed.notify_all();
    }
}
