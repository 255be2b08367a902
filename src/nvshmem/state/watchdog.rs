//! Ends the process if a thread waits inside the library for other PEs beyond its timeout, because the library never gives up.
//!
//! Meanwhile it has the exchange asked which PEs have ended, so that no thread waits for a PE that is known to be dead. The thread with
//! the clock does not ask itself: a store may block.

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
use crate::lock::{Condvar, Mutex, MutexGuard, is_forked};
use crate::shared_deadline::SharedDeadline;

/// The exit code of a process whose PE has waited inside the library for longer than its timeout: see [`ContextBuilder::watchdog`].
///
/// [`ContextBuilder::watchdog`]: crate::nvshmem::ContextBuilder::watchdog
pub const WATCHDOG_EXIT_CODE: i32 = 83;

/// How often the watchdog looks.
const LOOK: Duration = Duration::from_millis(50);

/// How long a call waits before the watchdog tells the other PEs.
const TELL: Duration = Duration::from_millis(500);

/// How long the note of a call that has given up stays.
const STAY: Duration = Duration::from_secs(5);

/// How long the end of a call waits until its note is removed, and the end of the watchdog until the store has
/// answered and its thread has ended.
const TAKE: Duration = Duration::from_secs(1);

/// How often it asks the exchange which PEs have ended.
const ASKS: Duration = Duration::from_millis(200);

/// How many more times it looks after it has found that a PE has ended, before a wait that can give up does so: a PE may have come
/// to the call, and ended after that.
const REST: u32 = 10;

/// The same, before it ends the process.
const LONG_REST: u32 = 20;

/// The same, for the end of the library: a PE may be done with it, and end before it has said so.
const REST_AT_END: u32 = 40;

/// The same, if the store has ended too, so that nothing tells whether the PE was done with the end.
const REST_UNKNOWN: u32 = 100;

/// How long the report may take.
const WRITE: Duration = Duration::from_secs(1);

/// The PEs that must come to a call before it returns.
#[derive(Debug, Clone)]
pub(crate) enum Awaited {
    /// Unknown.
    Nobody,
    All,
    /// All PEs, to the end of the library.
    AllAtEnd,
    Members(Arc<[usize]>),
}

/// Watches the calls of one context, from a thread of its own. Without that thread it still tells the other PEs what this one does.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    /// Closed when the thread has ended; `None` where there is no thread.
    thread: Option<Mutex<Receiver<()>>>,
}

struct Shared {
    now: Mutex<Now>,
    /// Held while the note that tells the others that this PE waits is left or removed.
    note: Mutex<()>,
    over: Condvar,
    /// The PE, and how many there are. `None` until the library says so.
    place: Option<(usize, usize)>,
    /// `None` without an exchange, and after the end of the context.
    questions: Mutex<Option<Questions>>,
    /// The last meeting of each team from which this PE has gone on, if it has told the others.
    passed: Mutex<BTreeMap<u64, u64>>,
    /// Whether the others have been told that this PE takes part in nothing more.
    has_left: AtomicBool,
    /// The number of the call that waits in vain, or 0.
    in_vain: AtomicU64,
    /// The number of the call during which a PE has ended that does not have to come to it, or 0.
    beside: AtomicU64,
}

#[derive(Default)]
struct Now {
    /// How many calls there have been, the present one included.
    calls: u64,
    waits: Option<Waits>,
    /// The PE that will not come to the call which waits in vain.
    absent: Option<Absent>,
    /// A PE that has ended, and does not have to come to the call.
    beside: Option<Absent>,
    /// The number of the call whose note is in the store, or 0.
    told: u64,
    /// When a call last gave up.
    gave_up: Option<Instant>,
    over: bool,
}

/// A call that has not returned.
#[derive(Clone)]
struct Waits {
    operation: &'static str,
    since: Instant,
    timeout: Duration,
    /// Whether it gives up by itself after that.
    gives_up: bool,
    awaited: Awaited,
}

impl Waits {
    /// How many times the thread looks before the end of a PE ends this wait.
    fn rest(&self, absent: &Absent) -> u32 {
        match self.awaited {
            Awaited::AllAtEnd if absent.may_be_through => REST_UNKNOWN,
            Awaited::AllAtEnd => REST_AT_END,
            _ if self.gives_up => REST,
            _ => LONG_REST,
        }
    }
}

/// What the thread knows for one call.
#[derive(Default)]
struct Asked {
    call: u64,
    last: Option<Instant>,
    /// The call of the question that has no answer yet, and its answer.
    open: Option<(u64, Receiver<Answer>)>,
    /// The awaited PE that will not come.
    absent: Option<Found>,
    /// A PE that has ended, and does not have to come.
    beside: Option<Found>,
}

/// What the exchange knows: an awaited PE that will not come, and another one that has ended.
type Answer = [Option<Absent>; 2];

/// A PE that has ended, and how many times the thread still looks before it says so.
struct Found(Absent, u32);

impl Found {
    /// Returns the PE, once, after the call has had time to return nevertheless.
    fn due(&mut self) -> Option<Absent> {
        self.1 = self.1.checked_sub(1)?;
        (self.1 == 0).then(|| self.0.clone())
    }
}

/// Marks a call as returned when it is dropped, also if the call panics.
struct Over<'s>(&'s Arc<Shared>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let (told, most) = {
            let mut now = self.0.now();
            let most = now.waits.take().map_or(TAKE, |waits| TAKE.min(behind(waits.timeout)));
            (if now.note_stays() { 0 } else { now.told }, most)
        };
        // If this PE dies from now on, it must not seem to wait.
        if let Some(questions) = self.0.questions().filter(|_| told != 0) {
            let shared = Arc::clone(self.0);
            questions.ask_if_free(most, move |notes| shared.take_note(notes, told));
        }
    }
}

impl Now {
    /// Returns true if the note of a call that has given up must stay for the others.
    fn note_stays(&self) -> bool {
        self.gave_up.is_some_and(|since| since.elapsed() < STAY)
    }
}

impl Watchdog {
    /// Starts the watchdog of one PE. It tells the others by `exchange`, if that has the same ranks. `start` names this start of the
    /// library, in the same way on all PEs. The thread runs only if `is_on`.
    pub(crate) fn start(
        place: Option<(usize, usize)>,
        exchange: Option<&Exchange>,
        start: &[u8],
        is_on: bool,
    ) -> Result<Self> {
        let (now, note, over, passed, has_left) = Default::default();
        let (in_vain, beside) = Default::default();
        let exchange = exchange.filter(|exchange| place == Some((exchange.rank(), exchange.size())));
        // A single PE has no others to tell.
        let exchange = exchange.filter(|exchange| exchange.size() > 1);
        let questions = exchange.map(|exchange| Notes::new(exchange, start)).transpose()?.map(Questions::new);
        let questions = Mutex::new(questions);
        let shared = Arc::new(Shared { now, note, over, place, questions, passed, has_left, in_vain, beside });
        let thread = is_on.then(|| Shared::watched(&shared)).transpose()?.map(Mutex::new);
        Ok(Self { shared, thread })
    }

    /// Runs `call`, which may wait for other PEs for ever. If it waits for `timeout`, or one of them has ended, the process ends.
    pub(crate) fn during<R>(
        &self,
        operation: &'static str,
        timeout: Duration,
        awaited: &Awaited,
        call: impl FnOnce() -> R,
    ) -> R {
        let _over = self.thread.is_some().then(|| self.shared.begin(operation, timeout, awaited, false));
        call()
    }

    /// Runs `call`, which waits for other PEs too, and can give up.
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
        // Of a call that has waited before, the rest of its time, but a quarter at least: the others may be in this call already.
        let spent = timeout.saturating_sub(SharedDeadline::within(timeout).remaining()).min(timeout / 4 * 3);
        let deadline = Cell::new(Deadline::after(timeout).sooner(spent));
        let (is_up, is_passed) = Default::default();
        call(&Waiting { shared, number, operation, timeout, awaited, deadline, is_up, is_passed })
    }

    /// Returns true if another PE may have given up a meeting that began at `since`, or at an unknown time, with these timeouts.
    pub(super) fn may_be_given_up(&self, shortest: &Shortest, since: Option<Instant>) -> bool {
        self.shared.questions().is_some() && shortest.may_be_over(since, ASKS + LOOK * REST)
    }

    /// Records that this PE goes on from the meeting `point`, to which it came late. Waits for the store until the deadline of the call,
    /// or for a moment.
    ///
    /// # Errors
    /// Returns [`Error::Gone`] if another PE had given up the meeting, and so does not go on, and [`Error::Exchange`] if the store does
    /// not answer.
    pub(crate) fn pass(&self, operation: &'static str, point: Point, deadline: &Deadline) -> Result<()> {
        let shared = &self.shared;
        let Some(questions) = shared.questions() else { return Ok(()) };
        let answer = questions.ask(within(deadline.remaining(), deadline.timeout()), move |notes| notes.passes(point));
        let absent = answer.unwrap_or_else(|| {
            let reason = "no answer from the store".to_owned();
            Err(Error::Exchange { operation, key: String::new(), reason })
        });
        match absent {
            Ok(None) => {
                let before = shared.passed().insert(point.0, point.1);
                if let Some(before) = before {
                    // All PEs have come to a later one.
                    questions.forget([(point.0, before)]);
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

    /// Tells the others that this PE fails in the meeting `point`, before or after all have come, and does not go on from there.
    pub(super) fn abandon(&self, operation: &'static str, point: Point, error: &Error) {
        let how = format!("has given up {operation}: {}", why(error));
        let Some(questions) = self.shared.questions().filter(|_| !self.shared.leaves()) else { return };
        questions.begin(move |notes| {
            notes.gives_up(point, &how);
            notes.gave_up(&how);
        });
    }

    /// Tells the others that this PE takes part in nothing more because of this error.
    pub(crate) fn give_up(&self, error: &Error) {
        self.leave(format!("has given up its context: {}", why(error)));
    }

    /// Has the others told that this PE takes part in nothing more, unless they have been told. Does not wait: if the process ends
    /// before, they notice its end.
    fn leave(&self, how: String) {
        if let Some(questions) = self.shared.questions().filter(|_| !self.shared.leaves()) {
            questions.begin(move |notes| notes.gave_up(&how));
        }
    }

    /// Forgets a team of which no member comes to a meeting any more.
    pub(crate) fn forget(&self, team: u64) {
        let last = self.shared.passed().remove(&team);
        if let (Some(questions), Some(last)) = (self.shared.questions(), last) {
            questions.forget([(team, last)]);
        }
    }

    /// Tells the other PEs that this one has finalized, so that they do not take its end for a death, and ends the watchdog. Waits until
    /// the store has done this and all that it was asked before, within the deadline of the call, or for a moment behind it.
    pub(crate) fn finalized(&self, deadline: &Deadline) {
        if let Some(questions) = self.shared.questions() {
            let patience = Deadline::after(within(deadline.remaining(), deadline.timeout()));
            questions.ask(patience.remaining(), Notes::finalized);
            questions.forget(std::mem::take(&mut *self.shared.passed()));
            questions.finish(patience.remaining().min(TAKE));
        }
        self.end();
    }

    /// Waits for the thread, and gives up the exchange: nothing of the context uses the store any more, also if memory or teams of it
    /// were forgotten. A forked child has no such thread.
    fn end(&self) {
        self.shared.now().over = true;
        self.shared.over.notify_all();
        if is_forked() {
            return;
        }
        if let Some(thread) = &self.thread {
            let _ = thread.lock().recv_timeout(TAKE);
        }
        let questions = self.shared.questions.lock().take();
        drop(questions);
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
    /// Whether it has looked once more after its deadline.
    is_up: Cell<bool>,
    /// Whether another PE has gone on from this meeting.
    is_passed: Cell<bool>,
}

impl Waiting<'_> {
    /// Returns the error of a wait for a PE that has ended or given up.
    pub(crate) fn in_vain(&self) -> Option<Error> {
        let shared = self.shared;
        if shared.in_vain.load(Ordering::Acquire) != self.number {
            return None;
        }
        let Absent { pe, how, .. } = shared.now().absent.clone()?;
        let how = format!("{how}; {} waits for it", shared.own());
        Some(Error::Gone { operation: self.operation, rank: pe, how })
    }

    /// Returns the end of a PE that does not have to come to this call, as an error. Work of this PE's device may wait for that PE.
    pub(super) fn beside(&self) -> Option<(usize, Error)> {
        let shared = self.shared;
        if shared.beside.load(Ordering::Acquire) != self.number {
            return None;
        }
        let Absent { pe, how, .. } = shared.now().beside.clone()?;
        let how = format!("{how}; a stream of {} waits for it", shared.own());
        Some((pe, Error::Gone { operation: self.operation, rank: pe, how }))
    }

    /// Returns the error with which this PE gives up the meeting `point`, once it waits `in_vain` or its deadline has passed. The others
    /// learn of it, and none of them goes on from there. `detail` says for what it waits. Called again and again, each time after a
    /// check whether the wait is over.
    pub(crate) fn gives_up(&self, point: Point, in_vain: Option<Error>, detail: impl Fn() -> String) -> Option<Error> {
        let error = match in_vain {
            Some(error) => error,
            None if !self.deadline.get().expired() || !self.is_up.replace(true) => return None,
            None => self.deadline.get().error(self.operation, detail()),
        };
        let shared = self.shared;
        let how = format!("has given up {}: {}", self.operation, why(&error));
        let left = Deadline::after(within(self.deadline.get().remaining(), self.timeout));
        // A team of one member has no other PE to ask.
        if let Some(questions) = shared.questions().filter(|_| !shared.others_of(self.awaited).is_empty()) {
            let (passed, note) = (self.is_passed.get(), how.clone());
            let gives_up = questions.ask(left.remaining(), move |notes| {
                let gives_up = passed || notes.gives_up(point, &note);
                if gives_up {
                    notes.gave_up(&note);
                }
                gives_up
            });
            if gives_up == Some(false) {
                // All have come, so this PE's device will be done in a moment.
                self.is_passed.set(true);
                self.deadline.set(Deadline::after(self.timeout));
                self.is_up.set(false);
                shared.in_vain.store(0, Ordering::Release);
                shared.beside.store(0, Ordering::Release);
                return None;
            }
            shared.leaves();
        }
        let error = self.late_by(error, &left);
        let mut now = shared.now();
        // The thread ends, and the note stays.
        now.gave_up = Some(Instant::now());
        now.over = true;
        Some(error)
    }

    /// Adds the missing PEs to a timeout. The others give up as well, and the note of this PE stays for them.
    pub(crate) fn late(&self, error: Error) -> Error {
        self.late_by(error, &Deadline::after(behind(self.timeout)))
    }

    /// As [`late`](Self::late), but waits for the store until this deadline.
    fn late_by(&self, error: Error, deadline: &Deadline) -> Error {
        let Error::Timeout { operation, timeout, mut detail } = error else { return error };
        detail.push('.');
        self.shared.others(&mut detail, self.awaited, None, deadline.remaining());
        self.shared.now().gave_up = Some(Instant::now());
        Error::Timeout { operation, timeout, detail: detail.trim_end_matches('.').to_owned() }
    }
}

/// The reason with which a PE gives up, for the others.
fn why(error: &Error) -> String {
    match error {
        Error::Gone { rank, how, .. } => format!("PE {rank} {how}"),
        Error::Timeout { timeout, .. } => format!("not all PEs had come within {timeout:?}"),
        other => other.to_string(),
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock()
    }

    fn questions(&self) -> Option<Questions> {
        self.questions.lock().clone()
    }

    fn note(&self) -> MutexGuard<'_, ()> {
        self.note.lock()
    }

    fn passed(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.passed.lock()
    }

    /// Records that this PE takes part in nothing more. Returns true if that was recorded before.
    fn leaves(&self) -> bool {
        self.has_left.swap(true, Ordering::Relaxed)
    }

    /// This PE, as text.
    fn own(&self) -> String {
        self.place.map_or_else(|| "a PE without a number".to_owned(), |(pe, n_pes)| format!("PE {pe} of {n_pes}"))
    }

    /// The PEs that must come to a call, or may.
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

    /// Removes the note of this call, if it is still there.
    fn take_note(&self, notes: &Notes, call: u64) {
        let _note = self.note();
        let is_there = self.now().told == call;
        if is_there {
            self.now().told = 0;
            notes.waits_no_more();
        }
    }

    /// Records that a call begins. It has returned when the value of this function is dropped.
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

    /// Starts the thread. The channel closes when it has ended.
    fn watched(shared: &Arc<Self>) -> Result<Receiver<()>> {
        let (shared, (running, ended)) = (Arc::clone(shared), mpsc::channel());
        let run = move || {
            let _running: mpsc::Sender<()> = running;
            shared.watch();
        };
        thread::Builder::new().name("nvshmem watchdog".to_owned()).spawn(run).map_err(|error| Error::InvalidUsage {
            operation: "ContextBuilder::init",
            reason: format!("no thread for the watchdog: {error}"),
        })?;
        Ok(ended)
    }

    /// Runs the thread.
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
                    asked = Asked { call, last: Some(waits.since), open: asked.open, absent: None, beside: None };
                }
                if let Some(beside) = asked.beside.as_mut().and_then(Found::due) {
                    self.wakes(call, beside, &self.beside, |now| &mut now.beside);
                }
                match asked.absent.as_mut().and_then(Found::due) {
                    Some(absent) if waits.gives_up => self.wakes(call, absent, &self.in_vain, |now| &mut now.absent),
                    Some(absent) => self.end(call, waits, Some(absent)),
                    None if waits.since.elapsed() >= waits.timeout && !waits.gives_up => self.end(call, waits, None),
                    None => {}
                }
            }
            self.inquire(&mut asked, waits.as_ref(), stale);
        }
    }

    /// Tells and asks the exchange what is due, unless the last question has no answer yet: for a call that has not returned, and for
    /// the note of an earlier call, whose number is `stale`.
    fn inquire(self: &Arc<Self>, asked: &mut Asked, waits: Option<&Waits>, stale: u64) {
        let Some(questions) = self.questions() else { return };
        if let Some((call, answer)) = &asked.open {
            let answer = answer.try_recv();
            if answer == Err(TryRecvError::Empty) {
                return;
            }
            if let (Some(waits), Ok([absent, beside]), true) = (waits, answer, *call == asked.call) {
                let found = |absent: Absent| {
                    let rest = waits.rest(&absent);
                    Found(absent, rest)
                };
                asked.absent = absent.map(found);
                asked.beside = asked.beside.take().or_else(|| beside.map(found));
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
        let gives_up = asked.beside.is_none() && waits.is_some_and(|waits| waits.gives_up);
        let besides = if gives_up { self.others_of(&Awaited::All) } else { Vec::new() };
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
            let Some((others, at_end)) = awaited else { return Answer::default() };
            let absent = notes.absent(&others, at_end);
            let besides: Vec<_> = besides.into_iter().filter(|pe| !others.contains(pe)).collect();
            let beside = if besides.is_empty() { None } else { notes.absent(&besides, false) };
            [absent, beside]
        });
        asked.open = Some((call, answer));
    }

    /// Tells a call that can give up of a PE that has ended.
    fn wakes(&self, call: u64, ended: Absent, told: &AtomicU64, absent: impl Fn(&mut Now) -> &mut Option<Absent>) {
        let mut now = self.now();
        if now.calls == call && now.waits.is_some() {
            *absent(&mut now) = Some(ended);
            told.store(call, Ordering::Release);
        }
    }

    /// Tells the others that this PE waits, once for each call, and only while it does: the end of the call removes the note.
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

    /// Says which PEs are missing, and ends the process, unless the call has returned meanwhile.
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
        // The process ends also if nothing reads its stderr.
        let (written, writing) = mpsc::channel();
        let _ = thread::Builder::new().spawn(move || {
            let _ = std::io::stderr().write_all(report.as_bytes());
            let _ = written.send(());
        });
        let _ = writing.recv_timeout(WRITE);
        // SAFETY: may be called at any time. Destructors and exit handlers would wait for the other PEs too.
        unsafe { libc::_exit(WATCHDOG_EXIT_CODE) }
    }

    /// Adds what is known of the awaited PEs to the report, if the store answers within this time.
    fn others(&self, report: &mut String, awaited: &Awaited, absent: Option<Absent>, within: Duration) {
        let others = self.others_of(awaited);
        if self.place.is_some() && others.is_empty() {
            return;
        }
        let Some(questions) = self.questions() else {
            report.push_str(" Who is missing is not known: the context has no exchange to ask.");
            return;
        };
        let known = absent.clone();
        // Half of the time is for missing notes, half for the answer.
        let found = questions.ask(within, move |notes| notes.report(&others, absent.as_ref(), within / 2));
        report.push_str(&found.unwrap_or_else(|| Notes::unknown(known.as_ref())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_come_is_said_once() {
        let mut found = Found(Absent { pe: 1, how: "has died".to_owned(), may_be_through: false }, 3);
        let said: Vec<bool> = (0..6).map(|_| found.due().is_some()).collect();
        assert_eq!(said, [false, false, true, false, false, false]);
    }
}
