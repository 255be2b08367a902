//! What processes tell each other of a world: that it has failed, or that one has left.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::note::Note;
use super::threads::spawn;
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Cause, Error, Result};
use crate::exchange::farewell::{self, Telling};
use crate::exchange::{Came, Exchange};
use crate::nccl::Totals;

/// How long a look into the store takes.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// How long one attempt to tell the others takes.
pub(super) const TELL: Duration = Duration::from_secs(1);

/// Has another thread tell the others how this rank ends. If the store does not take that in time, tells them again later.
pub(super) fn tell(exchange: &Exchange, note: &Note) -> Telling {
    let text = note.to_text();
    let own = exchange.with_timeout(TELL);
    farewell::tell(exchange.store_number(), move || {
        let key = Note::key(own.rank());
        let result = own.leave_note(&key, text.as_bytes(), TELL);
        let leave = own.note_for_later(&key);
        drop(own);
        if !is_over(&result) {
            // If there is no thread for it, the others find that the process has ended, or is late.
            let again = move || tell_again(|| leave(text.as_bytes(), TELL));
            let _ = thread::Builder::new().name("gpucomm-tell".into()).spawn(again);
        }
        result
    })
}

/// Has another thread withdraw this rank from the exchange.
pub(super) fn withdraw(exchange: &Exchange) -> Telling {
    let own = exchange.with_timeout(TELL);
    // If the store does not take it, the others wait until they know that this rank has ended.
    farewell::tell(exchange.store_number(), move || own.withdraw())
}

/// Whether the others are told, or nobody can be told any more.
fn is_over(result: &Result<()>) -> bool {
    matches!(result, Ok(()) | Err(Error::Departed { .. }))
}

/// Tells the others until they are told, the exchange has ended, or the default timeout has passed. Nobody waits for this.
fn tell_again(leave: impl Fn() -> Option<Result<()>>) {
    let deadline = Deadline::after(default_timeout());
    while !deadline.expired() {
        thread::sleep(LOOK);
        if leave().is_none_or(|result| is_over(&result)) {
            return;
        }
    }
}

/// Has a thread listen what becomes of the others, as long as `goes_on` says so. `leaves` is called with each rank that
/// leaves in good order, and what it has issued.
pub(super) fn others(
    exchange: &Exchange,
    goes_on: impl Fn() -> bool + Send + 'static,
    leaves: impl Fn(usize, Totals) + Send + 'static,
    fails: impl Fn(&Error) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let own = exchange.with_timeout(LOOK);
    let run = move || {
        let mut left: Vec<_> = (0..own.size()).filter(|rank| *rank != own.rank()).collect();
        while !left.is_empty() && goes_on() {
            match look(&own, &left) {
                Ok(gone) => {
                    left.retain(|rank| gone.iter().all(|(gone, _)| gone != rank));
                    gone.into_iter().for_each(|(rank, issued)| leaves(rank, issued));
                }
                Err(Heard::Failed(error)) => return fails(&error),
                Err(Heard::Nothing) => thread::sleep(LOOK),
            }
        }
    };
    spawn("gpucomm-others", run)
}

enum Heard {
    Failed(Error),
    Nothing,
}

/// Who has left in good order, and what they have issued.
fn look(exchange: &Exchange, ranks: &[usize]) -> Result<Vec<(usize, Totals)>, Heard> {
    const OPERATION: &str = "World";
    let keys: Vec<_> = ranks.iter().map(|rank| (*rank, Note::key(*rank))).collect();
    let came = exchange.notes(&keys, LOOK).map_err(|error| match error {
        Error::Departed { .. } => Heard::Failed(error),
        _ => Heard::Nothing,
    })?;
    let mut gone = Vec::new();
    for (rank, came) in ranks.iter().zip(came) {
        match came {
            Came::NotYet => {}
            Came::Value(text) => match Note::of(&String::from_utf8_lossy(&text)) {
                Note::Left(issued) => gone.push((*rank, issued)),
                Note::Failed(reason) => {
                    let reason = Cause::from(format!("rank {rank}: {reason}")).of_rank(*rank);
                    return Err(Heard::Failed(Error::Aborted { operation: OPERATION, reason }));
                }
            },
            Came::Ended(how) => return Err(Heard::Failed(Error::Departed { operation: OPERATION, rank: *rank, how })),
        }
    }
    Ok(gone)
}
