//! What ends the process where a thread waits for other PEs within the library, which never gives up.
//!
//! It asks the exchange meanwhile who has ended: nobody waits for a PE of which that is known.

use std::cell::Cell;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::notes::{Absent, Notes, Point};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::Exchange;

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

/// How often it asks the exchange who has ended.
const ASKS: Duration = Duration::from_millis(200);

/// How often it looks, after it has found that a PE has ended, before a wait that gives up by itself does so: a PE that came, and ended then, is
/// no reason to.
const REST: u32 = 10;

/// The same before it ends the process.
const LONG_REST: u32 = 20;

/// The same where the library ends: PEs that are done with that end, while others still give back what they have.
const REST_AT_END: u32 = 100;

/// How long the report may take.
const WRITE: Duration = Duration::from_secs(1);

/// The PEs that have to come to a call before it is over.
#[derive(Debug, Clone)]
pub(crate) enum Awaited {
    /// None of which that is known.
    Nobody,
    All,
    /// All, to the end of the library.
    AllAtEnd,
    Members(Arc<[usize]>),
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
    notes: Option<Notes>,
    /// The call that waits for a PE that does not come any more; 0 where there is none.
    in_vain: AtomicU64,
}

#[derive(Default)]
struct Now {
    /// How many calls there were, the present one included.
    calls: u64,
    waits: Option<Waits>,
    /// Who does not come to the call that waits in vain.
    absent: Option<Absent>,
    /// The one that the note is of; 0 where there is none.
    told: u64,
    /// When one has given up last.
    gave_up: Option<Instant>,
    over: bool,
}

/// A call that goes on.
#[derive(Clone)]
struct Waits {
    operation: &'static str,
    since: Instant,
    timeout: Duration,
    /// Whether it ends by itself when that is over.
    gives_up: bool,
    awaited: Awaited,
}

impl Waits {
    /// How often the thread looks before it takes an end for the end of this wait.
    fn rest(&self) -> u32 {
        match self.awaited {
            Awaited::AllAtEnd => REST_AT_END,
            _ if self.gives_up => REST,
            _ => LONG_REST,
        }
    }
}

/// What the thread has found out for one call.
#[derive(Default)]
struct Asked {
    call: u64,
    last: Option<Instant>,
    /// Who does not come, and how often it still looks before it says so.
    absent: Option<(Absent, u32)>,
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

    /// For a PE of so many, which asks the others by `exchange`, if there is one and it has the same ranks. All PEs have the same name for this
    /// `start`.
    pub(crate) fn start(place: Option<(usize, usize)>, exchange: Option<&Exchange>, start: &[u8]) -> Result<Self> {
        let (now, note, over, in_vain) = Default::default();
        let exchange = exchange.filter(|exchange| place == Some((exchange.rank(), exchange.size())));
        let notes = exchange.map(|exchange| Notes::new(exchange, start)).transpose()?;
        let shared = Arc::new(Shared { now, note, over, place, notes, in_vain });
        let watched = Arc::clone(&shared);
        let spawned = thread::Builder::new().name("nvshmem watchdog".to_owned()).spawn(move || watched.watch());
        spawned.map_err(|error| Error::InvalidUsage {
            operation: "ContextBuilder::init",
            reason: format!("no thread for the watchdog: {error}"),
        })?;
        Ok(Self { shared: Some(shared) })
    }

    /// Runs `call`, which may wait for others for ever: where it does so for `timeout`, or one of them has ended, the process ends.
    pub(crate) fn during<R>(
        &self,
        operation: &'static str,
        timeout: Duration,
        awaited: &Awaited,
        call: impl FnOnce() -> R,
    ) -> R {
        let Some(shared) = &self.shared else { return call() };
        let _over = shared.begin(operation, timeout, awaited, false);
        call()
    }

    /// Runs `call`, which waits for others too, and gives up by itself.
    pub(crate) fn during_wait<R>(
        &self,
        operation: &'static str,
        timeout: Duration,
        awaited: &Awaited,
        call: impl FnOnce(&Waiting<'_>) -> Result<R>,
    ) -> Result<R> {
        let over = self.shared.as_deref().map(|shared| shared.begin(operation, timeout, awaited, true));
        let shared = over.as_ref().map(|over| over.0);
        let number = shared.map_or(0, |shared| shared.now().calls);
        let (deadline, is_up, is_passed) = (Cell::new(Deadline::after(timeout)), Cell::default(), Cell::default());
        call(&Waiting { shared, number, operation, timeout, awaited, deadline, is_up, is_passed })
    }

    /// This PE goes on from the meeting `point`, to which it has come late.
    ///
    /// # Errors
    /// [`Error::Gone`] where another PE had given up on it: that one does not go on.
    pub(crate) fn pass(&self, operation: &'static str, point: Point) -> Result<()> {
        let Some((shared, notes)) = self.shared.as_ref().and_then(|shared| Some((shared, shared.notes.as_ref()?)))
        else {
            return Ok(());
        };
        let Some(Absent { pe, how }) = notes.passes(point) else { return Ok(()) };
        let how = format!("{how}; {} has come too late", shared.own());
        notes.gave_up(&format!("has come too late to {operation}"));
        Err(Error::Gone { operation, rank: pe, how })
    }
}

/// A wait for other PEs that gives up by itself.
pub(crate) struct Waiting<'w> {
    shared: Option<&'w Shared>,
    number: u64,
    operation: &'static str,
    timeout: Duration,
    awaited: &'w Awaited,
    deadline: Cell<Deadline>,
    /// Whether it has looked once more behind its deadline.
    is_up: Cell<bool>,
    /// Whether another PE has gone on from here.
    is_passed: Cell<bool>,
}

impl Waiting<'_> {
    /// Why it waits in vain: an awaited PE has ended, or has given up.
    pub(crate) fn in_vain(&self) -> Option<Error> {
        let shared = self.shared.filter(|shared| shared.in_vain.load(Ordering::Acquire) == self.number)?;
        let Absent { pe, how } = shared.now().absent.clone()?;
        let how = format!("{how}; {} waits for it", shared.own());
        Some(Error::Gone { operation: self.operation, rank: pe, how })
    }

    /// Why it gives up on the meeting `point`, where it is late for that; the others find that, and none of them goes on from there. `detail` says
    /// for what it waits. Asked again and again, each time after a look whether the wait is over.
    pub(crate) fn gives_up(&self, point: Point, detail: impl Fn() -> String) -> Option<Error> {
        let error = match self.in_vain() {
            Some(error) => error,
            None if !self.deadline.get().expired() || !self.is_up.replace(true) => return None,
            None => self.deadline.get().error(self.operation, detail()),
        };
        let Some((shared, notes)) = self.shared.and_then(|shared| Some((shared, shared.notes.as_ref()?))) else {
            return Some(self.late(error));
        };
        let how = format!("has given up {}: {}", self.operation, why(&error));
        if !self.is_passed.get() && !notes.gives_up(point, &how) {
            // All have come, and so its own device is there in a moment.
            self.is_passed.set(true);
            self.deadline.set(Deadline::after(self.timeout));
            self.is_up.set(false);
            shared.in_vain.store(0, Ordering::Release);
            return None;
        }
        notes.gave_up(&how);
        let error = self.late(error);
        let mut now = shared.now();
        // The thread ends, and leaves the note.
        now.gave_up = Some(Instant::now());
        now.over = true;
        Some(error)
    }

    /// An error that says who is missing, where it is a timeout. The others give up as well, and are to find the note.
    pub(crate) fn late(&self, error: Error) -> Error {
        let (Error::Timeout { operation, timeout, mut detail }, Some(shared)) = (error.clone(), self.shared) else {
            return error;
        };
        detail.push('.');
        shared.others(&mut detail, self.awaited, None);
        shared.now().gave_up = Some(Instant::now());
        Error::Timeout { operation, timeout, detail: detail.trim_end_matches('.').to_owned() }
    }
}

/// Why a PE gives up, for the others.
fn why(error: &Error) -> String {
    match error {
        Error::Gone { rank, how, .. } => format!("PE {rank} {how}"),
        Error::Timeout { timeout, .. } => format!("not all PEs had come within {timeout:?}"),
        other => other.to_string(),
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

    /// This PE, in words.
    fn own(&self) -> String {
        self.place.map_or_else(|| "a PE without a number".to_owned(), |(pe, n_pes)| format!("PE {pe} of {n_pes}"))
    }

    /// The PEs that have to come to a call, or may.
    fn pes(&self, awaited: &Awaited) -> Vec<usize> {
        match awaited {
            Awaited::Members(members) => members.to_vec(),
            _ => (0..self.place.map_or(0, |(_, n_pes)| n_pes)).collect(),
        }
    }

    /// Takes the note away, if there is one.
    fn take_note(&self) {
        let _note = self.note();
        let told = std::mem::take(&mut self.now().told);
        if let Some(notes) = self.notes.as_ref().filter(|_| told != 0) {
            notes.waits_no_more();
        }
    }

    /// A call begins, until what this returns is dropped.
    fn begin(&self, operation: &'static str, timeout: Duration, awaited: &Awaited, gives_up: bool) -> Over<'_> {
        let awaited = awaited.clone();
        let mut now = self.now();
        now.calls += 1;
        now.waits = Some(Waits { operation, since: Instant::now(), timeout, gives_up, awaited });
        Over(self)
    }

    /// The thread.
    fn watch(&self) {
        let mut asked = Asked::default();
        loop {
            let (call, waits, stale) = {
                let now = self.now();
                if now.over {
                    return;
                }
                let (now, _) = self.over.wait_timeout(now, LOOK).unwrap_or_else(PoisonError::into_inner);
                let of_others = now.waits.is_none() || now.told != now.calls;
                (now.calls, now.waits.clone(), now.told != 0 && of_others && !now.note_stays())
            };
            if stale {
                self.take_note();
            }
            if let Some(waits) = waits {
                let lasted = waits.since.elapsed();
                if lasted >= TELL.min(waits.timeout / 2) {
                    self.tell(call, &waits);
                }
                let absent = self.absent(&mut asked, call, &waits);
                match absent {
                    Some(absent) if waits.gives_up => self.wakes(call, absent),
                    Some(_) => self.end(call, &waits, absent.as_ref()),
                    None if lasted >= waits.timeout && !waits.gives_up => self.end(call, &waits, None),
                    None => {}
                }
            }
        }
    }

    /// Who does not come to a call, once, when it has had time to be over all the same.
    fn absent(&self, asked: &mut Asked, call: u64, waits: &Waits) -> Option<Absent> {
        let notes = self.notes.as_ref().filter(|_| !matches!(waits.awaited, Awaited::Nobody))?;
        if asked.call != call {
            *asked = Asked { call, last: Some(waits.since), absent: None };
        }
        if let Some((absent, rest)) = &mut asked.absent {
            *rest = rest.saturating_sub(1);
            return (*rest == 0).then(|| absent.clone());
        }
        if asked.last.is_none_or(|last| last.elapsed() >= ASKS) {
            let absent = notes.absent(&self.pes(&waits.awaited));
            asked.last = Some(Instant::now());
            asked.absent = absent.map(|absent| (absent, waits.rest()));
        }
        None
    }

    /// Has a call give up that waits for a PE that does not come.
    fn wakes(&self, call: u64, absent: Absent) {
        let mut now = self.now();
        if now.calls == call && now.waits.is_some() {
            now.absent = Some(absent);
            self.in_vain.store(call, Ordering::Release);
        }
    }

    /// Says to the others that this PE waits, once for each call, and only while it does: who ends the call takes the note.
    fn tell(&self, call: u64, waits: &Waits) {
        let _note = self.note();
        {
            let mut now = self.now();
            if now.told == call || now.calls != call || now.waits.is_none() {
                return;
            }
            now.told = call;
        }
        if let Some(notes) = &self.notes {
            notes.waits(&format!("waits in {}, its call {call} of the library", waits.operation));
        }
    }

    /// Says who is missing, and ends the process; unless the call has come back meanwhile.
    fn end(&self, call: u64, waits: &Waits, absent: Option<&Absent>) {
        let lasted = Duration::from_millis(u64::try_from(waits.since.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut report = format!(
            "gpucomm: {} has waited within NVSHMEM for {:?}, in {} (its call {call} of the library), which never gives up.",
            self.own(),
            lasted.min(waits.timeout),
            waits.operation
        );
        self.others(&mut report, &waits.awaited, absent);
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

    /// What is known of the others that are awaited.
    fn others(&self, report: &mut String, awaited: &Awaited, absent: Option<&Absent>) {
        match &self.notes {
            Some(notes) => notes.report(report, &self.pes(awaited), absent),
            None => report.push_str(" Who is missing is not known: the context has no exchange to ask."),
        }
    }
}
