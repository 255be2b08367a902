//! What ends the process where a thread waits for other PEs within the library, which never gives up.
//!
//! It has the exchange asked meanwhile who has ended: nobody waits for a PE of which that is known. The thread with the clock does not ask
//! itself, because a store may block.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use super::lateness::Shortest;
use super::notes::{Absent, Notes, Point, behind, within};
use super::questions::Questions;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::lock::{Condvar, Mutex, MutexGuard};

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

/// How long the end of a call waits until its note is taken away.
const TAKE: Duration = Duration::from_secs(1);

/// How often it asks the exchange who has ended.
const ASKS: Duration = Duration::from_millis(200);

/// How often it looks, after it has found that a PE has ended, before a wait that gives up by itself does so: a PE that came, and ended then, is
/// no reason to.
const REST: u32 = 10;

/// The same before it ends the process.
const LONG_REST: u32 = 20;

/// The same where the library ends. A PE that dies after it is done with that end, and before it says so, has the others end as well, while they give
/// back what they have.
const REST_AT_END: u32 = 40;

/// The same where nobody can say any more whether the PE was done with that end.
const REST_UNKNOWN: u32 = 100;

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

/// Looks after the calls of one context, from a thread of its own. Also without that thread it tells the other PEs what this one does.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    /// Whether there is a thread.
    is_on: bool,
}

struct Shared {
    now: Mutex<Now>,
    /// Held by who leaves the note that tells the others that this PE waits, or takes it away.
    note: Mutex<()>,
    over: Condvar,
    /// The PE, and how many there are; `None` where the library is to say so, and has not.
    place: Option<(usize, usize)>,
    questions: Option<Questions>,
    /// The last meeting of each team that this PE has gone on from and has told the others.
    passed: Mutex<BTreeMap<u64, u64>>,
    /// Whether the others are told that this PE comes to nothing more.
    has_left: AtomicBool,
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
    fn rest(&self, absent: &Absent) -> u32 {
        match self.awaited {
            Awaited::AllAtEnd if absent.may_be_through => REST_UNKNOWN,
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
    /// The question that has no answer yet, and the call that it is of.
    open: Option<(u64, Receiver<Option<Absent>>)>,
    /// Who does not come, and how often it still looks before it says so.
    absent: Option<(Absent, u32)>,
}

impl Asked {
    /// Who does not come, once, when the call has had time to be over all the same.
    fn due(&mut self) -> Option<Absent> {
        let (absent, rest) = self.absent.as_mut()?;
        *rest = rest.checked_sub(1)?;
        (*rest == 0).then(|| absent.clone())
    }
}

/// The call is over, also where it panics.
struct Over<'s>(&'s Arc<Shared>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let (told, most) = {
            let mut now = self.0.now();
            let most = now.waits.take().map_or(TAKE, |waits| TAKE.min(behind(waits.timeout)));
            (if now.note_stays() { 0 } else { now.told }, most)
        };
        // What a PE does that dies from now on is not that it waits.
        if let Some(questions) = self.0.questions.as_ref().filter(|_| told != 0) {
            let shared = Arc::clone(self.0);
            questions.ask(most, move |notes| shared.take_note(notes, told));
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
    /// For a PE of so many, which tells the others by `exchange`, if there is one and it has the same ranks. All PEs have the same name for this
    /// `start`. The thread is there only if it `is_on`.
    pub(crate) fn start(
        place: Option<(usize, usize)>,
        exchange: Option<&Exchange>,
        start: &[u8],
        is_on: bool,
    ) -> Result<Self> {
        let (now, note, over, in_vain, passed, has_left) = Default::default();
        let exchange = exchange.filter(|exchange| place == Some((exchange.rank(), exchange.size())));
        // Of others, of which the only PE has none.
        let exchange = exchange.filter(|exchange| exchange.size() > 1);
        let questions = exchange.map(|exchange| Notes::new(exchange, start)).transpose()?.map(Questions::new);
        let shared = Arc::new(Shared { now, note, over, place, questions, passed, has_left, in_vain });
        if is_on {
            let watched = Arc::clone(&shared);
            let spawned = thread::Builder::new().name("nvshmem watchdog".to_owned()).spawn(move || watched.watch());
            spawned.map_err(|error| Error::InvalidUsage {
                operation: "ContextBuilder::init",
                reason: format!("no thread for the watchdog: {error}"),
            })?;
        }
        Ok(Self { shared, is_on })
    }

    /// Runs `call`, which may wait for others for ever: where it does so for `timeout`, or one of them has ended, the process ends.
    pub(crate) fn during<R>(
        &self,
        operation: &'static str,
        timeout: Duration,
        awaited: &Awaited,
        call: impl FnOnce() -> R,
    ) -> R {
        let _over = self.is_on.then(|| self.shared.begin(operation, timeout, awaited, false));
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
        let shared = &self.shared;
        let _over = shared.begin(operation, timeout, awaited, true);
        let number = shared.now().calls;
        let (deadline, is_up, is_passed) = (Cell::new(Deadline::after(timeout)), Cell::default(), Cell::default());
        call(&Waiting { shared, number, operation, timeout, awaited, deadline, is_up, is_passed })
    }

    /// Returns true if another PE may have given up on a meeting that began at `since`, with these timeouts, or who knows when.
    pub(super) fn may_be_given_up(&self, shortest: &Shortest, since: Option<Instant>) -> bool {
        self.shared.questions.is_some() && shortest.may_be_over(since, ASKS + LOOK * REST)
    }

    /// This PE goes on from the meeting `point`, to which it has come late. Waits for the store until the deadline of the call, or for a moment.
    ///
    /// # Errors
    /// [`Error::Gone`] if another PE had given up on it: that one does not go on. [`Error::Exchange`] if the store does not say.
    pub(crate) fn pass(&self, operation: &'static str, point: Point, deadline: &Deadline) -> Result<()> {
        let shared = &self.shared;
        let Some(questions) = &shared.questions else { return Ok(()) };
        let answer = questions.ask(within(deadline.remaining(), deadline.timeout()), move |notes| notes.passes(point));
        let absent = answer.unwrap_or_else(|| {
            let reason = "no answer from the store".to_owned();
            Err(Error::Exchange { operation, key: String::new(), reason })
        });
        match absent {
            Ok(None) => {
                let before = shared.passed().insert(point.0, point.1);
                if let Some(before) = before {
                    // All have come to a later one.
                    questions.begin(move |notes| notes.forget((point.0, before)));
                }
                Ok(())
            }
            Ok(Some(Absent { pe, how, .. })) => {
                let how = format!("{how}; {} has come too late", shared.own());
                self.leave(format!("has come too late to {operation}"));
                Err(Error::Gone { operation, rank: pe, how })
            }
            Err(error) => {
                let own = shared.own();
                let reason =
                    format!("{own} cannot tell whether another PE has given up on this one, as it came late: {error}");
                Err(Error::Exchange { operation, key: String::new(), reason })
            }
        }
    }

    /// This PE fails in the meeting `point`, before or after all have come: it does not go on from there.
    pub(super) fn abandon(&self, operation: &'static str, point: Point, error: &Error) {
        let how = format!("has given up {operation}: {}", why(error));
        let Some(questions) = self.shared.questions.as_ref().filter(|_| !self.shared.leaves()) else { return };
        questions.begin(move |notes| {
            notes.gives_up(point, &how);
            notes.gave_up(&how);
        });
    }

    /// This PE comes to nothing more, because of this error.
    pub(crate) fn give_up(&self, error: &Error) {
        self.leave(format!("has given up its context: {}", why(error)));
    }

    /// Has the others told that this PE comes to nothing more, unless they are. Does not wait for that: if the process ends before, they find that.
    fn leave(&self, how: String) {
        if let Some(questions) = self.shared.questions.as_ref().filter(|_| !self.shared.leaves()) {
            questions.begin(move |notes| notes.gave_up(&how));
        }
    }

    /// No member comes to a meeting of this team any more.
    pub(crate) fn forget(&self, team: u64) {
        let last = self.shared.passed().remove(&team);
        if let (Some(questions), Some(last)) = (&self.shared.questions, last) {
            questions.begin(move |notes| notes.forget((team, last)));
        }
    }

    /// This PE has finalized: the others are not to take its end for a death. Waits for the store until the deadline of the call, or for a moment.
    pub(crate) fn finalized(&self, deadline: &Deadline) {
        let Some(questions) = &self.shared.questions else { return };
        questions.ask(within(deadline.remaining(), deadline.timeout()), Notes::finalized);
        let points: Vec<Point> = std::mem::take(&mut *self.shared.passed()).into_iter().collect();
        if !points.is_empty() {
            questions.begin(move |notes| points.into_iter().for_each(|point| notes.forget(point)));
        }
    }
}

/// A wait for other PEs that gives up by itself.
pub(crate) struct Waiting<'w> {
    shared: &'w Arc<Shared>,
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
        let shared = self.shared;
        if shared.in_vain.load(Ordering::Acquire) != self.number {
            return None;
        }
        let Absent { pe, how, .. } = shared.now().absent.clone()?;
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
        let shared = self.shared;
        let how = format!("has given up {}: {}", self.operation, why(&error));
        let left = Deadline::after(within(self.deadline.get().remaining(), self.timeout));
        // The only member of a team asks nobody.
        if let Some(questions) = shared.questions.as_ref().filter(|_| !shared.others_of(self.awaited).is_empty()) {
            let (passed, note) = (self.is_passed.get(), how.clone());
            let gives_up = questions.ask(left.remaining(), move |notes| {
                let gives_up = passed || notes.gives_up(point, &note);
                if gives_up {
                    notes.gave_up(&note);
                }
                gives_up
            });
            if gives_up == Some(false) {
                // All have come, and so its own device is there in a moment.
                self.is_passed.set(true);
                self.deadline.set(Deadline::after(self.timeout));
                self.is_up.set(false);
                shared.in_vain.store(0, Ordering::Release);
                return None;
            }
            shared.leaves();
        }
        let error = self.late_by(error, &left);
        let mut now = shared.now();
        // The thread ends, and leaves the note.
        now.gave_up = Some(Instant::now());
        now.over = true;
        Some(error)
    }

    /// An error that says who is missing, where it is a timeout. The others give up as well, and are to find the note.
    pub(crate) fn late(&self, error: Error) -> Error {
        self.late_by(error, &Deadline::after(behind(self.timeout)))
    }

    /// The same, which waits for the store until this deadline.
    fn late_by(&self, error: Error, deadline: &Deadline) -> Error {
        let Error::Timeout { operation, timeout, mut detail } = error else { return error };
        detail.push('.');
        self.shared.others(&mut detail, self.awaited, None, deadline.remaining());
        self.shared.now().gave_up = Some(Instant::now());
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
        self.shared.now().over = true;
        self.shared.over.notify_all();
    }
}

impl Shared {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock()
    }

    fn note(&self) -> MutexGuard<'_, ()> {
        self.note.lock()
    }

    fn passed(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.passed.lock()
    }

    /// This PE comes to nothing more. Returns true if the others are told already.
    fn leaves(&self) -> bool {
        self.has_left.swap(true, Ordering::Relaxed)
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

    /// The other PEs among those.
    fn others_of(&self, awaited: &Awaited) -> Vec<usize> {
        let own = self.place.map(|(pe, _)| pe);
        self.pes(awaited).into_iter().filter(|pe| Some(*pe) != own).collect()
    }

    /// Takes the note away that is of this call, if it is still there.
    fn take_note(&self, notes: &Notes, call: u64) {
        let _note = self.note();
        let is_there = self.now().told == call;
        if is_there {
            self.now().told = 0;
            notes.waits_no_more();
        }
    }

    /// A call begins, until what this returns is dropped.
    fn begin(
        self: &Arc<Self>,
        operation: &'static str,
        timeout: Duration,
        awaited: &Awaited,
        gives_up: bool,
    ) -> Over<'_> {
        let awaited = awaited.clone();
        let mut now = self.now();
        now.calls += 1;
        now.waits = Some(Waits { operation, since: Instant::now(), timeout, gives_up, awaited });
        Over(self)
    }

    /// The thread.
    fn watch(self: Arc<Self>) {
        let mut asked = Asked::default();
        loop {
            let (call, waits, stale) = {
                let now = self.now();
                if now.over {
                    return;
                }
                let now = self.over.wait_timeout(now, LOOK);
                let of_others = now.waits.is_none() || now.told != now.calls;
                let stale = if of_others && !now.note_stays() { now.told } else { 0 };
                (now.calls, now.waits.clone(), stale)
            };
            if let Some(waits) = &waits {
                if asked.call != call {
                    asked = Asked { call, last: Some(waits.since), open: asked.open, absent: None };
                }
                match asked.due() {
                    Some(absent) if waits.gives_up => self.wakes(call, absent),
                    Some(absent) => self.end(call, waits, Some(absent)),
                    None if waits.since.elapsed() >= waits.timeout && !waits.gives_up => self.end(call, waits, None),
                    None => {}
                }
            }
            self.inquire(&mut asked, waits.as_ref(), stale);
        }
    }

    /// Has the exchange told and asked what is due, unless it still is: of a call that goes on, if there is one, and a note that is `stale`, which is of the
    /// call of this number.
    fn inquire(self: &Arc<Self>, asked: &mut Asked, waits: Option<&Waits>, stale: u64) {
        let Some(questions) = &self.questions else { return };
        if let Some((call, answer)) = &asked.open {
            let answer = answer.try_recv();
            if answer == Err(TryRecvError::Empty) {
                return;
            }
            if let (Some(waits), Ok(Some(absent)), true) = (waits, answer, *call == asked.call) {
                let rest = waits.rest(&absent);
                asked.absent = Some((absent, rest));
            }
            asked.open = None;
        }
        let call = asked.call;
        let text =
            waits.filter(|waits| waits.since.elapsed() >= TELL.min(waits.timeout / 2) && self.now().told != call);
        let text = text.map(|waits| format!("waits in {}, its call {call} of the library", waits.operation));
        let asks = asked.absent.is_none() && asked.last.is_none_or(|last| last.elapsed() >= ASKS);
        let awaited = waits.map(|waits| &waits.awaited).filter(|awaited| asks && !matches!(awaited, Awaited::Nobody));
        let awaited = awaited.map(|awaited| (self.others_of(awaited), matches!(awaited, Awaited::AllAtEnd)));
        if stale == 0 && text.is_none() && awaited.is_none() {
            return;
        }
        if awaited.is_some() {
            asked.last = Some(Instant::now());
        }
        let shared = Arc::clone(self);
        let answer = questions.begin(move |notes| {
            if stale != 0 {
                shared.take_note(notes, stale);
            }
            if let Some(text) = text {
                shared.tell(notes, call, &text);
            }
            awaited.and_then(|(others, at_end)| notes.absent(&others, at_end))
        });
        asked.open = Some((call, answer));
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
    fn tell(&self, notes: &Notes, call: u64, text: &str) {
        let _note = self.note();
        {
            let mut now = self.now();
            if now.told == call || now.calls != call || now.waits.is_none() {
                return;
            }
            now.told = call;
        }
        notes.waits(text);
    }

    /// Says who is missing, and ends the process; unless the call has come back meanwhile.
    fn end(&self, call: u64, waits: &Waits, absent: Option<Absent>) {
        let lasted = Duration::from_millis(u64::try_from(waits.since.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut report = format!(
            "gpucomm: {} has waited within NVSHMEM for {:?}, in {} (its call {call} of the library), which never gives up.",
            self.own(),
            lasted.min(waits.timeout),
            waits.operation
        );
        self.others(&mut report, &waits.awaited, absent, behind(waits.timeout));
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

    /// What is known of the others that are awaited, if the store says so within this time.
    fn others(&self, report: &mut String, awaited: &Awaited, absent: Option<Absent>, within: Duration) {
        let others = self.others_of(awaited);
        if self.place.is_some() && others.is_empty() {
            return;
        }
        let Some(questions) = &self.questions else {
            report.push_str(" Who is missing is not known: the context has no exchange to ask.");
            return;
        };
        let known = absent.clone();
        // Half of the time is for notes that are not there, half for the answer.
        let found = questions.ask(within, move |notes| notes.report(&others, absent.as_ref(), within / 2));
        report.push_str(&found.unwrap_or_else(|| Notes::unknown(known.as_ref())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_come_is_said_once() {
        let absent = Some((Absent { pe: 1, how: "has died".to_owned(), may_be_through: false }, 3));
        let mut asked = Asked { absent, ..Asked::default() };
        let said: Vec<bool> = (0..6).map(|_| asked.due().is_some()).collect();
        assert_eq!(said, [false, false, true, false, false, false]);
    }
}
