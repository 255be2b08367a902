//! From a generation that has failed to the next one.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::core::{Core, Source};
use super::options::Members;
use super::seat::Generation;
use super::vitals::Phase;
use crate::cuda::Device;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::nccl::{Clique, Communicator};

const OPERATION: &str = "World::rebuild";

/// How long somebody may still use a communicator of the generation that has failed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes the next generation of a world that is down, and has ended.
pub(super) fn rebuild(core: &Core, members: Members) -> Result<()> {
    let _turn = core.turn.lock().unwrap_or_else(PoisonError::into_inner);
    match core.vitals.now() {
        (_, Phase::Down) => {}
        // Somebody else has.
        (_, Phase::Up) => return Ok(()),
        (_, Phase::Closed) => return Err(usage("the world was shut down")),
    }
    let Some(old) = core.now() else { return Err(usage("there was no generation before")) };
    let mut source = core.source.lock().unwrap_or_else(PoisonError::into_inner);
    let communicators = match &mut *source {
        Source::Here => here(core, &old, members)?,
        Source::Far(exchange) => {
            let (communicator, next) = far(core, &old, exchange, members)?;
            *exchange = next;
            vec![communicator]
        }
        Source::Given => {
            return Err(usage(
                "the world has a communicator that it was given, and no exchange at which ranks would meet",
            ));
        }
    };
    drop(source);
    core.begin(communicators)
}

fn usage(reason: &str) -> Error {
    Error::InvalidUsage { operation: OPERATION, reason: reason.to_owned() }
}

/// All ranks are here: those whose devices answer.
fn here(core: &Core, old: &Generation, members: Members) -> Result<Vec<Communicator>> {
    // They were aborted; what keeps them alive are buffers of theirs.
    old.seats.iter().for_each(|seat| drop(seat.take_communicator()));
    let mut devices = Vec::new();
    let mut lost = None;
    for seat in &old.seats {
        match answers(seat.device) {
            Ok(()) if members == Members::Survivors && seat.is_stuck() => {
                lost = Some(usage(&format!("rank {} does not come back", seat.rank)));
            }
            Ok(()) => devices.push(seat.device),
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
    let Some(seat) = old.seats.first() else { return Err(usage("this process has no rank")) };
    let taken = seat.take_communicator();
    let exchange = match members {
        Members::Survivors => exchange.within(exchange.timeout()),
        Members::Same => {
            let view = exchange.survivors()?;
            if view.size() < exchange.size() {
                let reason = format!("{} of {} ranks are left", view.size(), exchange.size());
                return Err(Error::InvalidUsage { operation: OPERATION, reason });
            }
            view
        }
    };
    if let Some(communicator) = taken {
        let recovered = alone(communicator)?.recover(&exchange)?;
        if members == Members::Same && recovered.comm.size() < exchange.size() {
            return Err(usage("not all ranks have come back"));
        }
        return Ok((recovered.comm, recovered.exchange));
    }
    // An attempt before this one has used it up.
    let view = exchange.survivors()?;
    // SAFETY: who made the world has promised that its ranks behave as one program, also those of its later generations.
    let communicator = unsafe { Communicator::init_rank_over(seat.device, &view, &core.options.init)? };
    Ok((communicator, view))
}

/// The communicator, once nobody else has it.
fn alone(communicator: Arc<Communicator>) -> Result<Communicator> {
    let mut communicator = Some(communicator);
    let deadline = Deadline::after(PATIENCE);
    let taken = deadline.until(|| {
        Ok(communicator.take().and_then(|shared| match Arc::try_unwrap(shared) {
            Ok(alone) => Some(alone),
            Err(shared) => {
                communicator = Some(shared);
                None
            }
        }))
    })?;
    taken.ok_or_else(|| usage("a buffer of the communicator that has failed is still there: drop it"))
}
