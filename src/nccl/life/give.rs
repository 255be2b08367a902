//! Communicators that are given away: another library has them from then on, and ends them.

use std::sync::Arc;
use std::sync::mpsc;

use super::abort::give_up;
use super::closing::{is_fit, wait_for_work};
use super::release::let_go;
use crate::cuda::Worker;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::raw::handle::Handle;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::state::inner::Inner;

/// Lets go of `inner`, of which the caller has the only owner, when its work is done and is well: to this crate it is as if it were closed.
///
/// Where that fails, it is active still or has ended.
pub(crate) fn give(operation: &'static str, inner: &Arc<Inner>, deadline: &Deadline) -> Result<Handle> {
    outside_of_host_functions(operation)?;
    let refused = |reason: &str| Err(Error::InvalidUsage { operation, reason: reason.into() });
    if inner.shared_lock().is_some() {
        return refused("the communicator shares its resources with others, which would go on");
    }
    if !inner.windows.registered().is_empty() {
        return refused("memory is registered with the communicator, or was: take it away by reclaim, on all ranks");
    }
    if inner.graphs.open() > 0 || inner.graphs.exist() {
        return refused(
            "graphs have operations of the communicator, for whose end NCCL waits when it ends: drop them before",
        );
    }
    let met = |error: Error| error.met_by(operation);
    wait_for_work(std::slice::from_ref(inner), deadline).map_err(met)?;
    inner.health().map_err(met)?;
    if !inner.retire() {
        return Err(inner.dead(operation));
    }
    let fit = is_fit(inner, deadline).map_err(met);
    // On a thread of its device: streams go here.
    let (sender, receiver) = mpsc::channel::<Result<()>>();
    let (one, unfit) = (Arc::clone(inner), fit.clone().err());
    inner.helper().run(move || {
        match unfit {
            Some(cause) => give_up(&one, &cause),
            None => {
                // Before it seems to have ended.
                one.graphs.give_away();
                one.household.leave_configs();
                let_go(&one);
            }
        }
        let _ = sender.send(Ok(()));
    });
    fit?;
    // Where that takes longer, it is nothing that concerns the communicator.
    let _ = receiver.recv_timeout(deadline.remaining());
    Ok(inner.handle())
}
