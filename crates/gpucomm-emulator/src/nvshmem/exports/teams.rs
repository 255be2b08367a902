//! Teams.

use std::ffi::{c_int, c_long};

use super::super::basics::entry::{Class, entry, wrong};
use super::super::calls::teams;
use super::{done, status};
use crate::sys::*;

pub unsafe extern "C" fn nvshmem_team_my_pe(team: nvshmem_team_t) -> c_int {
    entry("nvshmem_team_my_pe", Class::Any, |_| -1, || teams::my_pe(team))
}

pub unsafe extern "C" fn nvshmem_team_n_pes(team: nvshmem_team_t) -> c_int {
    entry("nvshmem_team_n_pes", Class::Any, |_| -1, || teams::n_pes(team))
}

pub unsafe extern "C" fn nvshmem_team_get_config(team: nvshmem_team_t, config: *mut nvshmem_team_config_t) {
    done("nvshmem_team_get_config", Class::Any, || {
        if team == NVSHMEM_TEAM_INVALID {
            return Ok(());
        }
        let found = teams::config(team)?;
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { config.write(found) };
        Ok(())
    });
}

pub unsafe extern "C" fn nvshmem_team_translate_pe(
    src_team: nvshmem_team_t,
    src_pe: c_int,
    dest_team: nvshmem_team_t,
) -> c_int {
    entry("nvshmem_team_translate_pe", Class::Any, |_| -1, || teams::translate(src_team, src_pe, dest_team))
}

pub unsafe extern "C" fn nvshmem_team_split_strided(
    parent: nvshmem_team_t,
    start: c_int,
    stride: c_int,
    size: c_int,
    config: *const nvshmem_team_config_t,
    _mask: c_long,
    team: *mut nvshmem_team_t,
) -> c_int {
    status("nvshmem_team_split_strided", Class::Waits, || {
        if team.is_null() {
            return Err(wrong("the place for the team is null"));
        }
        // SAFETY: not null, and as C declares it; a config, or null.
        unsafe {
            team.write(NVSHMEM_TEAM_INVALID);
            team.write(teams::split(parent, (start, stride, size), config.as_ref())?);
        }
        Ok(())
    })
}

pub unsafe extern "C" fn nvshmem_team_split_2d(
    parent: nvshmem_team_t,
    xrange: c_int,
    xconfig: *const nvshmem_team_config_t,
    _xmask: c_long,
    xteam: *mut nvshmem_team_t,
    yconfig: *const nvshmem_team_config_t,
    _ymask: c_long,
    yteam: *mut nvshmem_team_t,
) -> c_int {
    status("nvshmem_team_split_2d", Class::Waits, || {
        if xteam.is_null() || yteam.is_null() {
            return Err(wrong("a place for a team is null"));
        }
        // SAFETY: not null, and as C declares it; configs, or null.
        unsafe {
            xteam.write(NVSHMEM_TEAM_INVALID);
            yteam.write(NVSHMEM_TEAM_INVALID);
            let [x, y] = teams::split_2d(parent, xrange, [xconfig.as_ref(), yconfig.as_ref()])?;
            xteam.write(x);
            yteam.write(y);
        }
        Ok(())
    })
}

pub unsafe extern "C" fn nvshmem_team_destroy(team: nvshmem_team_t) {
    done("nvshmem_team_destroy", Class::Waits, || teams::destroy(team));
}

pub unsafe extern "C" fn nvshmemx_team_get_uniqueid(uniqueid: *mut nvshmemx_team_uniqueid_t) -> c_int {
    status("nvshmemx_team_get_uniqueid", Class::Any, || {
        let id = teams::unique_id()?;
        // SAFETY: the caller's pointer, as C declares it.
        unsafe { uniqueid.write(id) };
        Ok(())
    })
}

pub unsafe extern "C" fn nvshmemx_team_init(
    team: *mut nvshmem_team_t,
    config: *mut nvshmem_team_config_t,
    _mask: c_long,
    npes: c_int,
    index: c_int,
) -> c_int {
    status("nvshmemx_team_init", Class::Waits, || {
        if team.is_null() {
            return Err(wrong("the place for the team is null"));
        }
        // SAFETY: not null, and as C declares it; a config, or null.
        unsafe {
            team.write(NVSHMEM_TEAM_INVALID);
            let config = config.as_ref();
            let missing = || super::super::basics::entry::refused(NVSHMEMX_ERROR_INVALID_VALUE, "there is no config");
            team.write(teams::init(config.ok_or_else(missing)?, npes, index)?);
        }
        Ok(())
    })
}
