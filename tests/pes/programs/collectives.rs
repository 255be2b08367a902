//! What the members of a team do together.

use gpucomm::nvshmem::{SymmetricSlice, SymmetricSliceMut, Team, TeamPe, TeamReduce};
use gpucomm::{Result, Stream};

use super::step::{Family, Gather};
use crate::support::random::Bits;

pub fn collective<T: Bits + TeamReduce>(
    team: &mut Team<'_>,
    family: Family,
    to: SymmetricSliceMut<'_, T>,
    from: SymmetricSlice<'_, T>,
    stream: Option<&Stream>,
) -> Result<()> {
    match (family, stream) {
        (Family::Broadcast { root }, stream) => {
            let root = TeamPe(root % team.n_pes());
            match stream {
                Some(stream) => team.on(stream).broadcast(to, from, root),
                None => team.broadcast(to, from, root),
            }
        }
        (Family::Fcollect, Some(stream)) => team.on(stream).fcollect(to, from),
        (Family::Fcollect, None) => team.fcollect(to, from),
        (Family::Alltoall, Some(stream)) => team.on(stream).alltoall(to, from),
        (Family::Alltoall, None) => team.alltoall(to, from),
        (Family::Reduce(op), Some(stream)) => team.on(stream).reduce(to, from, op),
        (Family::Reduce(op), None) => team.reduce(to, from, op),
        (Family::Scatter(op), Some(stream)) => team.on(stream).reduce_scatter(to, from, op),
        (Family::Scatter(op), None) => team.reduce_scatter(to, from, op),
    }
}

pub fn gather(team: &mut Team<'_>, how: Gather, stream: &Stream) -> Result<()> {
    match how {
        Gather::Barrier => team.barrier(),
        Gather::Sync => team.sync(),
        Gather::BarrierOnStream => team.on(stream).barrier(),
        Gather::SyncOnStream => team.on(stream).sync(),
    }
}
