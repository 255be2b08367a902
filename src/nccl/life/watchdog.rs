//! One thread that looks after all communicators of the process.
//!
//! It ends those whose calls stay inside NCCL beyond their timeout, and those that NCCL reports an asynchronous error of. It
//! calls nothing that could wait for a device or a peer: no deadline would work then.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::abort::end;
use super::{interrupt, reaper};
use crate::cuda::Worker;
use crate::error::{Error, Result};
use crate::nccl::state::helper;
use crate::nccl::state::inner::{Inner, STAYS_INSIDE};
use crate::nccl::wait::{departure, pending};

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(50);

struct Watch {
    communicators: Vec<Weak<Inner>>,
    running: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { communicators: Vec::new(), running: false });
static CHANGED: Condvar = Condvar::new();

/// Starts the watchdog and the reaper, unless they run: before the first communicator that they look after.
pub(crate) fn start(operation: &'static str) -> Result<()> {
    reaper::start(operation)?;
    let mut watch = watch();
    if !watch.running {
        let spawned = thread::Builder::new().name("gpucomm-watchdog".into()).spawn(run);
        spawned.map_err(|error| helper::cannot_start(operation, &error))?;
        watch.running = true;
    }
    Ok(())
}

/// Has the watchdog look after `members` from now on.
pub(crate) fn look_after(members: &[Arc<Inner>]) {
    watch().communicators.extend(members.iter().map(Arc::downgrade));
    CHANGED.notify_all();
}

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
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
            let visit = inner.visit();
            let last = seen.entry(inner.id).or_insert_with(|| Seen { visit, since: Instant::now() });
            if last.visit != visit {
                *last = Seen { visit, since: Instant::now() };
            }
            let inside = visit % 2 == 1;
            if inside && last.since.elapsed() >= interrupt::BLOCKED {
                inner.set_stuck(visit);
            }
            if inside && last.since.elapsed() >= inner.timeout() {
                let cause = Error::Timeout {
                    operation: STAYS_INSIDE,
                    timeout: inner.timeout(),
                    detail: pending::stays_inside(&inner, visit) + &said(&inner),
                };
                end(&inner, &cause);
            } else {
                // It ends a communicator that has an error.
                let _ = inner.health();
                departure::of_closed(&inner).into_iter().for_each(|error| end(&inner, &error));
            }
        }
    }
}

/// What NCCL says, as the end of a sentence.
fn said(inner: &Inner) -> String {
    inner.said().map(|text| format!("; {text}")).unwrap_or_default()
}

/// Sleeps until it is time to look again; for ever while there is nothing to look after.
fn next_round() -> Vec<Arc<Inner>> {
    let mut watch = watch();
    loop {
        watch.communicators.retain(|inner| inner.strong_count() > 0);
        watch = if watch.communicators.is_empty() {
            CHANGED.wait(watch).unwrap_or_else(PoisonError::into_inner)
        } else {
            CHANGED.wait_timeout(watch, INTERVAL).unwrap_or_else(PoisonError::into_inner).0
        };
        let alive: Vec<_> = watch.communicators.iter().filter_map(Weak::upgrade).collect();
        if !alive.is_empty() {
            return alive;
        }
    }
}
