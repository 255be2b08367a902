//! The functions of NCCL that make, describe and end communicators, and those that concern the library as a whole.

use std::ffi::{c_char, c_int};

use super::{Class, Entered, Guest, frame};
use crate::meet::register;
use crate::nccl::basics::config::{self, Config};
use crate::nccl::basics::error::{self, Failure};
use crate::nccl::basics::{coll_config, encryption, unique_id};
use crate::nccl::calls::{children, group, init, lifecycle};
use crate::nccl::state::registry;
use crate::nccl::state::resources::Manner;
use crate::nccl::state::shared::Nccl;
use crate::settings::settings;
use crate::sys::*;
use crate::table::{In, Out, exports};

type Error = Failure;
type Status = ncclResult_t;

/// As NCCL: the state of the parent tells how a non-blocking child comes on, of one that has grown its own, and the call itself has succeeded.
fn begun(made: ncclResult_t) -> ncclResult_t {
    if made == ncclResult_t::ncclInProgress { ncclResult_t::ncclSuccess } else { made }
}

exports! { LIBRARY: abi;
    Any fn ncclGetVersion(version: Out<c_int>) {
        version.set(config::version());
        Ok(())
    }

    Any fn ncclGetUniqueId(id: Out<ncclUniqueId>) {
        encryption::check()?;
        id.set(unique_id::of(register::create::<Nccl>()?));
        Ok(())
    }

    Bare fn ncclGetErrorString(result: ncclResult_t) -> *const c_char { error::describe(result).as_ptr() }

    Bare fn ncclGetLastError(comm: ncclComm_t) -> *const c_char {
        let own = std::panic::catch_unwind(|| registry::said(comm));
        error::last(own.unwrap_or_default())
    }

    Any(2_32_03) fn ncclSetEncryption(config: *const ncclEncryptionConfig_t) {
        // SAFETY: the caller's pointer, as C declares it: null, or a config made by its initialiser.
        unsafe { encryption::set(config) }
    }

    Bare fn gpucommNcclConfigInit(config: *mut ncclConfig_t) {
        if !config.is_null() {
            // SAFETY: not null, and as C declares it, valid for a write.
            unsafe { config.write(config::initial()) };
        }
    }

    Bare fn gpucommNcclSimInfoInit(info: *mut ncclSimInfo_t) {
        if !info.is_null() {
            // SAFETY: not null, and as C declares it, valid for a write.
            unsafe { info.write(group::initial_simulation()) };
        }
    }

    Bare fn gpucommNcclCollConfigInit(config: *mut ncclCollConfig_t) {
        if !config.is_null() {
            // SAFETY: not null, and as C declares it, valid for a write.
            unsafe { config.write(coll_config::initial()) };
        }
    }

    Bare fn gpucommNcclEncryptionConfigInit(config: *mut ncclEncryptionConfig_t) {
        if !config.is_null() {
            // SAFETY: not null, and as C declares it, valid for a write.
            unsafe { config.write(encryption::initial()) };
        }
    }
}

exports! { COMMUNICATORS: abi;
    Unsafe fn ncclCommInitRankConfig(
        comm: *mut ncclComm_t,
        nranks: c_int,
        commId: ncclUniqueId,
        rank: c_int,
        config: Option<Config>,
    ) |function| {
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { init::init_rank(function.name, comm, nranks, &[commId], rank, config) }
    }

    Unsafe fn ncclCommInitRankScalable(
        newcomm: *mut ncclComm_t,
        nranks: c_int,
        myrank: c_int,
        nId: c_int,
        commIds: *mut ncclUniqueId,
        config: Option<Config>,
    ) |function| {
        if nId <= 0 || nId > nranks || commIds.is_null() {
            return Err(Failure::argument(format!(
                "there are {nId} ids for {nranks} ranks, expected one at least, at most one a rank"
            )));
        }
        // SAFETY: not null, and as C declares it, so many ids.
        let ids = unsafe { std::slice::from_raw_parts(commIds, nId as usize) };
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { init::init_rank(function.name, newcomm, nranks, ids, myrank, config) }
    }

    Job fn ncclCommSplit(
        parent: Entered,
        color: c_int,
        key: c_int,
        newcomm: *mut ncclComm_t,
        config: Option<Config>,
    ) {
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { children::split(&parent.comm, color, key, newcomm, config) }.map(begun)
    }

    Job fn ncclCommShrink(
        parent: Entered,
        excludeRanksList: *mut c_int,
        excludeRanksCount: c_int,
        newcomm: *mut ncclComm_t,
        config: Option<Config>,
        shrinkFlags: c_int,
    ) {
        if excludeRanksList.is_null() {
            return Err(Failure::argument("the list of ranks to leave out is null"));
        }
        let count = usize::try_from(excludeRanksCount).unwrap_or(0);
        // SAFETY: the caller's list, as C declares it: not null, and so long.
        let excluded = unsafe { std::slice::from_raw_parts_mut(excludeRanksList, count) };
        // NCCL sorts the list of the caller.
        excluded.sort_unstable();
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { children::shrink(&parent.comm, excluded, newcomm, config, shrinkFlags) }.map(begun)
    }

    Any(2_29_02) fn ncclCommGetUniqueId(own: Entered, id: Out<ncclUniqueId>) {
        id.set(unique_id::of(children::growth_id(&own.comm)?));
        Ok(())
    }

    Unsafe(2_29_02) fn ncclCommGrow(
        parent: ncclComm_t,
        nRanks: c_int,
        uniqueId: In<ncclUniqueId>,
        rank: c_int,
        newcomm: *mut ncclComm_t,
        config: Option<Config>,
    ) {
        let entered = if parent.is_null() { None } else { Some(registry::enter(parent, Manner::Alone)?) };
        let id = uniqueId.get().map(unique_id::read);
        // SAFETY: the caller's pointer, as C declares it.
        unsafe {
            match &entered {
                Some((parent, _inside)) => children::grow_existing(parent, nRanks, id, rank, newcomm, config),
                None => children::grow_newcomer(nRanks, id, rank, newcomm, config),
            }
        }
        .map(begun)
    }

    Blind fn ncclCommFinalize(comm: ncclComm_t) {
        if comm.is_null() {
            return Ok(ncclResult_t::ncclSuccess);
        }
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        lifecycle::finalize(&comm)
    }

    Blind fn ncclCommDestroy(comm: ncclComm_t) {
        if comm.is_null() { Ok(ncclResult_t::ncclSuccess) } else { lifecycle::destroy(comm) }
    }

    Blind fn ncclCommAbort(comm: ncclComm_t) {
        if comm.is_null() { Ok(ncclResult_t::ncclSuccess) } else { lifecycle::abort(comm) }
    }

    Job fn ncclCommRevoke(comm: ncclComm_t, revokeFlags: c_int) {
        match revokeFlags {
            _ if comm.is_null() => Ok(ncclResult_t::ncclSuccess),
            0 => {
                let (comm, _inside) = registry::enter(comm, Manner::Guest)?;
                lifecycle::revoke(&comm)
            }
            flags => Err(Failure::argument(format!("revoke flags {flags}: expected 0"))),
        }
    }

    Job(2_29_07) fn ncclCommSuspend(own: Entered, flags: c_int) { lifecycle::suspend(&own.comm, flags) }

    Job(2_29_07) fn ncclCommResume(own: Entered) { lifecycle::resume(&own.comm) }

    Any(2_29_07) fn ncclCommMemStats(own: Entered, stat: ncclCommMemStat_t, value: Out<u64>) {
        value.set(lifecycle::statistic(&own.comm, stat.0)?);
        Ok(())
    }

    Any fn ncclCommGetAsyncError(own: Guest, asyncError: Out<ncclResult_t>) {
        asyncError.set(own.comm.state());
        Ok(())
    }

    Any fn ncclCommCount(own: Entered, count: Out<c_int>) {
        own.comm.ensure_settled()?;
        count.set(own.comm.size as c_int);
        Ok(())
    }

    Any fn ncclCommCuDevice(own: Entered, device: Out<c_int>) {
        own.comm.ensure_settled()?;
        device.set(own.comm.device);
        Ok(())
    }

    Any fn ncclCommUserRank(own: Entered, rank: Out<c_int>) {
        own.comm.ensure_settled()?;
        rank.set(own.comm.rank as c_int);
        Ok(())
    }

    Any(2_29_07) fn gpucommNcclProperties(own: Entered, properties: Out<gpucommNcclProperties_t>) {
        own.comm.ensure_settled()?;
        let maps = c_int::from(settings().windows);
        properties.set(gpucommNcclProperties_t {
            nvmlDev: own.comm.device,
            deviceApiSupport: maps,
            multimemSupport: 0,
            ginType: 0,
            nLsaTeams: if maps == 0 { own.comm.size as c_int } else { 1 },
            hostRmaSupport: maps,
            railedGinType: 0,
        });
        Ok(())
    }
}
