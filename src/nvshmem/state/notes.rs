//! What PEs tell each other over the exchange while they wait for each other within NVSHMEM: in what, and that they have given up.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::{Came, Exchange};

/// How long a question at the end of a wait may take.
const ASK: Duration = Duration::from_secs(2);

/// How long the answer to any question is waited for: the store may take a second more than it is allowed, and is asked again once.
const ANSWER: Duration = Duration::from_secs(7);

/// The least time for an answer behind a deadline.
const LEAST: Duration = Duration::from_millis(100);

/// How long it is before a store is asked again that has failed.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a question during a wait may take.
const GLANCE: Duration = Duration::from_millis(100);

/// What is written where all PEs have come to a meeting.
const PASSED: &str = "passed";

/// A meeting: the key of the team, or 0 for all PEs, and how many there were before.
pub(crate) type Point = (u64, u64);

/// A PE that does not come any more, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Absent {
    pub(super) pe: usize,
    pub(super) how: String,
    /// It may have finalized before it ended. The store has ended as well, and cannot say.
    pub(super) may_be_through: bool,
}

impl Absent {
    fn new(pe: usize, how: String) -> Self {
        Self { pe, how, may_be_through: false }
    }
}

/// How long an answer is waited for behind the deadline of a wait with this timeout: the call takes a quarter of its timeout more, at most.
pub(super) fn behind(timeout: Duration) -> Duration {
    (timeout / 4).clamp(LEAST, ANSWER)
}

/// How long an answer is waited for within a call that has so much `left` of its timeout.
pub(super) fn within(left: Duration, timeout: Duration) -> Duration {
    left.clamp(behind(timeout), ANSWER)
}

/// The notes of this PE, and those of the others.
pub(super) struct Notes {
    exchange: Exchange,
    pe: usize,
}

impl Notes {
    /// In `exchange`, whose ranks are the PEs. All of them have the same name for their `start`, and another one for each.
    pub(super) fn new(exchange: &Exchange, start: &[u8]) -> Result<Self> {
        let name = [b"nvshmem/", start].concat();
        Ok(Self { pe: exchange.rank(), exchange: exchange.named(&name)? })
    }

    /// Says that this PE waits.
    pub(super) fn waits(&self, text: &str) {
        let _ = self.exchange.leave_note(&waits(self.pe), text.as_bytes(), ASK);
    }

    /// It waits no more.
    pub(super) fn waits_no_more(&self) {
        self.exchange.take_note(&waits(self.pe));
    }

    /// Says that this PE comes to nothing more.
    pub(super) fn gave_up(&self, how: &str) {
        let _ = self.exchange.leave_note(&given_up(self.pe), how.as_bytes(), ASK);
    }

    /// Says that this PE has finalized.
    pub(super) fn finalized(&self) {
        let _ = persist(|| self.exchange.leave_note(&finalized(self.pe), &[], ASK));
    }

    /// How long the drop of the last owner of the store may wait for the other PEs.
    pub(super) fn lingers(&self) -> Duration {
        self.exchange.lingers()
    }

    /// The first of these others that has ended, or has given up. At the end of the library, a PE that has finalized may have ended. Does not wait for a
    /// store that does not answer.
    pub(super) fn absent(&self, others: &[usize], at_end: bool) -> Option<Absent> {
        let mut others = others.to_vec();
        while let Some((pe, how)) = self.exchange.departed_of(&others, GLANCE) {
            if at_end {
                // Asked after that: who finalizes says so before it ends. If the store does not say, nobody knows.
                let keys: Vec<_> = others.iter().map(|pe| finalized(*pe)).collect();
                let mut notes = match self.exchange.notes_now(&keys) {
                    Ok(notes) => notes.into_iter(),
                    // The store has ended together with the PE that serves it.
                    Err(Error::Departed { .. }) => return Some(Absent { pe, how, may_be_through: true }),
                    Err(_) => return None,
                };
                others.retain(|_| notes.next().is_some_and(|note| note.is_none()));
            }
            if others.contains(&pe) {
                return Some(Absent::new(pe, how));
            }
        }
        let keys: Vec<_> = others.iter().map(|pe| given_up(*pe)).collect();
        let notes = self.exchange.notes_now(&keys).ok()?;
        let found = others.into_iter().zip(notes).find_map(|(pe, note)| Some((pe, note?)));
        found.map(|(pe, note)| Absent::new(pe, String::from_utf8_lossy(&note).into_owned()))
    }

    /// This PE gives up on a meeting. Returns false if it may not, because another one has gone on from there.
    pub(super) fn gives_up(&self, point: Point, how: &str) -> bool {
        let stands = self.decide("give up", point, &format!("{} {how}", self.pe));
        // If the store does not say, it gives up all the same: nothing else is left to it.
        stands.map_or(true, |stands| stands != PASSED.as_bytes())
    }

    /// This PE goes on from a meeting to which all have come. Returns who had given up before, if anybody had.
    ///
    /// # Errors
    /// Those of the store: nobody knows then whether it may go on.
    pub(super) fn passes(&self, point: Point) -> Result<Option<Absent>> {
        let stands = self.decide("meet", point, PASSED)?;
        let stands = String::from_utf8_lossy(&stands);
        let given_up = stands.split_once(' ').and_then(|(pe, how)| Some((pe.parse().ok()?, how.to_owned())));
        Ok(given_up.map(|(pe, how)| Absent::new(pe, how)))
    }

    /// What stands for a meeting when this PE has tried to leave `note` there. A store that has not answered may have taken the note, or not: it is
    /// asked again, for a while.
    fn decide(&self, operation: &'static str, point: Point, note: &str) -> Result<Vec<u8>> {
        persist(|| self.exchange.leave_first(operation, &meeting(point), note.as_bytes(), ASK))
    }

    /// Takes away what was written for a meeting that is over for all PEs.
    pub(super) fn forget(&self, point: Point) {
        self.exchange.take_note(&meeting(point));
    }

    /// What is known of these PEs, for a report. Waits for missing notes, for `within` at most.
    pub(super) fn report(&self, others: &[usize], absent: Option<&Absent>, within: Duration) -> String {
        let keys: Vec<_> = others.iter().map(|pe| (*pe, waits(*pe))).collect();
        let Ok(notes) = self.exchange.notes(&keys, within.min(ASK)) else { return Self::unknown(absent) };
        let mut report = String::new();
        for ((pe, _), note) in keys.iter().zip(notes) {
            let _ = match (absent.filter(|absent| absent.pe == *pe), &note) {
                (Some(Absent { how, .. }), _) | (None, Came::Ended(how)) => write!(report, " PE {pe} {how}."),
                (None, Came::Value(text)) => write!(report, " PE {pe} {}.", String::from_utf8_lossy(text)),
                (None, Came::NotYet) => write!(report, " PE {pe} has not come: it waits in no call of the library."),
            };
        }
        report
    }

    /// The same where the exchange does not answer.
    pub(super) fn unknown(absent: Option<&Absent>) -> String {
        let absent = absent.map(|Absent { pe, how, .. }| format!(" PE {pe} {how}.")).unwrap_or_default();
        format!(" Who is missing is not known: the exchange does not answer.{absent}")
    }
}

/// Asks a store again that fails, for a while, unless it has ended with the PE that serves it.
fn persist<T>(ask: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Deadline::after(ASK * 2);
    loop {
        match ask() {
            Err(error) if !matches!(error, Error::Departed { .. }) && !deadline.expired() => thread::sleep(PAUSE),
            answer => return answer,
        }
    }
}

/// The key under which a PE says that it waits.
fn waits(pe: usize) -> String {
    format!("waits/{pe}")
}

/// The key under which a PE says that it comes to nothing more.
fn given_up(pe: usize) -> String {
    format!("given-up/{pe}")
}

/// The key under which a PE says that it has finalized.
fn finalized(pe: usize) -> String {
    format!("finalized/{pe}")
}

/// The key under which the first PE to go on from a meeting, or to give up on it, says which of the two it does.
fn meeting((team, number): Point) -> String {
    format!("meets/{team:x}/{number}")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;
    use crate::exchange::{TcpPlace, Threads};

    /// Two PEs, and what the first one finds of the second, which has done `last` and then ended: during any call, and at the end of the library.
    fn ended(last: impl FnOnce(&Notes) + Send) -> [Option<String>; 2] {
        let place = Threads::new(2);
        let notes = |rank: usize| Notes::new(&Exchange::join(place.store(rank).unwrap()).unwrap(), b"a start").unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| last(&notes(1)));
            let first = notes(0);
            second.join().unwrap();
            [false, true].map(|at_end| first.absent(&[1], at_end).map(|absent| absent.how))
        })
    }

    #[test]
    fn who_has_finalized_may_end() {
        let [during, at_end] = ended(Notes::finalized);
        assert!(during.is_some(), "it has ended");
        assert_eq!(at_end, None);
        let [during, at_end] = ended(|_| {});
        assert!(during.is_some() && at_end == during, "{during:?}, {at_end:?}");
        let [_, at_end] = ended(|notes| notes.gave_up("has given up"));
        assert!(at_end.is_some());
    }

    /// Its server is in the process of the first PE, and ends with that.
    #[test]
    fn a_store_that_has_ended_with_a_pe_tells_of_the_end() {
        const LIMIT: Duration = Duration::from_secs(30);
        let server = TcpPlace::new("127.0.0.1:0").serve(2).unwrap();
        let client = TcpPlace::new(server.address().to_owned());
        let notes = |exchange: Result<Exchange>| Notes::new(&exchange.unwrap(), b"a start").unwrap();
        let (met, have_met) = channel::<()>();
        let ends = thread::spawn(move || {
            let _notes = notes(Exchange::join_timeout(server, LIMIT));
            let _ = have_met.recv();
            // A server that a panic drops waits for no client.
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        let second = notes(client.connect(1, 2).and_then(|store| Exchange::join_timeout(store, LIMIT)));
        drop(met);
        ends.join().expect_err("it panics");
        let found = Deadline::after(LIMIT).until(|| Ok(second.absent(&[0], true))).unwrap();
        let Absent { pe, may_be_through, .. } = found.expect("PE 0 has ended");
        assert_eq!((pe, may_be_through), (0, true));
        // It is not asked again.
        let begin = Instant::now();
        assert!(second.gives_up((0, 1), "has given up"));
        second.finalized();
        assert!(begin.elapsed() < ASK, "{:?}", begin.elapsed());
    }

    #[test]
    fn answers_are_waited_for_as_long_as_the_timeout_allows() {
        let [ms, s] = [Duration::from_millis, Duration::from_secs];
        assert_eq!([s(300), s(4), ms(1)].map(behind), [ANSWER, s(1), LEAST]);
        assert_eq!(
            [(s(60), s(300)), (s(1), s(2)), (ms(3), s(2))].map(|(left, of)| within(left, of)),
            [ANSWER, s(1), ms(500)]
        );
    }

    #[test]
    fn a_meeting_is_given_up_or_passed() {
        let place = Threads::new(1);
        let notes = Notes::new(&Exchange::join(place.store(0).unwrap()).unwrap(), b"a start").unwrap();
        assert!(notes.gives_up((0, 1), "has died"));
        assert_eq!(notes.passes((0, 1)).unwrap(), Some(Absent::new(0, "has died".to_owned())));
        assert_eq!(notes.passes((0, 2)).unwrap(), None);
        assert!(!notes.gives_up((0, 2), "has died"));
        notes.forget((0, 2));
        assert!(notes.gives_up((0, 2), "has died"));
    }
}
