//! What the members of a team do together.

use gpucomm::nvshmem::{And, Max, Min, Operation, Or, Prod, Sum, SymmetricSlice, SymmetricSliceMut, Team, TeamPe, Xor};
use gpucomm::{Result, Stream};

use super::step::{Family, Gather, Op};
use crate::support::random::Bits;

pub fn collective<T: Bits>(
    team: &mut Team<'_>,
    family: Family,
    to: SymmetricSliceMut<'_, T>,
    from: SymmetricSlice<'_, T>,
    stream: Option<&Stream>,
) -> Result<()>
where
    Sum: Operation<T>,
    Prod: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
    And: Operation<T>,
    Or: Operation<T>,
    Xor: Operation<T>,
{
    macro_rules! reduced {
        ($op:expr, $name:ident) => {
            match ($op, stream) {
                (Op::Sum, None) => team.$name(to, from, Sum),
                (Op::Prod, None) => team.$name(to, from, Prod),
                (Op::Min, None) => team.$name(to, from, Min),
                (Op::Max, None) => team.$name(to, from, Max),
                (Op::And, None) => team.$name(to, from, And),
                (Op::Or, None) => team.$name(to, from, Or),
                (Op::Xor, None) => team.$name(to, from, Xor),
                (Op::Sum, Some(stream)) => team.on(stream).$name(to, from, Sum),
                (Op::Prod, Some(stream)) => team.on(stream).$name(to, from, Prod),
                (Op::Min, Some(stream)) => team.on(stream).$name(to, from, Min),
                (Op::Max, Some(stream)) => team.on(stream).$name(to, from, Max),
                (Op::And, Some(stream)) => team.on(stream).$name(to, from, And),
                (Op::Or, Some(stream)) => team.on(stream).$name(to, from, Or),
                (Op::Xor, Some(stream)) => team.on(stream).$name(to, from, Xor),
            }
        };
    }
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
        (Family::Reduce(op), _) => reduced!(op, reduce),
        (Family::Scatter(op), _) => reduced!(op, reduce_scatter),
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
