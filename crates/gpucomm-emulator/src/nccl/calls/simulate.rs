//! `ncclGroupSimulateEnd`: a group of which NCCL says how long it may take, and which it forgets.
//!
//! As in NCCL, it is no rehearsal: what a collective connects for the first time is connected, for which all ranks have to come; jobs are
//! done; one rank alone copies in the call, before there is anything to simulate; and what does not block is launched. Messages stay in NCCL's
//! queues, whose memory is reused, and are not connected any more, so that the next group does who knows what. So do broadcasts from several
//! roots, since NCCL has queues for them.

use super::connect;
use super::group::{self, Parts};
use crate::bugs::Nccl;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::Kind;
use crate::nccl::requests::batch::Batch;
use crate::nccl::requests::operation::Operation;
use crate::nccl::state::comm::Comm;
use crate::settings::settings;
use crate::sys::{NCCL_VERSION_CODE, ncclResult_t, ncclSimInfo_t};

const MAGIC: u32 = 0x7468_5283;

/// The first version that has a queue for the broadcasts of each root, beside those for messages. It takes them out before it simulates
/// where there is one root alone.
const QUEUES_BROADCASTS: Nccl = 2_29_02;

/// Microseconds that a step from one rank to the next takes, and one byte of it: 200 GB/s.
const STEP: f32 = 1.5;
const BYTE: f32 = 1.0 / 200e3;

/// What `NCCL_SIM_INFO_INITIALIZER` holds.
pub(crate) fn initial() -> ncclSimInfo_t {
    ncclSimInfo_t { size: size_of::<ncclSimInfo_t>(), magic: MAGIC, version: NCCL_VERSION_CODE, estimatedTime: -1.0 }
}

/// `ncclGroupSimulateEnd`: the estimate, where there is one.
pub(crate) fn end(info: &ncclSimInfo_t) -> (Outcome<ncclResult_t>, Option<f32>) {
    let mut estimate = None;
    let ended = group::end_by(|parts| {
        if info.magic != MAGIC {
            return Err(Failure::argument("ncclSimInfo_t was not made by NCCL_SIM_INFO_INITIALIZER"));
        }
        simulate(parts, &mut estimate)
    });
    (ended, estimate)
}

fn simulate((batches, jobs, late, blocking): Parts, estimate: &mut Option<f32>) -> Outcome<ncclResult_t> {
    if blocking == Some(false) {
        return Err(Failure::unnoticed(
            "a simulated group of communicators that do not block is launched all the same",
        ));
    }
    let is_message =
        |one: &Operation| one.kind.message() || matches!(one.kind, Kind::AlltoAll | Kind::Gather | Kind::Scatter);
    let mut operations = batches.iter().filter(|batch| batch.comm.size > 1).flat_map(|batch| &batch.operations);
    if let Some(one) = operations.find(|one| is_message(one)) {
        let name = one.kind.name();
        return Err(Failure::unnoticed(format!("{name} in a simulated group: NCCL keeps messages for the next group")));
    }
    if settings().nccl >= QUEUES_BROADCASTS && batches.iter().any(has_several_roots) {
        return Err(Failure::unnoticed(
            "broadcasts from several roots in a simulated group: NCCL keeps them for the next group, which does those instead of its own",
        ));
    }
    if !late.is_empty() {
        return Err(Failure::unnoticed("a one-sided operation in a simulated group: NCCL keeps it for the next group"));
    }
    let (alone, others): (Vec<_>, Vec<_>) = batches.into_iter().partition(|batch| batch.comm.size == 1);
    group::submit((alone, jobs, late, blocking))?;
    connect::connect(&others)?;
    // Each overwrites what the one before has said.
    *estimate = others.iter().filter_map(last).next_back();
    Ok(ncclResult_t::ncclSuccess)
}

/// Whether there are broadcasts from several roots among the operations of one communicator.
fn has_several_roots(Batch { comm, operations, .. }: &Batch) -> bool {
    let is_one = |one: &&Operation| one.kind == Kind::Broadcast && one.bytes() > 0;
    let mut roots = operations.iter().filter(is_one).map(|one| one.peer);
    let first = roots.next();
    comm.size > 1 && roots.any(|root| Some(root) != first)
}

/// What NCCL says of the operations of one communicator: the time of those that it looks at last, the smallest ones.
fn last(Batch { comm, operations, .. }: &Batch) -> Option<f32> {
    // Of those that kernels for symmetric windows do nothing is said.
    let estimated = operations.iter().filter(|one| !one.is_symmetric(comm) && one.bytes() > 0);
    estimated.min_by_key(|one| one.bytes()).map(|one| time(comm, one))
}

/// In microseconds, round a ring.
fn time(comm: &Comm, operation: &Operation) -> f32 {
    let steps = comm.size as f32 - 1.0;
    let rounds = if operation.kind == Kind::AllReduce { 2.0 } else { 1.0 };
    rounds * (steps * STEP + operation.bytes() as f32 * steps / comm.size as f32 * BYTE)
}
