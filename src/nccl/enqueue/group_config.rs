//! Checks that the calls of one group have configurations that NCCL can combine.

use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;

/// Refuses a group whose collectives differ in their clusters, for which NCCL has no meaning, or with two events for one communicator.
pub(crate) fn check_group(calls: &[Call<'_>]) -> Result<()> {
    if calls.iter().all(|call| call.config.is_none()) {
        return Ok(());
    }
    let config = |call: &Call<'_>| call.config.map_or((None, false), |config| (config.cluster(), config.has_event()));
    let mut collectives = calls.iter().filter(|call| call.kind.message().is_none());
    let text = |cluster: Option<i32>| cluster.map_or("none".to_owned(), |cluster| cluster.to_string());
    if let Some(first) = collectives.next()
        && let Some(other) = collectives.find(|call| config(call).0 != config(first).0)
    {
        let expected = format!("{} for all collectives of the group", text(config(first).0));
        return Err(Error::argument(other.operation, "cga_cluster_size", expected, text(config(other).0)));
    }
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| config(call).1) {
        if calls[..at].iter().any(|other| other.comm.id == call.comm.id && config(other).1) {
            let expected = "one for each communicator of a group";
            return Err(Error::argument(call.operation, "launch_completion", expected, "a second one"));
        }
    }
    Ok(())
}
