//! Which element types are measured.

use gpucomm::ElementKind;
use gpucomm::nccl::Communicator;

use super::team::Team;
use crate::failure::Result;
use crate::options::{PerfOptions, RedOp};

/// The compute capability of devices that reduce numbers of eight bits.
const FLOAT8: (i32, i32) = (9, 0);

/// Those that were asked for. Where all were, the ones that NCCL cannot reduce here are left out, as nccl-tests leaves them out; asked for by
/// themselves, they fail. All members say the same.
pub fn measured(options: &PerfOptions, comms: &[&Communicator], team: &dyn Team) -> Result<Vec<ElementKind>> {
    let (all, reductions) = (options.kinds.to_vec(), options.reductions());
    if all.len() == 1 || reductions == [None] {
        return Ok(all);
    }
    let mut able = true;
    for comm in comms {
        able &= comm.device().compute_capability()? >= FLOAT8;
    }
    // One rank alone has no kernel that multiplies them.
    able &= options.ranks() > 1 || !reductions.contains(&Some(RedOp::MulSum));
    let able = team.gather(f64::from(u8::from(able)))?.iter().all(|able| *able == 1.0);
    let float8 = |kind: &ElementKind| matches!(kind, ElementKind::F8E4M3 | ElementKind::F8E5M2);
    Ok(all.into_iter().filter(|kind| able || !float8(kind)).collect())
}
