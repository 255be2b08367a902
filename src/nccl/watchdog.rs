//! One thread that looks after all communicators of the process.
//!
//! It ends those whose calls stay inside NCCL beyond their timeout, and those that NCCL reports an asynchronous error of;
//! and it frees memory that was dropped while the device still used it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::ending::{self, GRACE};
use super::inner::{Handle, Inner};
use super::reaper;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(50);

struct Watch {
    communicators: Vec<Weak<Inner>>,
    running: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { communicators: Vec::new(), running: false });
static CHANGED: Condvar = Condvar::new();

/// Has the watchdog look after `inner` from now on.
pub(crate) fn watch(inner: &Arc<Inner>) -> Result<()> {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    watch.communicators.push(Arc::downgrade(inner));
    if !watch.running {
        thread::Builder::new().name("gpucomm-watchdog".into()).spawn(run).map_err(|error| Error::InvalidUsage {
            operation: "init",
            reason: format!("cannot start the watchdog's thread: {error}"),
        })?;
        watch.running = true;
    }
    CHANGED.notify_all();
    Ok(())
}

/// There is something to look after again.
pub(crate) fn wake() {
    // Under the lock, so that a watchdog that is about to sleep has not looked already.
    let _watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    CHANGED.notify_all();
}

/// Where a communicator stood when the watchdog looked last.
struct Seen {
    visit: u64,
    since: Instant,
}

fn run() {
    let mut seen = HashMap::new();
    loop {
        let communicators = next_round();
        seen.retain(|id, _| communicators.iter().any(|inner| inner.id == *id));
        for inner in communicators {
            let visit = inner.entered.load(Ordering::Acquire);
            let last = seen.entry(inner.id).or_insert_with(|| Seen { visit, since: Instant::now() });
            if last.visit != visit {
                *last = Seen { visit, since: Instant::now() };
            }
            let inside = visit % 2 == 1;
            if inside && last.since.elapsed() >= inner.timeout() {
                let cause = Error::Timeout {
                    operation: "call",
                    timeout: inner.timeout(),
                    detail: format!("rank {} waits inside NCCL for a peer that does not come", inner.rank),
                };
                end(&inner, &cause);
            } else if !inside && inner.is_active() {
                look_for_errors(&inner);
            }
        }
        reaper::reap();
    }
}

/// Sleeps until it is time to look again; for ever while there is nothing to look after.
fn next_round() -> Vec<Arc<Inner>> {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        watch.communicators.retain(|inner| inner.strong_count() > 0);
        let idle = watch.communicators.is_empty() && reaper::is_empty();
        watch = if idle {
            CHANGED.wait(watch).unwrap_or_else(PoisonError::into_inner)
        } else {
            CHANGED.wait_timeout(watch, INTERVAL).unwrap_or_else(PoisonError::into_inner).0
        };
        let alive: Vec<_> = watch.communicators.iter().filter_map(Weak::upgrade).collect();
        if !alive.is_empty() || !reaper::is_empty() {
            return alive;
        }
    }
}

fn look_for_errors(inner: &Arc<Inner>) {
    // Who holds the lock is about to find the error itself, or will be gone at the next look.
    let Some(guard) = inner.try_lock() else { return };
    let Some(Handle(raw)) = guard.handle else { return };
    let error = ending::async_error(raw);
    drop(guard);
    if let Err(error) = error {
        end(inner, &error);
    }
}

/// Ends `inner` and its relatives: no call is possible on them when this returns. The rest is done on threads of their own,
/// so that one that takes long keeps nobody waiting.
pub(crate) fn end(inner: &Inner, cause: &Error) {
    let condemned = ending::condemn_all(&inner.relatives(), cause);
    if !condemned.is_empty() {
        let _ = super::detached::start("abort", move || ending::finish_all(condemned, &Deadline::after(GRACE)));
    }
}
