use std::ffi::{c_int, c_uint};

/// `CUmulticastObjectProp_v1`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUmulticastObjectProp {
    pub numDevices: c_uint,
    pub size: usize,
    pub handleTypes: u64,
    pub flags: u64,
}

pub const CU_MULTICAST_GRANULARITY_MINIMUM: c_uint = 0;
pub const CU_MULTICAST_GRANULARITY_RECOMMENDED: c_uint = 1;
pub const CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: c_int = 132;

type Handle = CUmemGenericAllocationHandle_v1;

pub type PFN_cuMulticastGetGranularity =
    unsafe extern "C" fn(granularity: *mut usize, prop: *const CUmulticastObjectProp, option: c_uint) -> CUresult;
pub type PFN_cuMulticastCreate =
    unsafe extern "C" fn(mcHandle: *mut Handle, prop: *const CUmulticastObjectProp) -> CUresult;
pub type PFN_cuMulticastAddDevice = unsafe extern "C" fn(mcHandle: Handle, dev: c_int) -> CUresult;
pub type PFN_cuMulticastBindMem = unsafe extern "C" fn(
    mcHandle: Handle,
    mcOffset: usize,
    memHandle: Handle,
    memOffset: usize,
    size: usize,
    flags: u64,
) -> CUresult;
/// `cuMulticastBindMem_v2`, of CUDA 13.1.
pub type PFN_cuMulticastBindMem_v2 = unsafe extern "C" fn(
    mcHandle: Handle,
    dev: c_int,
    mcOffset: usize,
    memHandle: Handle,
    memOffset: usize,
    size: usize,
    flags: u64,
) -> CUresult;
pub type PFN_cuMulticastBindAddr =
    unsafe extern "C" fn(mcHandle: Handle, mcOffset: usize, memptr: u64, size: usize, flags: u64) -> CUresult;
/// `cuMulticastBindAddr_v2`, of CUDA 13.1.
pub type PFN_cuMulticastBindAddr_v2 = unsafe extern "C" fn(
    mcHandle: Handle,
    dev: c_int,
    mcOffset: usize,
    memptr: u64,
    size: usize,
    flags: u64,
) -> CUresult;
pub type PFN_cuMulticastUnbind =
    unsafe extern "C" fn(mcHandle: Handle, dev: c_int, mcOffset: usize, size: usize) -> CUresult;
