//! Barriers, and waits for what was asked for.

use std::ffi::c_int;

use super::super::basics::entry::Class;
use super::super::basics::kind::Kind;
use super::super::calls::order;
use super::{done, status};
use crate::sys::{cudaStream_t, nvshmem_team_t};

pub unsafe extern "C" fn nvshmem_barrier(team: nvshmem_team_t) -> c_int {
    status("nvshmem_barrier", Class::Waits, || order::of_team(Kind::Barrier, team))
}

pub unsafe extern "C" fn nvshmem_barrier_all() {
    done("nvshmem_barrier_all", Class::Waits, || order::of_all(Kind::Barrier));
}

pub unsafe extern "C" fn nvshmem_team_sync(team: nvshmem_team_t) -> c_int {
    status("nvshmem_team_sync", Class::Waits, || order::of_team(Kind::Sync, team))
}

pub unsafe extern "C" fn nvshmem_sync_all() {
    done("nvshmem_sync_all", Class::Waits, || order::of_all(Kind::Sync));
}

/// What comes before it has come when what comes after it does: here, at once. Where all PEs reach each other, the library waits for its
/// streams.
pub unsafe extern "C" fn nvshmem_fence() {
    done("nvshmem_fence", Class::Waits, order::quiet);
}

pub unsafe extern "C" fn nvshmem_quiet() {
    done("nvshmem_quiet", Class::Waits, order::quiet);
}

pub unsafe extern "C" fn nvshmemx_flush() {
    done("nvshmemx_flush", Class::Waits, order::quiet);
}

pub unsafe extern "C" fn nvshmemx_barrier_on_stream(team: nvshmem_team_t, stream: cudaStream_t) -> c_int {
    let name = "nvshmemx_barrier_on_stream";
    status(name, Class::Enqueues, || order::on_stream(name, Kind::Barrier, Some(team), stream))
}

pub unsafe extern "C" fn nvshmemx_barrier_all_on_stream(stream: cudaStream_t) {
    let name = "nvshmemx_barrier_all_on_stream";
    done(name, Class::Enqueues, || order::on_stream(name, Kind::Barrier, None, stream));
}

pub unsafe extern "C" fn nvshmemx_team_sync_on_stream(team: nvshmem_team_t, stream: cudaStream_t) -> c_int {
    let name = "nvshmemx_team_sync_on_stream";
    status(name, Class::Enqueues, || order::on_stream(name, Kind::Sync, Some(team), stream))
}

pub unsafe extern "C" fn nvshmemx_sync_all_on_stream(stream: cudaStream_t) {
    let name = "nvshmemx_sync_all_on_stream";
    done(name, Class::Enqueues, || order::on_stream(name, Kind::Sync, None, stream));
}

pub unsafe extern "C" fn nvshmemx_quiet_on_stream(stream: cudaStream_t) {
    let name = "nvshmemx_quiet_on_stream";
    done(name, Class::Enqueues, || order::quiet_on_stream(name, stream));
}

pub unsafe extern "C" fn nvshmemx_flush_on_stream(stream: cudaStream_t) {
    let name = "nvshmemx_flush_on_stream";
    done(name, Class::Enqueues, || order::quiet_on_stream(name, stream));
}
