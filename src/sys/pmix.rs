//! What vendor/shim/gpucomm_pmix.h declares, by which PMIx is called: tests/pmix compares the two.

use std::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    pub fn gpucommPmixInit(rank: *mut u32) -> c_int;
    pub fn gpucommPmixFinalize() -> c_int;
    pub fn gpucommPmixSize(size: *mut u32) -> c_int;
    pub fn gpucommPmixLocalSize(size: *mut u32) -> c_int;
    pub fn gpucommPmixLocalRank(rank: *mut u32) -> c_int;
    pub fn gpucommPmixLocalPeers(text: *mut c_char, size: usize) -> c_int;
    pub fn gpucommPmixPut(key: *const c_char, bytes: *const c_void, size: usize) -> c_int;
    pub fn gpucommPmixGet(
        rank: u32,
        key: *const c_char,
        seconds: c_int,
        bytes: *mut c_void,
        size: usize,
        told: *mut usize,
    ) -> c_int;
    pub fn gpucommPmixDeath(rank: *mut u32, how: *mut c_int) -> c_int;
    pub fn gpucommPmixError(code: c_int) -> *const c_char;
}

pub const GPUCOMM_PMIX_NOT_YET: c_int = 1;
pub const GPUCOMM_PMIX_TOO_LONG: c_int = 2;
pub const GPUCOMM_PMIX_SERVER: u32 = u32::MAX;
