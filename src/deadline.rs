//! Deadlines: nothing in this crate waits without one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The default timeout, in milliseconds; 0 until it is first read.
static DEFAULT_MS: AtomicU64 = AtomicU64::new(0);

const FALLBACK: Duration = Duration::from_secs(300);

/// How long a call waits that is given no timeout of its own.
///
/// Five minutes, unless `GPUCOMM_TIMEOUT` holds a number of seconds (a fraction is allowed) or
/// [`set_default_timeout`] was called.
pub fn default_timeout() -> Duration {
    match DEFAULT_MS.load(Ordering::Relaxed) {
        0 => {
            let from_env = std::env::var("GPUCOMM_TIMEOUT")
                .ok()
                .and_then(|text| text.trim().parse::<f64>().ok())
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .filter(|timeout| !timeout.is_zero());
            let timeout = from_env.unwrap_or(FALLBACK);
            set_default_timeout(timeout);
            timeout
        }
        ms => Duration::from_millis(ms),
    }
}

/// Sets how long a call waits that is given no timeout of its own, for the whole process.
///
/// Rounded to milliseconds, and at least one.
pub fn set_default_timeout(timeout: Duration) {
    let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
    DEFAULT_MS.store(ms, Ordering::Relaxed);
}

/// A moment after which an operation gives up, and what it was allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        Self { start: Instant::now(), timeout }
    }

    pub(crate) fn expired(&self) -> bool {
        self.start.elapsed() >= self.timeout
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.timeout.saturating_sub(self.start.elapsed())
    }

    /// This deadline, or one after `timeout` from now, whichever comes first.
    pub(crate) fn sooner(&self, timeout: Duration) -> Self {
        Self::after(timeout.min(self.remaining()))
    }

    /// The error that says `operation` was not done in time.
    pub(crate) fn error(&self, operation: &'static str, detail: impl Into<String>) -> Error {
        Error::Timeout { operation, timeout: self.timeout, detail: detail.into() }
    }

    /// Asks `done` again and again until it says yes, fails, or time is up.
    ///
    /// Spins for some microseconds, then yields, then sleeps: a wait of milliseconds costs no core.
    pub(crate) fn poll(
        &self,
        operation: &'static str,
        detail: impl FnOnce() -> String,
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let mut round = 0u32;
        loop {
            if done()? {
                return Ok(());
            }
            if self.expired() {
                return Err(self.error(operation, detail()));
            }
            backoff(round);
            round = round.saturating_add(1);
        }
    }
}

/// Waits a little, longer with each round.
pub(crate) fn backoff(round: u32) {
    match round {
        0..64 => std::hint::spin_loop(),
        64..256 => std::thread::yield_now(),
        256..1024 => std::thread::sleep(Duration::from_micros(50)),
        _ => std::thread::sleep(Duration::from_micros(500)),
    }
}
