//! The functions of NCCL by which communicators grow.

use std::ffi::c_int;

use super::put;
use crate::nccl::basics::config::Config;
use crate::nccl::basics::error::entry;
use crate::nccl::basics::safety::functions;
use crate::nccl::basics::unique_id;
use crate::nccl::calls::grow;
use crate::nccl::state::inside::Manner;
use crate::nccl::state::registry;
use crate::sys::{ncclComm_t, ncclConfig_t, ncclResult_t, ncclUniqueId};

pub unsafe extern "C" fn ncclCommGetUniqueId(comm: ncclComm_t, uniqueId: *mut ncclUniqueId) -> ncclResult_t {
    entry(functions::ncclCommGetUniqueId, || {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { put(uniqueId, unique_id::of(grow::id(&comm)?)) }
    })
}

pub unsafe extern "C" fn ncclCommGrow(
    comm: ncclComm_t,
    nRanks: c_int,
    uniqueId: *const ncclUniqueId,
    rank: c_int,
    newcomm: *mut ncclComm_t,
    config: *mut ncclConfig_t,
) -> ncclResult_t {
    entry(functions::ncclCommGrow, || {
        let entered = if comm.is_null() { None } else { Some(registry::enter(comm, Manner::Alone)?) };
        // SAFETY: the caller's pointer, as C declares it: null, or an id.
        let id = unsafe { uniqueId.as_ref() }.map(unique_id::read);
        // SAFETY: the caller's pointers, as C declares them: null, or a config made by its initialiser.
        let made = unsafe {
            let config = Config::read(config)?;
            match &entered {
                Some((parent, _inside)) => grow::existing(parent, nRanks, id, rank, newcomm, config),
                None => grow::newcomer(nRanks, id, rank, newcomm, config),
            }
        }?;
        Ok(made)
    })
}
