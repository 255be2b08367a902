//! Deadlines: nothing in this crate waits without one.

use std::ffi::OsStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::sys::behavior::DEVICES_WORK_ELSEWHERE;

/// The default timeout, in milliseconds; 0 until it is first read.
static DEFAULT_MS: AtomicU64 = AtomicU64::new(0);

/// How long a wait lasts before it looks around.
const LOOK: Duration = Duration::from_millis(100);

const FALLBACK: Duration = Duration::from_secs(300);

/// The longest timeout that is kept, 584 million years. A longer one, such as [`Duration::MAX`], counts as this.
const LONGEST: Duration = Duration::from_millis(u64::MAX);

const VARIABLE: &str = "GPUCOMM_TIMEOUT";

/// How long a call waits that is given no timeout of its own.
///
/// Five minutes, unless `GPUCOMM_TIMEOUT` holds a time or [`set_default_timeout`] was called. The variable holds seconds, such as
/// `2.5`, or a number with a unit: `500ms`, `2s`, `10m`, `1h`; empty is as good as not set. With anything else in it, a number too large to be
/// a time included, no device is found and no communicator made: [`Error::InvalidArgument`] names the variable, its value, and what is expected.
///
/// ```
/// let deadline = std::time::Instant::now() + gpucomm::default_timeout();
/// assert!(deadline > std::time::Instant::now());
/// ```
pub fn default_timeout() -> Duration {
    match DEFAULT_MS.load(Ordering::Relaxed) {
        0 => {
            let timeout = from_environment().as_ref().ok().copied().flatten().unwrap_or(FALLBACK);
            set_default_timeout(timeout);
            timeout
        }
        ms => Duration::from_millis(ms),
    }
}

/// Whether the variable for timeouts holds one, if it is set: asked by whatever is called first.
pub(crate) fn check_environment(operation: &'static str) -> Result<()> {
    match from_environment() {
        Ok(_) => Ok(()),
        Err(value) => {
            let expected =
                format!("a time from 1ms to {}ms, such as 2.5 (seconds), 500ms, 2s or 10m", LONGEST.as_millis());
            Err(Error::argument(operation, VARIABLE, expected, format!("{value:?}")))
        }
    }
}

/// What the variable says, or its value where that is no time; read once.
fn from_environment() -> &'static Result<Option<Duration>, String> {
    static READ: OnceLock<Result<Option<Duration>, String>> = OnceLock::new();
    READ.get_or_init(|| parse(std::env::var_os(VARIABLE).as_deref()))
}

fn parse(value: Option<&OsStr>) -> Result<Option<Duration>, String> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    match value.to_str().and_then(time) {
        Some(time) => Ok(Some(time)),
        None => Err(value.to_string_lossy().into_owned()),
    }
}

/// A number, of seconds or of the unit behind it; at least a millisecond, and at most [`LONGEST`].
fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "" | "s" => 1000,
        "ms" => 1,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let number = number.trim_end();
    // Exactly, where it is whole.
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).filter(|time| *time > 0).map(Duration::from_millis);
    }
    let time = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit as f64 / 1000.0).ok()?;
    (time.as_millis() > 0 && time <= LONGEST).then(|| Duration::from_millis(kept(time)))
}

/// Sets how long a call waits that is given no timeout of its own, for the whole process.
///
/// Rounded up to milliseconds, and at least one. [`Duration::MAX`] has calls wait for 584 million years, the longest time that is kept.
///
/// ```
/// use std::time::Duration;
///
/// gpucomm::set_default_timeout(Duration::from_secs(30));
/// assert_eq!(gpucomm::default_timeout(), Duration::from_secs(30));
/// ```
pub fn set_default_timeout(timeout: Duration) {
    DEFAULT_MS.store(kept(timeout), Ordering::Relaxed);
}

/// A timeout as it is kept: in milliseconds, rounded up, at least one, and at most [`LONGEST`].
pub(crate) fn kept(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

/// A moment after which an operation gives up, and what it was allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        Self::since(Instant::now(), timeout)
    }

    /// The same of a wait that has begun at `start`.
    pub(crate) fn since(start: Instant, timeout: Duration) -> Self {
        Self { start, timeout }
    }

    /// How long the whole wait may last.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same of a wait that has lasted so much longer.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn sooner(&self, by: Duration) -> Self {
        Self { start: self.start.checked_sub(by).unwrap_or(self.start), ..*self }
    }

    pub(crate) fn expired(&self) -> bool {
        self.start.elapsed() >= self.timeout
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.timeout.saturating_sub(self.start.elapsed())
    }

    /// Whether the wait has lasted for so long that it is time to look around, and is not over.
    pub(crate) fn has_lasted(&self) -> bool {
        (LOOK..self.timeout).contains(&self.start.elapsed())
    }

    /// The error that says `operation` was not done in time.
    pub(crate) fn error(&self, operation: &'static str, detail: impl Into<String>) -> Error {
        Error::Timeout { operation, timeout: self.timeout, detail: detail.into(), rank: None, peer: None }
    }

    /// Asks `done` again and again until it says yes, fails, or time is up.
    ///
    /// Spins for some microseconds, then yields, then sleeps: a wait of many milliseconds costs no core.
    pub(crate) fn poll(
        &self,
        operation: &'static str,
        detail: impl FnOnce() -> String,
        done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        self.poll_and_look(operation, detail, || {}, done)
    }

    /// As [`Deadline::poll`]; when that has lasted for a while, it also has a `look` whether there is still hope.
    pub(crate) fn poll_and_look(
        &self,
        operation: &'static str,
        detail: impl FnOnce() -> String,
        look: impl Fn(),
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let reached = self.until_and_look(look, || Ok(done()?.then_some(())))?;
        reached.ok_or_else(|| self.error(operation, detail()))
    }

    /// As [`Deadline::until`], with a `look` as [`Deadline::poll_and_look`] has it.
    pub(crate) fn until_and_look<T>(
        &self,
        look: impl Fn(),
        mut take: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.until(|| {
            let had = take()?;
            if had.is_none() && self.has_lasted() {
                look();
            }
            Ok(had)
        })
    }

    /// Waits until `is_over`. Returns false if it is not at the deadline.
    pub(crate) fn wait(&self, mut is_over: impl FnMut() -> bool) -> bool {
        matches!(self.until(|| Ok(is_over().then_some(()))), Ok(Some(())))
    }

    /// As [`Deadline::poll`], for what there is to be had then; `None` when time is up.
    pub(crate) fn until<T>(&self, mut take: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
        let mut round = 0u32;
        loop {
            if let Some(had) = take()? {
                return Ok(Some(had));
            }
            if self.expired() {
                return Ok(None);
            }
            backoff(round);
            round = round.saturating_add(1);
        }
    }
}

/// Waits until `is_over`, without a deadline: for threads that nobody waits for.
pub(crate) fn wait_until(mut is_over: impl FnMut() -> bool) {
    let mut round = 0u32;
    while !is_over() {
        backoff(round);
        round = round.saturating_add(1);
    }
}

/// The round from which on a wait sleeps.
const SLEEPS: u32 = if DEVICES_WORK_ELSEWHERE { 2048 } else { 128 };

/// Waits a little, longer with each round.
///
/// On GPUs the first sleep comes after about two milliseconds: a sleep ends a tenth of a millisecond
/// late, which is much of a collective of some hundred megabytes. Later a sleep is about a hundredth
/// of the wait so far, and at most a millisecond.
pub(crate) fn backoff(round: u32) {
    match round {
        0..64 => std::hint::spin_loop(),
        64..SLEEPS => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros((50 + 2 * u64::from(round - SLEEPS)).min(1000))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Duration>, String> {
        parse(Some(OsStr::new(text)))
    }

    #[test]
    fn waits() {
        let mut rounds = 0;
        let mut is_over = || {
            rounds += 1;
            rounds > 100
        };
        assert!(Deadline::after(FALLBACK).wait(&mut is_over));
        assert!(Deadline::after(Duration::ZERO).wait(&mut is_over), "asked once, whatever the time");
        assert!(!Deadline::after(Duration::from_millis(1)).wait(|| false));
        let mut rounds = 0;
        wait_until(|| {
            rounds += 1;
            rounds > 100
        });
    }

    #[test]
    fn times() {
        let ms = |ms| Ok(Some(Duration::from_millis(ms)));
        for (text, want) in [
            ("2.5", ms(2500)),
            ("2", ms(2000)),
            ("2s", ms(2000)),
            ("500ms", ms(500)),
            ("10m", ms(600_000)),
            ("0.5h", ms(1_800_000)),
            (" 2 s ", ms(2000)),
            (".25", ms(250)),
            ("1ms", ms(1)),
            ("1.9ms", ms(2)),
            ("18446744073709551615ms", ms(u64::MAX)),
            ("1e16", ms(10_000_000_000_000_000_000)),
            ("", Ok(None)),
        ] {
            assert_eq!(of(text), want, "{text:?}");
        }
        assert_eq!(parse(None), Ok(None));
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "abc",
            "0",
            "-1",
            "0s",
            "0.0001",
            "2 days",
            "2d",
            "inf",
            "nan",
            "1e17",
            "1e14h",
            "1e400",
            "s",
            "2s3",
            "2,5",
            "--",
            " ",
            "18446744073709551616ms",
        ] {
            assert_eq!(of(text), Err(text.to_owned()), "{text:?}");
        }
    }
}
