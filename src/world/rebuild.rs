//! From a generation that has failed to the next one.

use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, Source};
use super::health::Phase;
use super::options::Members;
use super::rank_thread::Generation;
use crate::cuda::Device;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::{Exchange, Vote};
use crate::nccl::{Clique, Communicator, begin_again, outside_of_host_functions};

const OPERATION: &str = "World::rebuild";

/// How long somebody may still use a communicator of the generation that has failed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes the next generation of a world that is down, and has ended.
pub(super) fn rebuild(core: &Core, members: Members, deadline: &Deadline) -> Result<()> {
    // Before anything is waited for: the generation that has failed may have work behind the host function.
    outside_of_host_functions(OPERATION)?;
    let Some(_turn) = core.turn_until(deadline) else {
        return Err(deadline.error(OPERATION, "another attempt is under way"));
    };
    // Only now, as somebody else may have had the turn, whose generation has failed too.
    while !core.health_state.wait_ended(deadline) {
        match core.health_state.now() {
            (_, Phase::Up) => return Ok(()),
            (_, Phase::Closed) => return Err(closed()),
            // It was up a moment ago, and has failed since.
            (_, Phase::Down) if !deadline.expired() => {}
            (_, Phase::Down) => {
                return Err(deadline.error(OPERATION, "the generation that has failed does not end"));
            }
        }
    }
    let Some(old) = core.now() else { return Err(usage("there was no generation before")) };
    // Not held while ranks meet: who ends the world tells others of it there.
    let source = || core.source.lock();
    let exchange = match &*source() {
        Source::Here => None,
        Source::Far(exchange) => Some(exchange.with_timeout(core.options.init.timeout)),
        Source::Given => {
            return Err(usage(
                "the world has a communicator that it was given, and no exchange at which ranks would meet",
            ));
        }
    };
    let communicators = match exchange {
        None => here(core, &old, members)?,
        Some(exchange) => {
            let (communicator, next) = far(core, &old, &exchange, members)?;
            *source() = Source::Far(next);
            vec![communicator]
        }
    };
    core.begin(communicators)
}

fn usage(reason: &str) -> Error {
    Error::InvalidUsage { operation: OPERATION, reason: reason.to_owned() }
}

fn closed() -> Error {
    usage("the world was closed")
}

/// A handle of the exchange that waits for other ranks no longer once the world is closed.
fn unless_closed(core: &Core, exchange: &Exchange) -> Exchange {
    let health_state = Arc::clone(&core.health_state);
    exchange.unless(move || matches!(health_state.now(), (_, Phase::Closed)).then(closed))
}

/// All ranks are here: those whose devices answer.
fn here(core: &Core, old: &Generation, members: Members) -> Result<Vec<Communicator>> {
    // They were aborted; what keeps them alive are buffers of theirs.
    old.rank_threads.iter().for_each(|rank_thread| drop(rank_thread.take_communicator()));
    let mut devices = Vec::new();
    let mut lost = None;
    for rank_thread in &old.rank_threads {
        match answers(rank_thread.device) {
            Ok(()) if members == Members::Survivors && rank_thread.is_stuck() => {
                lost = Some(usage(&format!("rank {} does not come back", rank_thread.rank)));
            }
            Ok(()) => devices.push(rank_thread.device),
            Err(error) => lost = Some(error),
        }
    }
    match lost {
        Some(error) if members == Members::Same || devices.is_empty() => return Err(error),
        _ => {}
    }
    Clique::init_all_with(&devices, &core.options.init).map(Clique::into_ranks)
}

/// Whether the device is there.
fn answers(device: Device) -> Result<()> {
    device.memory_info().map(drop)
}

/// Others are in other processes, and vote who is left.
fn far(core: &Core, old: &Generation, exchange: &Exchange, members: Members) -> Result<(Communicator, Exchange)> {
    let Some(rank_thread) = old.rank_threads.first() else { return Err(usage("this process has no rank")) };
    if let Err(error) = answers(rank_thread.device) {
        // The others do not wait for it. Where this cannot be said, they do.
        let _ = exchange.withdraw();
        return Err(error);
    }
    let unless_closed = unless_closed(core, exchange);
    // Before anything is said to others: where a buffer still needs the communicator, this can be tried again as it is.
    let taken = match rank_thread.take_communicator().map(|communicator| alone(communicator, &unless_closed)) {
        None => None,
        Some(Ok(communicator)) => Some(communicator),
        Some(Err(shared)) => {
            rank_thread.put_back(shared);
            return Err(usage("a buffer of the communicator that has failed is still there: drop it"));
        }
    };
    let exchange = match meeting(exchange, &unless_closed, members) {
        Ok(exchange) => exchange,
        Err(error) => {
            taken.into_iter().for_each(|communicator| rank_thread.put_back(Arc::new(communicator)));
            return Err(error);
        }
    };
    let (communicator, next) = match taken {
        Some(communicator) => communicator.recover(&exchange).map(|recovered| (recovered.comm, recovered.exchange))?,
        // An attempt before this one has used it up.
        None => begin_again(rank_thread.device, &exchange, &core.options.init)?,
    };
    if members == Members::Same && communicator.size() < exchange.size() {
        return Err(usage("not all ranks have come back"));
    }
    Ok((communicator, next))
}

/// Where those meet who are to be in the next generation, once all who are left have named the same members.
/// `unless_closed` is a handle of the exchange that does not wait once the world is closed. After
/// this, the others start together with this rank, which goes on until it has told them of its end.
fn meeting(exchange: &Exchange, unless_closed: &Exchange, members: Members) -> Result<Exchange> {
    let view = unless_closed.survivors()?;
    let matter = match members {
        Members::Same => "Members::Same",
        Members::Survivors => "Members::Survivors",
    };
    let vote = view.vote_on(matter, Ok(()))?;
    if !vote.no.is_empty() {
        let others = Vote { no: vote.no, ..Vote::default() };
        return Err(usage(&format!(
            "the ranks that are left do not agree: {others}; rank {} asks for {matter}; call it again with the same members on all ranks",
            view.rank()
        )));
    }
    match members {
        Members::Survivors => Ok(exchange.with_timeout(exchange.timeout())),
        Members::Same if view.size() < exchange.size() => Err(usage(&format!(
            "{} of {} ranks are left: expected all of them for Members::Same; use Members::Survivors",
            view.size(),
            exchange.size()
        ))),
        Members::Same => exchange.survivors(),
    }
}

/// The communicator, once nobody else has it. Where somebody has it for too long, or this rank is to
/// wait no longer, the shared one.
fn alone(mut communicator: Arc<Communicator>, exchange: &Exchange) -> Result<Communicator, Arc<Communicator>> {
    let deadline = Deadline::after(PATIENCE);
    loop {
        match Arc::try_unwrap(communicator) {
            Ok(alone) => return Ok(alone),
            Err(shared) if deadline.expired() || exchange.refusal().is_some() => return Err(shared),
            Err(shared) => communicator = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
