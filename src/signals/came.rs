//! Which signals have come to this process, and what the handler does.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use libc::c_int;
use signal_hook::low_level::{emulate_default_handler, register, signal_name};

use crate::error::{Error, Result};
use crate::lock::Mutex;

/// Those that ask a program to end, or that managers of jobs are told to send before they do; all end one that does not handle them.
const SIGNALS: [c_int; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGXCPU];

/// What comes again within this time is the same: it was sent to this process, and passed on to it.
const AGAIN: u64 = Duration::from_secs(1).as_nanos() as u64;

/// Bits of the signals that have come.
static CAME: AtomicU64 = AtomicU64::new(0);

/// What is known of each of `SIGNALS`.
static KNOWN: [Known; SIGNALS.len()] =
    [const { Known { first: AtomicU64::new(0), watchers: AtomicUsize::new(0) } }; SIGNALS.len()];

/// Those that have a handler.
static HANDLED: Mutex<u64> = Mutex::new(0);

struct Known {
    /// When it first came, in nanoseconds of the monotonic clock.
    first: AtomicU64,
    /// Who waits for it. For nobody, it does what it does by default.
    watchers: AtomicUsize,
}

/// Signals, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set(u64);

impl Set {
    pub(super) fn of(operation: &'static str, signals: &[c_int]) -> Result<Self> {
        let refused = |got| {
            let names: Vec<_> = SIGNALS.iter().map(|signal| name(*signal)).collect();
            Error::argument(operation, "signals", format!("some of {}", names.join(", ")), got)
        };
        let mut set = 0;
        for &signal in signals {
            let at = SIGNALS.iter().position(|known| *known == signal).ok_or_else(|| refused(name(signal)))?;
            set |= 1 << at;
        }
        if set == 0 { Err(refused("none".to_owned())) } else { Ok(Self(set)) }
    }

    fn each(self) -> impl Iterator<Item = usize> {
        (0..SIGNALS.len()).filter(move |at| self.0 & (1 << at) != 0)
    }

    /// Whether one of them has come.
    pub(super) fn came(self) -> bool {
        CAME.load(Ordering::Acquire) & self.0 != 0
    }

    /// The one that came first, and how long ago.
    pub(super) fn first(self) -> Option<(c_int, Duration)> {
        let came = Self(CAME.load(Ordering::Acquire) & self.0);
        let first = came.each().map(|at| (KNOWN[at].first.load(Ordering::Acquire), SIGNALS[at])).min()?;
        Some((first.1, Duration::from_nanos(now().saturating_sub(first.0))))
    }

    pub(super) fn forget(self) {
        CAME.fetch_and(!self.0, Ordering::AcqRel);
    }

    /// One more waits for them: from now on they do not end the process.
    pub(super) fn watch(self, operation: &'static str) -> Result<()> {
        let mut handled = HANDLED.lock();
        for at in self.each().filter(|at| *handled & (1 << at) == 0).collect::<Vec<_>>() {
            // SAFETY: `arrived` loads and stores atomics, reads a clock, and calls a function for use in handlers.
            let registered = unsafe { register(SIGNALS[at], move || arrived(at)) };
            registered.map_err(|error| Error::InvalidUsage {
                operation,
                reason: format!("{} cannot be handled: {error}", name(SIGNALS[at])),
            })?;
            *handled |= 1 << at;
        }
        self.share();
        Ok(())
    }

    /// As [`Set::watch`], of who watches already.
    pub(super) fn share(self) {
        self.each().for_each(|at| _ = KNOWN[at].watchers.fetch_add(1, Ordering::AcqRel));
    }

    /// One less waits for them.
    pub(super) fn leave(self) {
        self.each().for_each(|at| _ = KNOWN[at].watchers.fetch_sub(1, Ordering::AcqRel));
    }
}

pub(super) fn name(signal: c_int) -> String {
    signal_name(signal).map_or_else(|| signal.to_string(), str::to_owned)
}

/// The handler.
fn arrived(at: usize) {
    let known = &KNOWN[at];
    let now = now();
    let again = CAME.load(Ordering::Acquire) & (1 << at) != 0;
    if known.watchers.load(Ordering::Acquire) == 0
        || again && now.saturating_sub(known.first.load(Ordering::Acquire)) >= AGAIN
    {
        // It cannot fail for signals that end a process.
        let _ = emulate_default_handler(SIGNALS[at]);
    } else if !again {
        known.first.store(now, Ordering::Release);
        CAME.fetch_or(1 << at, Ordering::AcqRel);
    }
}

/// Nanoseconds of the monotonic clock, which handlers may read.
fn now() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: it writes a time to `time`, for which zeros are a value as well.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanoseconds.unwrap_or(0))
}
