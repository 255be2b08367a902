//! What ends the process where a thread waits for other PEs within the library, which never gives up.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::exchange::{Came, Exchange};

/// What a process ends with whose PE has waited for others for longer than its timeout, within the library: see [`ContextBuilder::watchdog`].
///
/// [`ContextBuilder::watchdog`]: crate::nvshmem::ContextBuilder::watchdog
pub const WATCHDOG_EXIT_CODE: i32 = 83;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);

/// How long a call waits before it is told to the others.
const TELL: Duration = Duration::from_millis(500);

/// How long the note of a call stays that has given up.
const STAY: Duration = Duration::from_secs(5);

/// How long the report may take.
const WRITE: Duration = Duration::from_secs(1);

/// How long the others are asked who waits, at the end.
const ASK: Duration = Duration::from_secs(2);

/// What becomes of a context where a call has given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It is lost: the thread ends, and leaves its note.
    Lost,
    /// Other calls follow, which are watched too.
    GoesOn,
}

/// Looks after the calls of one context, from a thread of its own.
pub(crate) struct Watchdog {
    /// `None` where there is to be none.
    shared: Option<Arc<Shared>>,
}

struct Shared {
    now: Mutex<Now>,
    /// Held by who leaves the note that tells the others that this PE waits, or takes it away.
    note: Mutex<()>,
    over: Condvar,
    /// The PE, and how many there are; `None` where the library is to say so, and has not.
    place: Option<(usize, usize)>,
    exchange: Option<Exchange>,
}

#[derive(Default)]
struct Now {
    /// How many calls there were, the present one included.
    calls: u64,
    waits: Option<Waits>,
    /// The one that the note is of; 0 where there is none.
    told: u64,
    /// When one has given up last.
    gave_up: Option<Instant>,
    over: bool,
}

/// A call that goes on.
#[derive(Clone, Copy)]
struct Waits {
    operation: &'static str,
    since: Instant,
    timeout: Duration,
    /// Whether it ends by itself when that is over.
    gives_up: bool,
}

/// The call is over, also where it panics.
struct Over<'s>(&'s Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let told = {
            let mut now = self.0.now();
            now.waits = None;
            now.told != 0 && !now.note_stays()
        };
        // What a PE does that dies from now on is not that it waits.
        if told {
            self.0.take_note();
        }
    }
}

impl Now {
    /// Whether others are still to find the note of a call that has given up.
    fn note_stays(&self) -> bool {
        self.gave_up.is_some_and(|since| since.elapsed() < STAY)
    }
}

impl Watchdog {
    /// None.
    pub(crate) fn off() -> Self {
        Self { shared: None }
    }

    /// For a PE of so many, which asks the others by `exchange`, if there is one and it has as many ranks.
    pub(crate) fn start(place: Option<(usize, usize)>, exchange: Option<Exchange>) -> Result<Self> {
        let (now, note, over) = Default::default();
        let exchange = exchange.filter(|exchange| place.is_some_and(|(_, n_pes)| n_pes == exchange.size()));
        let shared = Arc::new(Shared { now, note, over, place, exchange });
        let watched = Arc::clone(&shared);
        let spawned = thread::Builder::new().name("nvshmem watchdog".to_owned()).spawn(move || watched.watch());
        spawned.map_err(|error| Error::InvalidUsage {
            operation: "ContextBuilder::init",
            reason: format!("no thread for the watchdog: {error}"),
        })?;
        Ok(Self { shared: Some(shared) })
    }

    /// Runs `call`, which may wait for others for ever: where it does so for `timeout`, the process ends.
    pub(crate) fn during<R>(&self, operation: &'static str, timeout: Duration, call: impl FnOnce() -> R) -> R {
        let Some(shared) = &self.shared else { return call() };
        let _over = shared.begin(operation, timeout, false);
        call()
    }

    /// Runs `call`, in which `pes` come together, and which gives up by itself: its timeout says who of them is missing.
    pub(crate) fn during_meeting<R>(
        &self,
        operation: &'static str,
        timeout: Duration,
        pes: &[usize],
        after: After,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let Some(shared) = &self.shared else { return call() };
        let _over = shared.begin(operation, timeout, true);
        call().map_err(|error| match error {
            Error::Timeout { operation, timeout, mut detail } => {
                detail.push('.');
                shared.others(&mut detail, pes);
                // The others give up as well, and are to find the note.
                let mut now = shared.now();
                now.gave_up = Some(Instant::now());
                now.over |= after == After::Lost;
                Error::Timeout { operation, timeout, detail: detail.trim_end_matches('.').to_owned() }
            }
            other => other,
        })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.now().over = true;
            shared.over.notify_all();
        }
    }
}

impl Shared {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self) -> MutexGuard<'_, ()> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the note away, if there is one.
    fn take_note(&self) {
        let _note = self.note();
        let told = std::mem::take(&mut self.now().told);
        if told != 0
            && let (Some(exchange), Some((pe, _))) = (&self.exchange, self.place)
        {
            exchange.take_note(&key(pe));
        }
    }

    /// A call begins, until what this returns is dropped.
    fn begin(&self, operation: &'static str, timeout: Duration, gives_up: bool) -> Over<'_> {
        let mut now = self.now();
        now.calls += 1;
        now.waits = Some(Waits { operation, since: Instant::now(), timeout, gives_up });
        Over(self)
    }

    /// The thread.
    fn watch(&self) {
        loop {
            let (call, waits, stale) = {
                let now = self.now();
                if now.over {
                    return;
                }
                let (now, _) = self.over.wait_timeout(now, LOOK).unwrap_or_else(PoisonError::into_inner);
                let of_others = now.waits.is_none() || now.told != now.calls;
                (now.calls, now.waits, now.told != 0 && of_others && !now.note_stays())
            };
            if stale {
                self.take_note();
            }
            if let Some(waits) = waits {
                let lasted = waits.since.elapsed();
                if lasted >= TELL.min(waits.timeout / 2) {
                    self.tell(call, waits);
                }
                if lasted >= waits.timeout && !waits.gives_up {
                    self.end(call, waits);
                }
            }
        }
    }

    /// Says to the others that this PE waits, once for each call, and only while it does: who ends the call takes the note.
    fn tell(&self, call: u64, waits: Waits) {
        let _note = self.note();
        {
            let mut now = self.now();
            if now.told == call || now.calls != call || now.waits.is_none() {
                return;
            }
            now.told = call;
        }
        if let (Some(exchange), Some((pe, _))) = (&self.exchange, self.place) {
            let text = format!("waits in {}, its call {call} of the library", waits.operation);
            let _ = exchange.leave_note(&key(pe), text.as_bytes(), ASK);
        }
    }

    /// Says who is missing, and ends the process; unless the call has come back meanwhile.
    fn end(&self, call: u64, waits: Waits) {
        let who =
            self.place.map_or_else(|| "a PE without a number".to_owned(), |(pe, n_pes)| format!("PE {pe} of {n_pes}"));
        let mut report = format!(
            "gpucomm: {who} has waited within NVSHMEM for {:?}, in {} (its call {call} of the library), which never gives up.",
            waits.timeout, waits.operation
        );
        let all: Vec<usize> = (0..self.place.map_or(0, |(_, n_pes)| n_pes)).collect();
        self.others(&mut report, &all);
        let now = self.now();
        if now.calls != call || now.waits.is_none() {
            return;
        }
        report.push_str(&format!(" The process ends with code {WATCHDOG_EXIT_CODE}.\n"));
        // Where nobody reads it, the process ends all the same.
        let (written, writing) = mpsc::channel();
        let _ = thread::Builder::new().spawn(move || {
            let _ = std::io::stderr().write_all(report.as_bytes());
            let _ = written.send(());
        });
        let _ = writing.recv_timeout(WRITE);
        // SAFETY: may be called at any time. Destructors and exit handlers would wait for the other PEs too.
        unsafe { libc::_exit(WATCHDOG_EXIT_CODE) }
    }

    /// What is known of the others of `pes`.
    fn others(&self, report: &mut String, pes: &[usize]) {
        let (Some(exchange), Some((own, _))) = (&self.exchange, self.place) else {
            report.push_str(" Who is missing is not known: the context has no exchange to ask.");
            return;
        };
        let keys: Vec<_> = pes.iter().filter(|pe| **pe != own).map(|pe| (*pe, key(*pe))).collect();
        let notes = exchange.notes(&keys, ASK);
        let Ok(notes) = notes else {
            report.push_str(" Who is missing is not known: the exchange does not answer.");
            return;
        };
        for ((pe, _), note) in keys.iter().zip(notes) {
            let _ = match note {
                Came::Value(text) => write!(report, " PE {pe} {}.", String::from_utf8_lossy(&text)),
                Came::Ended(how) => write!(report, " PE {pe} {how}."),
                Came::NotYet => write!(report, " PE {pe} has not come: it waits in no call of the library."),
            };
        }
    }
}

/// Under which a PE says that it waits.
fn key(pe: usize) -> String {
    format!("nvshmem/waits/{pe}")
}
