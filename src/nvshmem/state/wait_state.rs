//! The present call of a context that may wait for other PEs: which one it is, for whom it waits, and what the others know of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::notes::{Absent, Notes, behind};
use super::questions::Questions;
use crate::lock::{Condvar, Mutex, MutexGuard};

/// How long the note of a call that has given up stays.
const STAY: Duration = Duration::from_secs(5);

/// How long the end of a call waits until its note is removed, and the end of the watchdog until the store has
/// answered and its thread has ended.
pub(super) const TAKE: Duration = Duration::from_secs(1);

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

/// The state that the calls of a context share with its watchdog.
pub(super) struct WaitState {
    pub(super) now: Mutex<Now>,
    /// Held while the note that tells the others that this PE waits is left or removed.
    pub(super) note: Mutex<()>,
    pub(super) over: Condvar,
    /// The PE, and how many there are. `None` until the library says so.
    pub(super) place: Option<(usize, usize)>,
    /// `None` without an exchange, and after the end of the context.
    pub(super) questions: Mutex<Option<Questions>>,
    /// The last meeting of each team from which this PE has gone on, if it has told the others.
    pub(super) passed: Mutex<BTreeMap<u64, u64>>,
    /// Whether the others have been told that this PE takes part in nothing more.
    pub(super) has_left: AtomicBool,
    /// The number of the call that waits for a PE which has departed, or 0.
    pub(super) departed: AtomicU64,
}

#[derive(Default)]
pub(super) struct Now {
    /// How many calls there have been, the present one included.
    pub(super) calls: u64,
    pub(super) waits: Option<Waits>,
    /// The PE that will not come to the call which waits in vain.
    pub(super) absent: Option<Absent>,
    /// The number of the call whose note is in the store, or 0.
    pub(super) told: u64,
    /// When a call last gave up.
    pub(super) gave_up: Option<Instant>,
    pub(super) over: bool,
}

/// A call that has not returned.
#[derive(Clone)]
pub(super) struct Waits {
    pub(super) operation: &'static str,
    pub(super) since: Instant,
    pub(super) timeout: Duration,
    /// Whether it gives up by itself after that.
    pub(super) gives_up: bool,
    pub(super) awaited: Awaited,
}

/// Marks a call as returned when it is dropped, also if the call panics.
pub(super) struct Over<'s>(&'s Arc<WaitState>);

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
    pub(super) fn note_stays(&self) -> bool {
        self.gave_up.is_some_and(|since| since.elapsed() < STAY)
    }
}

impl WaitState {
    pub(super) fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock()
    }

    pub(super) fn questions(&self) -> Option<Questions> {
        self.questions.lock().clone()
    }

    pub(super) fn note(&self) -> MutexGuard<'_, ()> {
        self.note.lock()
    }

    pub(super) fn passed(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.passed.lock()
    }

    /// Records that this PE takes part in nothing more. Returns true if that was recorded before.
    pub(super) fn leaves(&self) -> bool {
        self.has_left.swap(true, Ordering::Relaxed)
    }

    /// This PE, as text.
    pub(super) fn own(&self) -> String {
        self.place.map_or_else(|| "a PE without a number".to_owned(), |(pe, n_pes)| format!("PE {pe} of {n_pes}"))
    }

    /// The numbers of this PE, if it has one, and of the other one that a call awaits, if it is one only.
    pub(super) fn between(&self, awaited: &Awaited) -> (Option<usize>, Option<usize>) {
        let others = self.others_of(awaited);
        (self.place.map(|(pe, _)| pe), if let [one] = others[..] { Some(one) } else { None })
    }

    /// The PEs that must come to a call, or may.
    pub(super) fn pes(&self, awaited: &Awaited) -> Vec<usize> {
        match awaited {
            Awaited::Members(members) => members.to_vec(),
            _ => (0..self.place.map_or(0, |(_, n_pes)| n_pes)).collect(),
        }
    }

    /// The other PEs among those.
    pub(super) fn others_of(&self, awaited: &Awaited) -> Vec<usize> {
        let own = self.place.map(|(pe, _)| pe);
        self.pes(awaited).into_iter().filter(|pe| Some(*pe) != own).collect()
    }

    /// Removes the note of this call, if it is still there.
    pub(super) fn take_note(&self, notes: &Notes, call: u64) {
        let _note = self.note();
        let is_there = self.now().told == call;
        if is_there {
            self.now().told = 0;
            notes.waits_no_more();
        }
    }

    /// Records that a call begins. It has returned when the value of this function is dropped.
    pub(super) fn begin(
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

    /// Adds what is known of the awaited PEs to the report, if the store answers within this time.
    pub(super) fn others(&self, report: &mut String, awaited: &Awaited, absent: Option<Absent>, within: Duration) {
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
