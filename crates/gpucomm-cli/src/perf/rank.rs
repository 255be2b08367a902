//! One rank of a run in which each is a process.

use gpucomm::Device;
use gpucomm::nccl::{Communicator, UniqueId};
use serde_json::{Value, json};

use super::row::{RankInfo, Setup};
use super::team::Peers;
use super::{init_options, libraries, measure};
use crate::failure::{Failure, Result};
use crate::options::{PerfOptions, Way};

/// Measures what `options` ask for on `device`, a table after the other; true if nothing was wrong.
pub fn run(options: &PerfOptions, device: Device, peers: &dyn Peers) -> Result<bool> {
    let mut good = true;
    for way in options.ways() {
        good &= table(options, way, device, peers)?;
    }
    Ok(good)
}

/// One table, with a communicator of its own.
fn table(options: &PerfOptions, way: Way, device: Device, peers: &dyn Peers) -> Result<bool> {
    let rank = peers.member();
    let id = match rank {
        0 => json!(UniqueId::new()?.as_bytes().as_slice()),
        _ => Value::Null,
    };
    let ids = peers.exchange(id)?;
    let id = unique_id(&ids[0]).ok_or_else(|| Failure::run("rank 0 sent something that is no unique id"))?;
    let infos = peers.exchange(RankInfo::new(rank, device)?.json())?;
    let ranks = infos.iter().map(RankInfo::from_json).collect::<Result<_>>()?;
    let setup = Setup { options, way, libraries: libraries()?, ranks };
    // SAFETY: all ranks run this program, started with the same arguments: they run the same operations in the same order, with the
    // same counts, types and roots, all computed from those arguments. Who starts them with others is told nothing of it by NCCL, so
    // they have compared them before.
    let comm = unsafe { Communicator::init_rank_with(device, options.ranks(), &id, rank, &init_options(way)) }?;
    let result = measure::run(options, &setup, &[&comm], peers);
    match &result {
        Ok(_) => comm.close()?,
        // To drop it would be to wait, for some seconds, for work that may never be done.
        // The failure is what matters, however the abort ends.
        Err(_) => _ = comm.abort("this rank of a perf run failed"),
    }
    result
}

/// The bytes of an id, as they were sent.
pub fn bytes<const N: usize>(value: &Value) -> Option<[u8; N]> {
    let byte = |byte: &Value| byte.as_u64().and_then(|byte| byte.try_into().ok());
    let bytes: Vec<u8> = value.as_array()?.iter().map(byte).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

fn unique_id(value: &Value) -> Option<UniqueId> {
    bytes(value).map(UniqueId::from_bytes)
}
