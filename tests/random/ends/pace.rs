//! Time limits of calls, on a machine that may be busy with something else.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::settings::{slower, traces};
use crate::watch::{self, say};

/// What a call may take beside its deadline on a machine that is not busy.
const MARGIN: Duration = Duration::from_secs(2);

/// How long the thread sleeps that measures how late threads run.
const STEP: Duration = Duration::from_millis(2);

/// How many threads may run one after the other until a call returns, each of them late.
const THREADS: u32 = 8;

/// How late that thread was, in nanoseconds, all in all.
static LATE: AtomicU64 = AtomicU64::new(0);

fn late() -> Duration {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            loop {
                let begin = Instant::now();
                std::thread::sleep(STEP);
                LATE.fetch_add((begin.elapsed() - STEP).as_nanos() as u64, Ordering::Relaxed);
            }
        });
    });
    Duration::from_nanos(LATE.load(Ordering::Relaxed))
}

/// Makes a call, which must return within `limit` and a margin that grows with how late threads of this process run meanwhile.
pub fn within<R>(repeat: &str, what: &str, limit: Duration, call: impl FnOnce() -> R) -> R {
    if traces() {
        say(what);
    }
    watch::calls(what, true);
    let (before, begin) = (late(), Instant::now());
    let result = call();
    let (took, late) = (begin.elapsed(), late() - before);
    watch::calls(what, false);
    assert!(
        took <= limit + slower(MARGIN) + THREADS * late,
        "{what} took {took:?}, and its limit is {limit:?}; threads were late by {late:?} meanwhile: {repeat}"
    );
    result
}
