//! What the library cannot do, and does all the same: how it goes about a collective, and up to which size that is right.

use crate::cuda::Stream;
use crate::error::{Error, Result};
use crate::nvshmem::state::environment;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::status::Status;
use crate::nvshmem::state::teams::TeamState;
use crate::version::{Version, running_nvshmem};

/// The scratch memory of a team where the environment does not say otherwise.
const SCRATCH: usize = 1 << 19;

const SCRATCH_NAME: &str = "NVSHMEM_REDUCE_SCRATCH_SIZE";

/// Fails where kernels of the library would count `bytes` of a team by a C `int`, which is too small. They do where NCCL does not do it.
pub(super) fn check_offsets(
    inner: &Inner,
    team: &TeamState,
    operation: &'static str,
    bytes: usize,
    switches: bool,
) -> Result<()> {
    if i32::try_from(bytes).is_ok() || (uses_nccl(inner) && !(switches && team.multicast)) {
        return Ok(());
    }
    let expected = format!("at most {} bytes on each PE, as the library has no NCCL for this", i32::MAX);
    Err(Error::argument(operation, "length", expected, format_args!("{bytes} bytes")))
}

/// Whether the library has copy engines do what a team does by pushing, where NCCL does not do it: with switches, from 3.5 on, where the environment asks for
/// that.
pub(super) fn by_copies(team: &TeamState) -> bool {
    let has = || running_nvshmem().is_ok_and(|version| version >= Version::new(3, 5, 0));
    team.multicast && !environment::is_set("NVSHMEM_DISABLE_CE_COLLECTIVES", true) && has()
}

/// Fails where copy engines would do it in a graph: the library counts on the host how often members have come, and each launch counts as the first one.
pub(super) fn check_copies(team: &TeamState, operation: &'static str, stream: &Stream) -> Result<()> {
    if !by_copies(team) || stream.no_part_of_capture(operation).is_ok() {
        return Ok(());
    }
    let needs = "NVSHMEM_DISABLE_CE_COLLECTIVES=1 in the environment within a capture: with copy engines, members do not wait for each other from the second launch on";
    Err(Error::Unsupported { operation, needs: needs.to_owned() })
}

/// Fails where kernels of the library would reduce and scatter `bytes`, for which they have no room.
pub(super) fn check_scratch(
    inner: &Inner,
    team: &TeamState,
    operation: &'static str,
    bytes: usize,
    by_nccl: bool,
    by_switch: bool,
) -> Result<()> {
    let elsewhere = if team.multicast { by_switch } else { by_nccl && uses_nccl(inner) };
    if elsewhere || team.members.len() == 1 {
        return Ok(());
    }
    let room = environment::size(SCRATCH_NAME, SCRATCH) / 2;
    if bytes <= room {
        return Ok(());
    }
    let expected = format!(
        "at most {room} bytes in all, half of {SCRATCH_NAME}, as NCCL does not do it for the library; the environment can have more of that"
    );
    Err(Error::argument(operation, "length", expected, format_args!("{bytes} bytes")))
}

/// Whether the library has NCCL do what NCCL has.
pub(super) fn uses_nccl(inner: &Inner) -> bool {
    inner.status == Status::Initialized && inner.has_nccl
}
