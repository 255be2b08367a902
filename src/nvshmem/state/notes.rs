//! What PEs tell each other over the exchange while they wait for each other within NVSHMEM: in what, and that they have given up.

use std::fmt::Write as _;
use std::time::Duration;

use crate::error::Result;
use crate::exchange::{Came, Exchange};

/// How long a question at the end of a wait may take.
const ASK: Duration = Duration::from_secs(2);

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

    /// The first of `pes` that has ended, or has given up. Does not wait for a store that does not answer.
    pub(super) fn absent(&self, pes: &[usize]) -> Option<Absent> {
        let others: Vec<usize> = pes.iter().copied().filter(|pe| *pe != self.pe).collect();
        if let Some((pe, how)) = self.exchange.departed_of(&others, GLANCE) {
            return Some(Absent { pe, how });
        }
        let keys: Vec<_> = others.iter().map(|pe| given_up(*pe)).collect();
        let notes = self.exchange.notes_now(&keys).ok()?;
        let found = others.into_iter().zip(notes).find_map(|(pe, note)| Some((pe, note?)));
        found.map(|(pe, note)| Absent { pe, how: String::from_utf8_lossy(&note).into_owned() })
    }

    /// This PE gives up on a meeting: whether it may, as no other one has gone on from there.
    pub(super) fn gives_up(&self, point: Point, how: &str) -> bool {
        let note = format!("{} {how}", self.pe);
        let stands = self.exchange.leave_first("give up", &meeting(point), note.as_bytes(), ASK);
        stands.map_or(true, |stands| stands != PASSED.as_bytes())
    }

    /// This PE goes on from a meeting to which all have come: who had given up before, if anybody had.
    pub(super) fn passes(&self, point: Point) -> Option<Absent> {
        let stands = self.exchange.leave_first("meet", &meeting(point), PASSED.as_bytes(), ASK).ok()?;
        let stands = String::from_utf8_lossy(&stands);
        let (pe, how) = stands.split_once(' ')?;
        Some(Absent { pe: pe.parse().ok()?, how: how.to_owned() })
    }

    /// Adds to a report what is known of the others of `pes`.
    pub(super) fn report(&self, report: &mut String, pes: &[usize], absent: Option<&Absent>) {
        let others = pes.iter().copied().filter(|pe| *pe != self.pe);
        let keys: Vec<_> = others.map(|pe| (pe, waits(pe))).collect();
        let Ok(notes) = self.exchange.notes(&keys, ASK) else {
            report.push_str(" Who is missing is not known: the exchange does not answer.");
            if let Some(Absent { pe, how }) = absent {
                let _ = write!(report, " PE {pe} {how}.");
            }
            return;
        };
        for ((pe, _), note) in keys.iter().zip(notes) {
            let _ = match (absent.filter(|absent| absent.pe == *pe), &note) {
                (Some(Absent { how, .. }), _) | (None, Came::Ended(how)) => write!(report, " PE {pe} {how}."),
                (None, Came::Value(text)) => write!(report, " PE {pe} {}.", String::from_utf8_lossy(text)),
                (None, Came::NotYet) => write!(report, " PE {pe} has not come: it waits in no call of the library."),
            };
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

/// The key under which the first PE to go on from a meeting, or to give up on it, says which of the two it does.
fn meeting((team, number): Point) -> String {
    format!("meets/{team:x}/{number}")
}
