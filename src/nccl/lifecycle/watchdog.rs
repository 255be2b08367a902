//! The thread that watches all communicators of the process.
//!
//! It aborts communicators whose calls stay inside NCCL beyond their timeout, those for which NCCL
//! reports an asynchronous error, and those that wait for a rank that was closed. It calls nothing
//! that could wait for a device or a peer: no deadline would work then.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::abort::{abort_clique, start_abort_by};
use super::{interrupt, reclaim};
use crate::cuda::Worker;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::lock::{Condvar, Mutex, MutexGuard};
use crate::nccl::rank::helper;
use crate::nccl::rank::inner::{Inner, LOCAL_RANKS};
use crate::nccl::rank::state::AbortedBy;
use crate::nccl::wait::{explanation, left_ranks};

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(50);

struct Watch {
    /// Whether there may be ranks to look after.
    has_ranks: bool,
    running: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { has_ranks: false, running: false });
static CHANGED: Condvar = Condvar::new();

/// Starts the watchdog and the thread that frees memory, unless they run: before the first
/// communicator.
pub(crate) fn start(operation: &'static str) -> Result<()> {
    reclaim::start(operation)?;
    let mut watch = watch();
    if !watch.running {
        let spawned = thread::Builder::new().name("gpucomm-watchdog".into()).spawn(run);
        spawned.map_err(|error| helper::cannot_start(operation, &error))?;
        watch.running = true;
    }
    Ok(())
}

/// Has the watchdog look, after ranks have started.
pub(crate) fn wake() {
    watch().has_ranks = true;
    CHANGED.notify_all();
}

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock()
}

/// The visit to NCCL that the watchdog has seen last, and since when.
struct Seen {
    visit: u64,
    since: Instant,
}

fn run() {
    let mut seen = HashMap::new();
    loop {
        let ranks = next_round();
        seen.retain(|id, _| ranks.iter().any(|inner| inner.id == *id));
        for inner in ranks {
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
                let detail = explanation::stays_inside(&inner, visit) + &said(&inner) + explanation::advice(&inner);
                let awaited = explanation::awaited(&inner, explanation::launch(&inner));
                let operation = inner.visitor().map_or("call", |(operation, _)| operation);
                let cause = Deadline::after(inner.timeout()).error(operation, detail);
                let cause = cause.between((Some(inner.rank), awaited));
                start_abort_by(AbortedBy::Watchdog, &inner.clique_ranks(), &cause);
            } else {
                // Aborts a communicator that has an error.
                let _ = inner.health();
                left_ranks::of_closed(&inner).into_iter().for_each(|error| abort_clique(&inner, &error));
            }
        }
    }
}

/// What NCCL says, as the end of a sentence.
fn said(inner: &Inner) -> String {
    inner.said().map(|text| format!("; {text}")).unwrap_or_default()
}

/// Sleeps until it is time to look again, and returns all ranks. Sleeps on while there are none.
fn next_round() -> Vec<Arc<Inner>> {
    loop {
        let mut watch = watch();
        while !watch.has_ranks {
            watch = CHANGED.wait(watch);
        }
        watch = CHANGED.wait_timeout(watch, INTERVAL);
        // Ranks that start from now on set it again.
        watch.has_ranks = false;
        drop(watch);
        let ranks = LOCAL_RANKS.ranks();
        if !ranks.is_empty() {
            self::watch().has_ranks = true;
            return ranks;
        }
    }
}
