//! The thread of a watchdog. It learns which PEs have ended, and ends the process if a call waits inside the library for one of them.
//!
//! The thread has a clock, and so does not ask the exchange itself: a store may block.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use super::notes::{Absent, Notes, behind};
use super::wait_state::{Awaited, WaitState, Waits};
use crate::error::{Error, Result};

/// The exit code of a process whose PE has waited inside the library for longer than its timeout:
/// see [`ContextOptions::with_watchdog`].
///
/// [`ContextOptions::with_watchdog`]: crate::nvshmem::ContextOptions::with_watchdog
pub const WATCHDOG_EXIT_CODE: i32 = 83;

/// How often the watchdog looks.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// How long a call waits before the watchdog tells the other PEs.
const TELL: Duration = Duration::from_millis(500);

/// How often it asks the exchange which PEs have ended.
pub(super) const ASKS: Duration = Duration::from_millis(200);

/// How many more times it looks after it has found that a PE has ended, before a wait that can give up does so: a PE may have come
/// to the call, and ended after that.
pub(super) const REST: u32 = 10;

/// The same, before it ends the process.
const LONG_REST: u32 = 20;

/// The same, for the end of the library: a PE may be done with it, and end before it has said so.
const REST_AT_END: u32 = 40;

/// The same, if the store has ended too, so that nothing tells whether the PE was done with the end.
const REST_UNKNOWN: u32 = 100;

/// How long the report may take.
const WRITE: Duration = Duration::from_secs(1);

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
    open: Option<(u64, Receiver<Option<Absent>>)>,
    /// The PE that will not come.
    absent: Option<Found>,
}

/// A PE that has ended, and how many times the thread still looks before it says so.
struct Found(Absent, u32);

impl Found {
    /// Returns the PE, once, after the call has had time to return nevertheless.
    fn due(&mut self) -> Option<Absent> {
        self.1 = self.1.checked_sub(1)?;
        (self.1 == 0).then(|| self.0.clone())
    }
}

impl WaitState {
    /// Starts the thread. The channel closes when it has ended.
    pub(super) fn start_watch(shared: &Arc<Self>) -> Result<Receiver<()>> {
        let (shared, (running, ended)) = (Arc::clone(shared), mpsc::channel());
        let run = move || {
            let _running: mpsc::Sender<()> = running;
            shared.watch();
        };
        thread::Builder::new().name("nvshmem watchdog".to_owned()).spawn(run).map_err(|error| Error::InvalidUsage {
            operation: "Context::init",
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
                    asked = Asked { call, last: Some(waits.since), open: asked.open, absent: None };
                }
                match asked.absent.as_mut().and_then(Found::due) {
                    Some(absent) if waits.gives_up => self.wakes(call, absent),
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
            if let (Some(waits), Ok(Some(absent)), true) = (waits, answer, *call == asked.call) {
                let rest = waits.rest(&absent);
                asked.absent = Some(Found(absent, rest));
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

    /// Makes a call give up that waits for a PE which will not come.
    fn wakes(&self, call: u64, absent: Absent) {
        let mut now = self.now();
        if now.calls == call && now.waits.is_some() {
            now.absent = Some(absent);
            self.departed.store(call, Ordering::Release);
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
