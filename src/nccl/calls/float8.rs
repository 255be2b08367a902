//! Numbers of eight bits: which devices reduce them.

use super::site::Site;
use crate::element::ElementKind;
use crate::error::{Error, Result};
use crate::known_bugs::ONE_RANK_FLOAT8;
use crate::nccl::rank::inner::Inner;

/// The least compute capability of devices for which NCCL has kernels that add them.
const LEAST: (i32, i32) = (9, 0);

/// Refuses a reduction for which NCCL has no kernel, before any rank is waited for.
#[cold]
pub(crate) fn check(site: &Site<'_>, element: ElementKind, multiplies: bool) -> Result<()> {
    check_devices(site, element)?;
    if multiplies && site.comm.size == 1 && ONE_RANK_FLOAT8.is_running() {
        let needs = format!("two ranks or more for a pre-multiplied sum of {element}, got a communicator of 1 rank");
        return Err(Error::Unsupported { operation: site.operation, needs });
    }
    Ok(())
}

/// NCCL refuses what the oldest device of the communicator cannot do. Of ranks in other processes it alone knows the devices.
fn check_devices(site: &Site<'_>, element: ElementKind) -> Result<()> {
    if site.comm.reduces_float8.get().is_some() {
        return Ok(());
    }
    let all = site.comm.clique_ranks();
    for member in &all {
        let Inner { device, rank, .. } = **member;
        let (major, minor) = device.compute_capability_for(site.operation)?;
        if (major, minor) < LEAST {
            let needs = format!(
                "compute capability {}.{} or higher to reduce {element}, got {major}.{minor} of {device}, which is rank {rank}",
                LEAST.0, LEAST.1
            );
            return Err(Error::Unsupported { operation: site.operation, needs });
        }
    }
    // Of a part that is being made, ranks may be on their way.
    if all.len() == site.comm.validation.in_process().map_or(1, |in_process| in_process.size()) {
        let _ = site.comm.reduces_float8.set(());
    }
    Ok(())
}
