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
        ($op:expr, $host:ident, $on_stream:ident) => {
            match ($op, stream) {
                (Op::Sum, None) => team.$host(Sum, to, from),
                (Op::Prod, None) => team.$host(Prod, to, from),
                (Op::Min, None) => team.$host(Min, to, from),
                (Op::Max, None) => team.$host(Max, to, from),
                (Op::And, None) => team.$host(And, to, from),
                (Op::Or, None) => team.$host(Or, to, from),
                (Op::Xor, None) => team.$host(Xor, to, from),
                (Op::Sum, Some(stream)) => team.$on_stream(Sum, to, from, stream),
                (Op::Prod, Some(stream)) => team.$on_stream(Prod, to, from, stream),
                (Op::Min, Some(stream)) => team.$on_stream(Min, to, from, stream),
                (Op::Max, Some(stream)) => team.$on_stream(Max, to, from, stream),
                (Op::And, Some(stream)) => team.$on_stream(And, to, from, stream),
                (Op::Or, Some(stream)) => team.$on_stream(Or, to, from, stream),
                (Op::Xor, Some(stream)) => team.$on_stream(Xor, to, from, stream),
            }
        };
    }
    match (family, stream) {
        (Family::Broadcast { root }, stream) => {
            let root = TeamPe(root % team.n_pes());
            match stream {
                Some(stream) => team.broadcast_on_stream(to, from, root, stream),
                None => team.broadcast(to, from, root),
            }
        }
        (Family::Fcollect, Some(stream)) => team.fcollect_on_stream(to, from, stream),
        (Family::Fcollect, None) => team.fcollect(to, from),
        (Family::Alltoall, Some(stream)) => team.alltoall_on_stream(to, from, stream),
        (Family::Alltoall, None) => team.alltoall(to, from),
        (Family::Reduce(op), _) => reduced!(op, reduce, reduce_on_stream),
        (Family::Scatter(op), _) => reduced!(op, reducescatter, reducescatter_on_stream),
    }
}

pub fn gather(team: &mut Team<'_>, how: Gather, stream: &Stream) -> Result<()> {
    match how {
        Gather::Barrier => team.barrier(),
        Gather::Sync => team.sync(),
        Gather::BarrierOnStream => team.barrier_on_stream(stream),
        Gather::SyncOnStream => team.sync_on_stream(stream),
    }
}
