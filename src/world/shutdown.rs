//! The end of a world.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::core::{Core, Source};
use super::listen;
use super::seat::Generation;
use super::why::Reason;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::close_all;

/// How a world ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shutdown {
    /// What was submitted is done; nothing more is taken.
    #[default]
    Drain,
    /// What is under way ends with an error.
    Abort,
}

const OPERATION: &str = "World::shutdown";

/// Ends it; nothing is left when this returns, but for threads that are stuck inside NCCL.
pub(super) fn shutdown(core: &Core, how: Shutdown, timeout: Duration) -> Result<()> {
    let _turn = core.turn.lock().unwrap_or_else(PoisonError::into_inner);
    if !core.vitals.closed() {
        return Ok(());
    }
    let deadline = Deadline::after(timeout);
    core.close_next();
    let Some(generation) = core.now() else { return Ok(()) };
    let done = match how {
        Shutdown::Drain => drain(core, &generation, &deadline),
        Shutdown::Abort => Err(Error::Aborted { operation: OPERATION, reason: "the world was shut down".to_owned() }),
    };
    if let Err(cause) = &done {
        core.end(&generation, cause);
    } else if let Source::Far(exchange) = &*core.source.lock().unwrap_or_else(PoisonError::into_inner) {
        listen::tell(exchange, None);
    }
    let closed = close(&generation, done.is_ok(), &deadline);
    match (how, done) {
        (Shutdown::Abort, _) => Ok(()),
        (Shutdown::Drain, done) => done.and(closed),
    }
}

/// Lets what was submitted be done.
fn drain(core: &Core, generation: &Generation, deadline: &Deadline) -> Result<()> {
    let closed = Error::Aborted { operation: "submit", reason: "the world was shut down".to_owned() };
    for (_, queue) in &generation.queues {
        queue.close(Reason::Closed, &closed, true).refuse(Reason::Closed, &closed);
    }
    let left = || format!("{} requests are not done", core.pending());
    deadline.poll(OPERATION, left, || match core.pending() {
        0 => Ok(true),
        _ => generation.failure().map_or(Ok(false), Err),
    })
}

/// Closes the communicators, and waits for the threads.
fn close(generation: &Generation, well: bool, deadline: &Deadline) -> Result<()> {
    let grace = Deadline::after(deadline.remaining().max(Duration::from_secs(1)));
    for seat in &generation.seats {
        seat.join(&grace);
    }
    let taken = generation.seats.iter().filter_map(|seat| seat.take_communicator());
    // What somebody's buffer keeps alive is closed when that is dropped.
    let communicators: Vec<_> = taken.filter_map(Arc::into_inner).collect();
    let mut result = Ok(());
    if well {
        for closed in close_all(communicators, grace.remaining()) {
            result = result.and(closed);
        }
    } else {
        drop(communicators);
    }
    result
}
