//! The functions of NVSHMEM that concern teams, and those that wait for members and for what was asked of them.

use std::ffi::{c_int, c_long};

use super::super::calls::{order, teams};
use super::{Answer, Class, Pes, frame, frame_of};
use crate::nvshmem::basics::Kind;
use crate::nvshmem::basics::{Failed, refused};
use crate::sys::*;
use crate::table::{In, Out, exports};

type Error = Failed;
type Status = c_int;

exports! { TEAMS: abi;
    Any fn nvshmem_team_my_pe(team: nvshmem_team_t) -> Pes { teams::my_pe(team) }

    Any fn nvshmem_team_n_pes(team: nvshmem_team_t) -> Pes { teams::n_pes(team) }

    Any fn nvshmem_team_get_config(team: nvshmem_team_t, config: Out<nvshmem_team_config_t>) -> () {
        if team != NVSHMEM_TEAM_INVALID {
            config.set(teams::config(team)?);
        }
        Ok(())
    }

    Any fn nvshmem_team_translate_pe(src_team: nvshmem_team_t, src_pe: c_int, dest_team: nvshmem_team_t) -> Pes {
        teams::translate(src_team, src_pe, dest_team)
    }

    Waits fn nvshmem_team_split_strided(
        parent: nvshmem_team_t,
        start: c_int,
        stride: c_int,
        size: c_int,
        config: In<nvshmem_team_config_t>,
        _mask: c_long,
        team: Out<nvshmem_team_t>,
    ) {
        team.set(NVSHMEM_TEAM_INVALID);
        team.set(teams::split(parent, (start, stride, size), config.get())?);
        Ok(())
    }

    Waits fn nvshmem_team_split_2d(
        parent: nvshmem_team_t,
        xrange: c_int,
        xconfig: In<nvshmem_team_config_t>,
        _xmask: c_long,
        xteam: Out<nvshmem_team_t>,
        yconfig: In<nvshmem_team_config_t>,
        _ymask: c_long,
        yteam: Out<nvshmem_team_t>,
    ) {
        xteam.set(NVSHMEM_TEAM_INVALID);
        yteam.set(NVSHMEM_TEAM_INVALID);
        let [x, y] = teams::split_2d(parent, xrange, [xconfig.get(), yconfig.get()])?;
        xteam.set(x);
        yteam.set(y);
        Ok(())
    }

    Waits fn nvshmem_team_destroy(team: nvshmem_team_t) -> () { teams::destroy(team) }

    Any fn nvshmemx_team_get_uniqueid(uniqueid: Out<nvshmemx_team_uniqueid_t>) {
        uniqueid.set(teams::unique_id()?);
        Ok(())
    }

    Waits fn nvshmemx_team_init(
        team: Out<nvshmem_team_t>,
        config: *mut nvshmem_team_config_t,
        _mask: c_long,
        npes: c_int,
        index: c_int,
    ) {
        team.set(NVSHMEM_TEAM_INVALID);
        // SAFETY: the caller's pointer, as C declares it: a config, or null.
        let config = unsafe { config.as_ref() };
        let config = config.ok_or_else(|| refused(NVSHMEMX_ERROR_INVALID_VALUE, "there is no config"))?;
        team.set(teams::init(config, npes, index)?);
        Ok(())
    }
}

exports! { ORDER: abi;
    Waits fn nvshmem_barrier(team: nvshmem_team_t) { order::of_team(Kind::Barrier, team) }
    Waits fn nvshmem_barrier_all() -> () { order::of_all(Kind::Barrier) }
    Waits fn nvshmem_team_sync(team: nvshmem_team_t) { order::of_team(Kind::Sync, team) }
    Waits fn nvshmem_sync_all() -> () { order::of_all(Kind::Sync) }

    /// Transfers take effect at once here, so a fence has nothing to order. Where all PEs reach each other, the library waits for
    /// its streams.
    Waits fn nvshmem_fence() -> () { order::quiet() }
    Waits fn nvshmem_quiet() -> () { order::quiet() }
    Waits fn nvshmemx_flush() -> () { order::quiet() }

    Enqueues fn nvshmemx_barrier_on_stream(team: nvshmem_team_t, stream: cudaStream_t) {
        order::on_stream(Kind::Barrier, Some(team), stream)
    }

    Enqueues fn nvshmemx_barrier_all_on_stream(stream: cudaStream_t) -> () {
        order::on_stream(Kind::Barrier, None, stream)
    }

    Enqueues fn nvshmemx_team_sync_on_stream(team: nvshmem_team_t, stream: cudaStream_t) {
        order::on_stream(Kind::Sync, Some(team), stream)
    }

    Enqueues fn nvshmemx_sync_all_on_stream(stream: cudaStream_t) -> () { order::on_stream(Kind::Sync, None, stream) }
    Enqueues fn nvshmemx_quiet_on_stream(stream: cudaStream_t) -> () { order::quiet_on_stream(stream) }
    Enqueues fn nvshmemx_flush_on_stream(stream: cudaStream_t) -> () { order::quiet_on_stream(stream) }
}
