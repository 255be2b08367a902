// Generated from vendor/shim/gpucomm_nvshmem.h over vendor/include by build/bind.rs. Do not edit: see CONTRIBUTING.md.

pub type half = ::std::os::raw::c_ushort;
pub type __nv_bfloat16 = ::std::os::raw::c_ushort;
pub type CUmodule = *mut CUmod_st;
pub type CUlibrary = *mut CUlib_st;
pub type nvshmem_team_t = i32;
pub type nvshmemx_team_uniqueid_t = u64;
pub type nvshmemx_uniqueid_t = nvshmemx_uniqueid_v1;
pub type nvshmemx_uniqueid_args_t = nvshmemx_uniqueid_args_v1;
pub type nvshmemx_init_args_t = nvshmemx_init_args_v2;
pub type nvshmemx_init_attr_t = nvshmemx_init_attr_v2;
pub type nvshmem_team_config_t = nvshmem_team_config_v2;
pub type nvshmemx_region_handle_t = u64;
pub type nvshmemx_region_attrs_t = nvshmemx_region_attrs;
pub type nvshmemx_qp_handle_t = ::std::os::raw::c_int;
#[repr(C)]
#[derive(Debug)]
pub struct CUmod_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUlib_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmemx_uniqueid_v1 {
    pub version: ::std::os::raw::c_int,
    pub internal: [::std::os::raw::c_char; 124usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmemx_uniqueid_args_v1 {
    pub version: ::std::os::raw::c_int,
    pub id: *mut nvshmemx_uniqueid_v1,
    pub myrank: ::std::os::raw::c_int,
    pub nranks: ::std::os::raw::c_int,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmemx_init_args_v2 {
    pub version: ::std::os::raw::c_int,
    pub uid_args: nvshmemx_uniqueid_args_t,
    pub cuda_device_id: ::std::os::raw::c_int,
    pub content: [::std::os::raw::c_char; 92usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmemx_init_attr_v2 {
    pub version: ::std::os::raw::c_int,
    pub mpi_comm: *mut ::std::os::raw::c_void,
    pub args: nvshmemx_init_args_t,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmem_team_config_v2 {
    pub version: ::std::os::raw::c_int,
    pub num_contexts: ::std::os::raw::c_int,
    pub uniqueid: nvshmemx_team_uniqueid_t,
    pub padding: [::std::os::raw::c_char; 48usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmemx_region_attrs {
    pub hints: u32,
    pub reserved: [::std::os::raw::c_char; 60usize],
}
pub const NVSHMEM_VENDOR_MAJOR_VERSION: u32 = 3;
pub const NVSHMEM_VENDOR_MINOR_VERSION: u32 = 8;
pub const NVSHMEM_VENDOR_PATCH_VERSION: u32 = 0;
pub const NVSHMEM_MAJOR_VERSION: u32 = 1;
pub const NVSHMEM_MINOR_VERSION: u32 = 3;
pub const NVSHMEM_MAX_NAME_LEN: u32 = 256;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmemx_uniqueid_v1",
    ][::std::mem::size_of::<nvshmemx_uniqueid_v1>() - 128usize];
    [
        "Alignment of nvshmemx_uniqueid_v1",
    ][::std::mem::align_of::<nvshmemx_uniqueid_v1>() - 4usize];
    [
        "Offset of field: nvshmemx_uniqueid_v1::version",
    ][::std::mem::offset_of!(nvshmemx_uniqueid_v1, version) - 0usize];
    [
        "Offset of field: nvshmemx_uniqueid_v1::internal",
    ][::std::mem::offset_of!(nvshmemx_uniqueid_v1, internal) - 4usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmemx_uniqueid_args_v1",
    ][::std::mem::size_of::<nvshmemx_uniqueid_args_v1>() - 24usize];
    [
        "Alignment of nvshmemx_uniqueid_args_v1",
    ][::std::mem::align_of::<nvshmemx_uniqueid_args_v1>() - 8usize];
    [
        "Offset of field: nvshmemx_uniqueid_args_v1::version",
    ][::std::mem::offset_of!(nvshmemx_uniqueid_args_v1, version) - 0usize];
    [
        "Offset of field: nvshmemx_uniqueid_args_v1::id",
    ][::std::mem::offset_of!(nvshmemx_uniqueid_args_v1, id) - 8usize];
    [
        "Offset of field: nvshmemx_uniqueid_args_v1::myrank",
    ][::std::mem::offset_of!(nvshmemx_uniqueid_args_v1, myrank) - 16usize];
    [
        "Offset of field: nvshmemx_uniqueid_args_v1::nranks",
    ][::std::mem::offset_of!(nvshmemx_uniqueid_args_v1, nranks) - 20usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmemx_init_args_v2",
    ][::std::mem::size_of::<nvshmemx_init_args_v2>() - 128usize];
    [
        "Alignment of nvshmemx_init_args_v2",
    ][::std::mem::align_of::<nvshmemx_init_args_v2>() - 8usize];
    [
        "Offset of field: nvshmemx_init_args_v2::version",
    ][::std::mem::offset_of!(nvshmemx_init_args_v2, version) - 0usize];
    [
        "Offset of field: nvshmemx_init_args_v2::uid_args",
    ][::std::mem::offset_of!(nvshmemx_init_args_v2, uid_args) - 8usize];
    [
        "Offset of field: nvshmemx_init_args_v2::cuda_device_id",
    ][::std::mem::offset_of!(nvshmemx_init_args_v2, cuda_device_id) - 32usize];
    [
        "Offset of field: nvshmemx_init_args_v2::content",
    ][::std::mem::offset_of!(nvshmemx_init_args_v2, content) - 36usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmemx_init_attr_v2",
    ][::std::mem::size_of::<nvshmemx_init_attr_v2>() - 144usize];
    [
        "Alignment of nvshmemx_init_attr_v2",
    ][::std::mem::align_of::<nvshmemx_init_attr_v2>() - 8usize];
    [
        "Offset of field: nvshmemx_init_attr_v2::version",
    ][::std::mem::offset_of!(nvshmemx_init_attr_v2, version) - 0usize];
    [
        "Offset of field: nvshmemx_init_attr_v2::mpi_comm",
    ][::std::mem::offset_of!(nvshmemx_init_attr_v2, mpi_comm) - 8usize];
    [
        "Offset of field: nvshmemx_init_attr_v2::args",
    ][::std::mem::offset_of!(nvshmemx_init_attr_v2, args) - 16usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmem_team_config_v2",
    ][::std::mem::size_of::<nvshmem_team_config_v2>() - 64usize];
    [
        "Alignment of nvshmem_team_config_v2",
    ][::std::mem::align_of::<nvshmem_team_config_v2>() - 8usize];
    [
        "Offset of field: nvshmem_team_config_v2::version",
    ][::std::mem::offset_of!(nvshmem_team_config_v2, version) - 0usize];
    [
        "Offset of field: nvshmem_team_config_v2::num_contexts",
    ][::std::mem::offset_of!(nvshmem_team_config_v2, num_contexts) - 4usize];
    [
        "Offset of field: nvshmem_team_config_v2::uniqueid",
    ][::std::mem::offset_of!(nvshmem_team_config_v2, uniqueid) - 8usize];
    [
        "Offset of field: nvshmem_team_config_v2::padding",
    ][::std::mem::offset_of!(nvshmem_team_config_v2, padding) - 16usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmemx_region_attrs",
    ][::std::mem::size_of::<nvshmemx_region_attrs>() - 64usize];
    [
        "Alignment of nvshmemx_region_attrs",
    ][::std::mem::align_of::<nvshmemx_region_attrs>() - 4usize];
    [
        "Offset of field: nvshmemx_region_attrs::hints",
    ][::std::mem::offset_of!(nvshmemx_region_attrs, hints) - 0usize];
    [
        "Offset of field: nvshmemx_region_attrs::reserved",
    ][::std::mem::offset_of!(nvshmemx_region_attrs, reserved) - 4usize];
};
pub const NVSHMEMX_INIT_WITH_UNIQUEID: ::std::os::raw::c_uint = 8;
pub const NVSHMEM_STATUS_NOT_INITIALIZED: ::std::os::raw::c_int = 0;
pub const NVSHMEM_STATUS_IS_BOOTSTRAPPED: ::std::os::raw::c_int = 1;
pub const NVSHMEM_STATUS_IS_INITIALIZED: ::std::os::raw::c_int = 2;
pub const NVSHMEM_STATUS_LIMITED_MPG: ::std::os::raw::c_int = 3;
pub const NVSHMEM_STATUS_FULL_MPG: ::std::os::raw::c_int = 4;
pub const NVSHMEM_THREAD_SINGLE: ::std::os::raw::c_int = 0;
pub const NVSHMEM_THREAD_FUNNELED: ::std::os::raw::c_int = 1;
pub const NVSHMEM_THREAD_SERIALIZED: ::std::os::raw::c_int = 2;
pub const NVSHMEM_THREAD_MULTIPLE: ::std::os::raw::c_int = 3;
pub const NVSHMEM_TEAM_INVALID: nvshmem_team_t = -1;
pub const NVSHMEM_TEAM_WORLD: nvshmem_team_t = 0;
pub const NVSHMEM_TEAM_SHARED: nvshmem_team_t = 1;
pub const NVSHMEMX_TEAM_NODE: nvshmem_team_t = 2;
pub const NVSHMEMX_TEAM_SAME_MYPE_NODE: nvshmem_team_t = 3;
pub const NVSHMEM_CMP_EQ: ::std::os::raw::c_int = 0;
pub const NVSHMEM_CMP_NE: ::std::os::raw::c_int = 1;
pub const NVSHMEM_CMP_GT: ::std::os::raw::c_int = 2;
pub const NVSHMEM_CMP_LE: ::std::os::raw::c_int = 3;
pub const NVSHMEM_CMP_LT: ::std::os::raw::c_int = 4;
pub const NVSHMEM_CMP_GE: ::std::os::raw::c_int = 5;
pub const NVSHMEM_SIGNAL_SET: ::std::os::raw::c_int = 9;
pub const NVSHMEM_SIGNAL_ADD: ::std::os::raw::c_int = 10;
pub const NVSHMEMX_SUCCESS: ::std::os::raw::c_int = 0;
pub const NVSHMEMX_ERROR_INVALID_VALUE: ::std::os::raw::c_int = 1;
pub const NVSHMEMX_ERROR_OUT_OF_MEMORY: ::std::os::raw::c_int = 2;
pub const NVSHMEMX_ERROR_NOT_SUPPORTED: ::std::os::raw::c_int = 3;
pub const NVSHMEMX_ERROR_SYMMETRY: ::std::os::raw::c_int = 4;
pub const NVSHMEMX_ERROR_GPU_NOT_SELECTED: ::std::os::raw::c_int = 5;
pub const NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED: ::std::os::raw::c_int = 6;
pub const NVSHMEMX_ERROR_INTERNAL: ::std::os::raw::c_int = 7;
pub const NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS: ::std::os::raw::c_long = 1;
pub const NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID: ::std::os::raw::c_long = 2;
pub const NVSHMEM_TEAM_MC_SHARED: nvshmem_team_t = 6;
pub const NVSHMEMX_REGION_HINT_NONE: ::std::os::raw::c_uint = 0;
pub const NVSHMEMX_REGION_HINT_BATCH_RMA: ::std::os::raw::c_uint = 1;
