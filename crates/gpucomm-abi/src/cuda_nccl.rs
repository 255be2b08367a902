// Generated from wrapper.h over vendor/include by build/bind.rs. Do not edit: see CONTRIBUTING.md.

pub type CUdeviceptr_v2 = ::std::os::raw::c_ulonglong;
pub type CUstream = *mut CUstream_st;
pub type CUmemGenericAllocationHandle_v1 = ::std::os::raw::c_ulonglong;
pub type CUmemLocation_v1 = CUmemLocation_st;
pub type CUmemLocation = CUmemLocation_v1;
pub type CUmemAllocationProp_v1 = CUmemAllocationProp_st;
pub type CUmemAccessDesc_v1 = CUmemAccessDesc_st;
pub type PFN_cuMemsetD16Async_v3020 = ::std::option::Option<
    unsafe extern "C" fn(
        dstDevice: CUdeviceptr_v2,
        us: ::std::os::raw::c_ushort,
        N: usize,
        hStream: CUstream,
    ) -> CUresult,
>;
pub type PFN_cuMemsetD32Async_v3020 = ::std::option::Option<
    unsafe extern "C" fn(
        dstDevice: CUdeviceptr_v2,
        ui: ::std::os::raw::c_uint,
        N: usize,
        hStream: CUstream,
    ) -> CUresult,
>;
pub type PFN_cuMemsetD2D32Async_v3020 = ::std::option::Option<
    unsafe extern "C" fn(
        dstDevice: CUdeviceptr_v2,
        dstPitch: usize,
        ui: ::std::os::raw::c_uint,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> CUresult,
>;
pub type PFN_cuMemAddressReserve_v10020 = ::std::option::Option<
    unsafe extern "C" fn(
        ptr: *mut CUdeviceptr_v2,
        size: usize,
        alignment: usize,
        addr: CUdeviceptr_v2,
        flags: ::std::os::raw::c_ulonglong,
    ) -> CUresult,
>;
pub type PFN_cuMemAddressFree_v10020 = ::std::option::Option<
    unsafe extern "C" fn(ptr: CUdeviceptr_v2, size: usize) -> CUresult,
>;
pub type PFN_cuMemCreate_v10020 = ::std::option::Option<
    unsafe extern "C" fn(
        handle: *mut CUmemGenericAllocationHandle_v1,
        size: usize,
        prop: *const CUmemAllocationProp_v1,
        flags: ::std::os::raw::c_ulonglong,
    ) -> CUresult,
>;
pub type PFN_cuMemRelease_v10020 = ::std::option::Option<
    unsafe extern "C" fn(handle: CUmemGenericAllocationHandle_v1) -> CUresult,
>;
pub type PFN_cuMemMap_v10020 = ::std::option::Option<
    unsafe extern "C" fn(
        ptr: CUdeviceptr_v2,
        size: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle_v1,
        flags: ::std::os::raw::c_ulonglong,
    ) -> CUresult,
>;
pub type PFN_cuMemUnmap_v10020 = ::std::option::Option<
    unsafe extern "C" fn(ptr: CUdeviceptr_v2, size: usize) -> CUresult,
>;
pub type PFN_cuMemSetAccess_v10020 = ::std::option::Option<
    unsafe extern "C" fn(
        ptr: CUdeviceptr_v2,
        size: usize,
        desc: *const CUmemAccessDesc_v1,
        count: usize,
    ) -> CUresult,
>;
pub type PFN_cuMemGetAccess_v10020 = ::std::option::Option<
    unsafe extern "C" fn(
        flags: *mut ::std::os::raw::c_ulonglong,
        location: *const CUmemLocation_v1,
        ptr: CUdeviceptr_v2,
    ) -> CUresult,
>;
pub type PFN_cuMemExportToShareableHandle_v10020 = ::std::option::Option<
    unsafe extern "C" fn(
        shareableHandle: *mut ::std::os::raw::c_void,
        handle: CUmemGenericAllocationHandle_v1,
        handleType: CUmemAllocationHandleType,
        flags: ::std::os::raw::c_ulonglong,
    ) -> CUresult,
>;
pub type PFN_cuMemImportFromShareableHandle_v10020 = ::std::option::Option<
    unsafe extern "C" fn(
        handle: *mut CUmemGenericAllocationHandle_v1,
        osHandle: *mut ::std::os::raw::c_void,
        shHandleType: CUmemAllocationHandleType,
    ) -> CUresult,
>;
pub type PFN_cuMemGetAllocationGranularity_v10020 = ::std::option::Option<
    unsafe extern "C" fn(
        granularity: *mut usize,
        prop: *const CUmemAllocationProp_v1,
        option: CUmemAllocationGranularity_flags,
    ) -> CUresult,
>;
pub type PFN_cuMemGetAllocationPropertiesFromHandle_v10020 = ::std::option::Option<
    unsafe extern "C" fn(
        prop: *mut CUmemAllocationProp_v1,
        handle: CUmemGenericAllocationHandle_v1,
    ) -> CUresult,
>;
pub type PFN_cuMemRetainAllocationHandle_v11000 = ::std::option::Option<
    unsafe extern "C" fn(
        handle: *mut CUmemGenericAllocationHandle_v1,
        addr: *mut ::std::os::raw::c_void,
    ) -> CUresult,
>;
pub type cudaStream_t = *mut CUstream_st;
pub type cudaEvent_t = *mut CUevent_st;
pub type cudaMemPool_t = *mut CUmemPoolHandle_st;
pub type cudaGraph_t = *mut CUgraph_st;
pub type cudaGraphNode_t = *mut CUgraphNode_st;
pub type cudaGraphExec_t = *mut CUgraphExec_st;
pub type cudaHostFn_t = ::std::option::Option<
    unsafe extern "C" fn(userData: *mut ::std::os::raw::c_void),
>;
pub type cudaGraphExecUpdateResultInfo = cudaGraphExecUpdateResultInfo_st;
pub type ncclComm_t = *mut ncclComm;
pub type ncclWindow_t = *mut ncclWindow_vidmem;
pub type ncclConfig_t = ncclConfig_v23100;
pub type ncclSimInfo_t = ncclSimInfo_v22200;
pub type ncclConfigExt_t = ncclConfigExt;
pub type ncclCollConfig_t = ncclCollConfig_v23200;
pub type ncclEncryptionConfig_t = ncclEncryptionConfig_v23200;
pub type ncclParamHandle_t = *mut ncclParamHandle;
#[repr(C)]
#[derive(Debug)]
pub struct CUstream_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUevent_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUmemPoolHandle_st {
    _unused: [u8; 0],
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAllocationHandleType_enum(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAccess_flags_enum(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemLocationType_enum(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAllocationType_enum(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAllocationGranularity_flags_enum(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmemLocation_st {
    pub type_: CUmemLocationType,
    pub id: ::std::os::raw::c_int,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmemAllocationProp_st {
    pub type_: CUmemAllocationType,
    pub requestedHandleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32HandleMetaData: *mut ::std::os::raw::c_void,
    pub allocFlags: CUmemAllocationProp_st__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmemAllocationProp_st__bindgen_ty_1 {
    pub compressionType: ::std::os::raw::c_uchar,
    pub gpuDirectRDMACapable: ::std::os::raw::c_uchar,
    pub usage: ::std::os::raw::c_ushort,
    pub reserved: [::std::os::raw::c_uchar; 4usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmemAccessDesc_st {
    pub location: CUmemLocation,
    pub flags: CUmemAccess_flags,
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct cudaError_enum(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct cudaError(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct cudaMemcpyKind(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct cudaDeviceAttr(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct cudaDeviceP2PAttr(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct cudaStreamCaptureMode(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct cudaStreamCaptureStatus(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug)]
pub struct CUgraph_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUgraphNode_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUgraphExec_st {
    _unused: [u8; 0],
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct cudaGraphExecUpdateResult(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct cudaGraphExecUpdateResultInfo_st {
    pub result: cudaGraphExecUpdateResult,
    pub errorNode: cudaGraphNode_t,
    pub errorFromNode: cudaGraphNode_t,
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct cudaLimit(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug)]
pub struct ncclComm {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct ncclWindow_vidmem {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclUniqueId {
    pub internal: [::std::os::raw::c_char; 128usize],
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclResult_t(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclHostCftMode_t(pub ::std::os::raw::c_int);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclNvlsHostMode_t(pub ::std::os::raw::c_int);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclConfig_v23100 {
    pub size: usize,
    pub magic: ::std::os::raw::c_uint,
    pub version: ::std::os::raw::c_uint,
    pub blocking: ::std::os::raw::c_int,
    pub cgaClusterSize: ::std::os::raw::c_int,
    pub minCTAs: ::std::os::raw::c_int,
    pub maxCTAs: ::std::os::raw::c_int,
    pub netName: *const ::std::os::raw::c_char,
    pub splitShare: ::std::os::raw::c_int,
    pub trafficClass: ::std::os::raw::c_int,
    pub commName: *const ::std::os::raw::c_char,
    pub collnetEnable: ::std::os::raw::c_int,
    pub CTAPolicy: ::std::os::raw::c_int,
    pub shrinkShare: ::std::os::raw::c_int,
    pub nvlsCTAs: ::std::os::raw::c_int,
    pub nChannelsPerNetPeer: ::std::os::raw::c_int,
    pub nvlinkCentricSched: ::std::os::raw::c_int,
    pub graphUsageMode: ::std::os::raw::c_int,
    pub numRmaCtx: ::std::os::raw::c_int,
    pub maxP2pPeers: ::std::os::raw::c_int,
    pub graphStreamOrdering: ::std::os::raw::c_int,
    pub launchOrderImplicit: ::std::os::raw::c_int,
    pub numRmaSig: ::std::os::raw::c_int,
    pub rmaEagerInit: ::std::os::raw::c_int,
    pub hostCftMode: ::std::os::raw::c_int,
    pub nvlsHostMode: ::std::os::raw::c_int,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclSimInfo_v22200 {
    pub size: usize,
    pub magic: ::std::os::raw::c_uint,
    pub version: ::std::os::raw::c_uint,
    pub estimatedTime: f32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ncclConfigExt {
    pub next: *mut ncclConfigExt,
    pub key: ncclConfigExt__bindgen_ty_1,
    pub val: ncclConfigExt__bindgen_ty_2,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclConfigExt__bindgen_ty_1 {
    pub vendorId: ::std::os::raw::c_int,
    pub optionId: ::std::os::raw::c_int,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclCollConfig_v23200 {
    pub size: usize,
    pub magic: ::std::os::raw::c_uint,
    pub version: ::std::os::raw::c_uint,
    pub ext: *mut ncclConfigExt_t,
    pub minCTAs: ::std::os::raw::c_int,
    pub maxCTAs: ::std::os::raw::c_int,
    pub nvlsCTAs: ::std::os::raw::c_int,
    pub cgaClusterSize: ::std::os::raw::c_int,
    pub algSelection: *const ::std::os::raw::c_char,
    pub forceAlgSelection: ::std::os::raw::c_int,
    pub CTAPolicy: ::std::os::raw::c_int,
    pub userProfilerTag: u64,
    pub launchCompletionEvent: cudaEvent_t,
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclEncryptionMode_t(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclEncryptionConfig_v23200 {
    pub size: usize,
    pub magic: ::std::os::raw::c_uint,
    pub version: ::std::os::raw::c_uint,
    pub mode: ::std::os::raw::c_int,
    pub psk: *const ::std::os::raw::c_char,
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclRedOp_t(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclDataType_t(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclScalarResidence_t(pub ::std::os::raw::c_uint);
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclCommMemStat_t(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclWaitSignalDesc_t {
    pub opCnt: ::std::os::raw::c_int,
    pub peer: ::std::os::raw::c_int,
    pub sigIdx: ::std::os::raw::c_int,
    pub ctx: ::std::os::raw::c_int,
}
#[repr(C)]
#[derive(Debug)]
pub struct ncclParamHandle {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpucommDeviceInfo_t {
    pub name: [::std::os::raw::c_char; 256usize],
    pub uuid: [::std::os::raw::c_uchar; 16usize],
    pub totalMemory: usize,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpucommPointerInfo_t {
    pub kind: ::std::os::raw::c_int,
    pub device: ::std::os::raw::c_int,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpucommNcclProperties_t {
    pub nvmlDev: ::std::os::raw::c_int,
    pub deviceApiSupport: ::std::os::raw::c_int,
    pub multimemSupport: ::std::os::raw::c_int,
    pub ginType: ::std::os::raw::c_int,
    pub nLsaTeams: ::std::os::raw::c_int,
    pub hostRmaSupport: ::std::os::raw::c_int,
    pub railedGinType: ::std::os::raw::c_int,
}
pub const CUDART_VERSION: u32 = 13000;
pub const cudaHostAllocDefault: u32 = 0;
pub const cudaHostAllocPortable: u32 = 1;
pub const cudaEventDefault: u32 = 0;
pub const cudaEventBlockingSync: u32 = 1;
pub const cudaEventDisableTiming: u32 = 2;
pub const cudaStreamDefault: u32 = 0;
pub const cudaStreamNonBlocking: u32 = 1;
pub const NCCL_MAJOR: u32 = 2;
pub const NCCL_MINOR: u32 = 32;
pub const NCCL_PATCH: u32 = 3;
pub const NCCL_VERSION_CODE: u32 = 23203;
pub const NCCL_UNIQUE_ID_BYTES: u32 = 128;
pub const NCCL_SPLIT_NOCOLOR: i32 = -1;
pub const NCCL_WIN_DEFAULT: u32 = 0;
pub const NCCL_WIN_COLL_SYMMETRIC: u32 = 1;
pub const NCCL_WIN_STRICT_ORDERING: u32 = 2;
pub const NCCL_WIN_GIN_ONLY: u32 = 4;
pub const NCCL_WIN_CFT_COUNTED: u32 = 8;
pub const NCCL_WIN_REQUIRED_ALIGNMENT: u32 = 4096;
pub const NCCL_SHRINK_DEFAULT: u32 = 0;
pub const NCCL_SHRINK_ABORT: u32 = 1;
pub const NCCL_REVOKE_DEFAULT: u32 = 0;
pub const NCCL_SUSPEND_MEM: u32 = 1;
pub const NCCL_CTA_POLICY_DEFAULT: u32 = 0;
pub const NCCL_CTA_POLICY_EFFICIENCY: u32 = 1;
pub const NCCL_CTA_POLICY_ZERO: u32 = 2;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUmemLocation_st"][::std::mem::size_of::<CUmemLocation_st>() - 8usize];
    [
        "Alignment of CUmemLocation_st",
    ][::std::mem::align_of::<CUmemLocation_st>() - 4usize];
    [
        "Offset of field: CUmemLocation_st::type_",
    ][::std::mem::offset_of!(CUmemLocation_st, type_) - 0usize];
    [
        "Offset of field: CUmemLocation_st::id",
    ][::std::mem::offset_of!(CUmemLocation_st, id) - 4usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of CUmemAllocationProp_st__bindgen_ty_1",
    ][::std::mem::size_of::<CUmemAllocationProp_st__bindgen_ty_1>() - 8usize];
    [
        "Alignment of CUmemAllocationProp_st__bindgen_ty_1",
    ][::std::mem::align_of::<CUmemAllocationProp_st__bindgen_ty_1>() - 2usize];
    [
        "Offset of field: CUmemAllocationProp_st__bindgen_ty_1::compressionType",
    ][::std::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, compressionType)
        - 0usize];
    [
        "Offset of field: CUmemAllocationProp_st__bindgen_ty_1::gpuDirectRDMACapable",
    ][::std::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, gpuDirectRDMACapable)
        - 1usize];
    [
        "Offset of field: CUmemAllocationProp_st__bindgen_ty_1::usage",
    ][::std::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, usage) - 2usize];
    [
        "Offset of field: CUmemAllocationProp_st__bindgen_ty_1::reserved",
    ][::std::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, reserved) - 4usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of CUmemAllocationProp_st",
    ][::std::mem::size_of::<CUmemAllocationProp_st>() - 32usize];
    [
        "Alignment of CUmemAllocationProp_st",
    ][::std::mem::align_of::<CUmemAllocationProp_st>() - 8usize];
    [
        "Offset of field: CUmemAllocationProp_st::type_",
    ][::std::mem::offset_of!(CUmemAllocationProp_st, type_) - 0usize];
    [
        "Offset of field: CUmemAllocationProp_st::requestedHandleTypes",
    ][::std::mem::offset_of!(CUmemAllocationProp_st, requestedHandleTypes) - 4usize];
    [
        "Offset of field: CUmemAllocationProp_st::location",
    ][::std::mem::offset_of!(CUmemAllocationProp_st, location) - 8usize];
    [
        "Offset of field: CUmemAllocationProp_st::win32HandleMetaData",
    ][::std::mem::offset_of!(CUmemAllocationProp_st, win32HandleMetaData) - 16usize];
    [
        "Offset of field: CUmemAllocationProp_st::allocFlags",
    ][::std::mem::offset_of!(CUmemAllocationProp_st, allocFlags) - 24usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of CUmemAccessDesc_st",
    ][::std::mem::size_of::<CUmemAccessDesc_st>() - 12usize];
    [
        "Alignment of CUmemAccessDesc_st",
    ][::std::mem::align_of::<CUmemAccessDesc_st>() - 4usize];
    [
        "Offset of field: CUmemAccessDesc_st::location",
    ][::std::mem::offset_of!(CUmemAccessDesc_st, location) - 0usize];
    [
        "Offset of field: CUmemAccessDesc_st::flags",
    ][::std::mem::offset_of!(CUmemAccessDesc_st, flags) - 8usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of cudaGraphExecUpdateResultInfo_st",
    ][::std::mem::size_of::<cudaGraphExecUpdateResultInfo_st>() - 24usize];
    [
        "Alignment of cudaGraphExecUpdateResultInfo_st",
    ][::std::mem::align_of::<cudaGraphExecUpdateResultInfo_st>() - 8usize];
    [
        "Offset of field: cudaGraphExecUpdateResultInfo_st::result",
    ][::std::mem::offset_of!(cudaGraphExecUpdateResultInfo_st, result) - 0usize];
    [
        "Offset of field: cudaGraphExecUpdateResultInfo_st::errorNode",
    ][::std::mem::offset_of!(cudaGraphExecUpdateResultInfo_st, errorNode) - 8usize];
    [
        "Offset of field: cudaGraphExecUpdateResultInfo_st::errorFromNode",
    ][::std::mem::offset_of!(cudaGraphExecUpdateResultInfo_st, errorFromNode) - 16usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclUniqueId"][::std::mem::size_of::<ncclUniqueId>() - 128usize];
    ["Alignment of ncclUniqueId"][::std::mem::align_of::<ncclUniqueId>() - 1usize];
    [
        "Offset of field: ncclUniqueId::internal",
    ][::std::mem::offset_of!(ncclUniqueId, internal) - 0usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclConfig_v23100"][::std::mem::size_of::<ncclConfig_v23100>() - 120usize];
    [
        "Alignment of ncclConfig_v23100",
    ][::std::mem::align_of::<ncclConfig_v23100>() - 8usize];
    [
        "Offset of field: ncclConfig_v23100::size",
    ][::std::mem::offset_of!(ncclConfig_v23100, size) - 0usize];
    [
        "Offset of field: ncclConfig_v23100::magic",
    ][::std::mem::offset_of!(ncclConfig_v23100, magic) - 8usize];
    [
        "Offset of field: ncclConfig_v23100::version",
    ][::std::mem::offset_of!(ncclConfig_v23100, version) - 12usize];
    [
        "Offset of field: ncclConfig_v23100::blocking",
    ][::std::mem::offset_of!(ncclConfig_v23100, blocking) - 16usize];
    [
        "Offset of field: ncclConfig_v23100::cgaClusterSize",
    ][::std::mem::offset_of!(ncclConfig_v23100, cgaClusterSize) - 20usize];
    [
        "Offset of field: ncclConfig_v23100::minCTAs",
    ][::std::mem::offset_of!(ncclConfig_v23100, minCTAs) - 24usize];
    [
        "Offset of field: ncclConfig_v23100::maxCTAs",
    ][::std::mem::offset_of!(ncclConfig_v23100, maxCTAs) - 28usize];
    [
        "Offset of field: ncclConfig_v23100::netName",
    ][::std::mem::offset_of!(ncclConfig_v23100, netName) - 32usize];
    [
        "Offset of field: ncclConfig_v23100::splitShare",
    ][::std::mem::offset_of!(ncclConfig_v23100, splitShare) - 40usize];
    [
        "Offset of field: ncclConfig_v23100::trafficClass",
    ][::std::mem::offset_of!(ncclConfig_v23100, trafficClass) - 44usize];
    [
        "Offset of field: ncclConfig_v23100::commName",
    ][::std::mem::offset_of!(ncclConfig_v23100, commName) - 48usize];
    [
        "Offset of field: ncclConfig_v23100::collnetEnable",
    ][::std::mem::offset_of!(ncclConfig_v23100, collnetEnable) - 56usize];
    [
        "Offset of field: ncclConfig_v23100::CTAPolicy",
    ][::std::mem::offset_of!(ncclConfig_v23100, CTAPolicy) - 60usize];
    [
        "Offset of field: ncclConfig_v23100::shrinkShare",
    ][::std::mem::offset_of!(ncclConfig_v23100, shrinkShare) - 64usize];
    [
        "Offset of field: ncclConfig_v23100::nvlsCTAs",
    ][::std::mem::offset_of!(ncclConfig_v23100, nvlsCTAs) - 68usize];
    [
        "Offset of field: ncclConfig_v23100::nChannelsPerNetPeer",
    ][::std::mem::offset_of!(ncclConfig_v23100, nChannelsPerNetPeer) - 72usize];
    [
        "Offset of field: ncclConfig_v23100::nvlinkCentricSched",
    ][::std::mem::offset_of!(ncclConfig_v23100, nvlinkCentricSched) - 76usize];
    [
        "Offset of field: ncclConfig_v23100::graphUsageMode",
    ][::std::mem::offset_of!(ncclConfig_v23100, graphUsageMode) - 80usize];
    [
        "Offset of field: ncclConfig_v23100::numRmaCtx",
    ][::std::mem::offset_of!(ncclConfig_v23100, numRmaCtx) - 84usize];
    [
        "Offset of field: ncclConfig_v23100::maxP2pPeers",
    ][::std::mem::offset_of!(ncclConfig_v23100, maxP2pPeers) - 88usize];
    [
        "Offset of field: ncclConfig_v23100::graphStreamOrdering",
    ][::std::mem::offset_of!(ncclConfig_v23100, graphStreamOrdering) - 92usize];
    [
        "Offset of field: ncclConfig_v23100::launchOrderImplicit",
    ][::std::mem::offset_of!(ncclConfig_v23100, launchOrderImplicit) - 96usize];
    [
        "Offset of field: ncclConfig_v23100::numRmaSig",
    ][::std::mem::offset_of!(ncclConfig_v23100, numRmaSig) - 100usize];
    [
        "Offset of field: ncclConfig_v23100::rmaEagerInit",
    ][::std::mem::offset_of!(ncclConfig_v23100, rmaEagerInit) - 104usize];
    [
        "Offset of field: ncclConfig_v23100::hostCftMode",
    ][::std::mem::offset_of!(ncclConfig_v23100, hostCftMode) - 108usize];
    [
        "Offset of field: ncclConfig_v23100::nvlsHostMode",
    ][::std::mem::offset_of!(ncclConfig_v23100, nvlsHostMode) - 112usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ncclSimInfo_v22200",
    ][::std::mem::size_of::<ncclSimInfo_v22200>() - 24usize];
    [
        "Alignment of ncclSimInfo_v22200",
    ][::std::mem::align_of::<ncclSimInfo_v22200>() - 8usize];
    [
        "Offset of field: ncclSimInfo_v22200::size",
    ][::std::mem::offset_of!(ncclSimInfo_v22200, size) - 0usize];
    [
        "Offset of field: ncclSimInfo_v22200::magic",
    ][::std::mem::offset_of!(ncclSimInfo_v22200, magic) - 8usize];
    [
        "Offset of field: ncclSimInfo_v22200::version",
    ][::std::mem::offset_of!(ncclSimInfo_v22200, version) - 12usize];
    [
        "Offset of field: ncclSimInfo_v22200::estimatedTime",
    ][::std::mem::offset_of!(ncclSimInfo_v22200, estimatedTime) - 16usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ncclConfigExt__bindgen_ty_1",
    ][::std::mem::size_of::<ncclConfigExt__bindgen_ty_1>() - 8usize];
    [
        "Alignment of ncclConfigExt__bindgen_ty_1",
    ][::std::mem::align_of::<ncclConfigExt__bindgen_ty_1>() - 4usize];
    [
        "Offset of field: ncclConfigExt__bindgen_ty_1::vendorId",
    ][::std::mem::offset_of!(ncclConfigExt__bindgen_ty_1, vendorId) - 0usize];
    [
        "Offset of field: ncclConfigExt__bindgen_ty_1::optionId",
    ][::std::mem::offset_of!(ncclConfigExt__bindgen_ty_1, optionId) - 4usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ncclConfigExt__bindgen_ty_2",
    ][::std::mem::size_of::<ncclConfigExt__bindgen_ty_2>() - 8usize];
    [
        "Alignment of ncclConfigExt__bindgen_ty_2",
    ][::std::mem::align_of::<ncclConfigExt__bindgen_ty_2>() - 8usize];
    [
        "Offset of field: ncclConfigExt__bindgen_ty_2::i",
    ][::std::mem::offset_of!(ncclConfigExt__bindgen_ty_2, i) - 0usize];
    [
        "Offset of field: ncclConfigExt__bindgen_ty_2::s",
    ][::std::mem::offset_of!(ncclConfigExt__bindgen_ty_2, s) - 0usize];
    [
        "Offset of field: ncclConfigExt__bindgen_ty_2::raw",
    ][::std::mem::offset_of!(ncclConfigExt__bindgen_ty_2, raw) - 0usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclConfigExt"][::std::mem::size_of::<ncclConfigExt>() - 24usize];
    ["Alignment of ncclConfigExt"][::std::mem::align_of::<ncclConfigExt>() - 8usize];
    [
        "Offset of field: ncclConfigExt::next",
    ][::std::mem::offset_of!(ncclConfigExt, next) - 0usize];
    [
        "Offset of field: ncclConfigExt::key",
    ][::std::mem::offset_of!(ncclConfigExt, key) - 8usize];
    [
        "Offset of field: ncclConfigExt::val",
    ][::std::mem::offset_of!(ncclConfigExt, val) - 16usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ncclCollConfig_v23200",
    ][::std::mem::size_of::<ncclCollConfig_v23200>() - 72usize];
    [
        "Alignment of ncclCollConfig_v23200",
    ][::std::mem::align_of::<ncclCollConfig_v23200>() - 8usize];
    [
        "Offset of field: ncclCollConfig_v23200::size",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, size) - 0usize];
    [
        "Offset of field: ncclCollConfig_v23200::magic",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, magic) - 8usize];
    [
        "Offset of field: ncclCollConfig_v23200::version",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, version) - 12usize];
    [
        "Offset of field: ncclCollConfig_v23200::ext",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, ext) - 16usize];
    [
        "Offset of field: ncclCollConfig_v23200::minCTAs",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, minCTAs) - 24usize];
    [
        "Offset of field: ncclCollConfig_v23200::maxCTAs",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, maxCTAs) - 28usize];
    [
        "Offset of field: ncclCollConfig_v23200::nvlsCTAs",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, nvlsCTAs) - 32usize];
    [
        "Offset of field: ncclCollConfig_v23200::cgaClusterSize",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, cgaClusterSize) - 36usize];
    [
        "Offset of field: ncclCollConfig_v23200::algSelection",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, algSelection) - 40usize];
    [
        "Offset of field: ncclCollConfig_v23200::forceAlgSelection",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, forceAlgSelection) - 48usize];
    [
        "Offset of field: ncclCollConfig_v23200::CTAPolicy",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, CTAPolicy) - 52usize];
    [
        "Offset of field: ncclCollConfig_v23200::userProfilerTag",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, userProfilerTag) - 56usize];
    [
        "Offset of field: ncclCollConfig_v23200::launchCompletionEvent",
    ][::std::mem::offset_of!(ncclCollConfig_v23200, launchCompletionEvent) - 64usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ncclEncryptionConfig_v23200",
    ][::std::mem::size_of::<ncclEncryptionConfig_v23200>() - 32usize];
    [
        "Alignment of ncclEncryptionConfig_v23200",
    ][::std::mem::align_of::<ncclEncryptionConfig_v23200>() - 8usize];
    [
        "Offset of field: ncclEncryptionConfig_v23200::size",
    ][::std::mem::offset_of!(ncclEncryptionConfig_v23200, size) - 0usize];
    [
        "Offset of field: ncclEncryptionConfig_v23200::magic",
    ][::std::mem::offset_of!(ncclEncryptionConfig_v23200, magic) - 8usize];
    [
        "Offset of field: ncclEncryptionConfig_v23200::version",
    ][::std::mem::offset_of!(ncclEncryptionConfig_v23200, version) - 12usize];
    [
        "Offset of field: ncclEncryptionConfig_v23200::mode",
    ][::std::mem::offset_of!(ncclEncryptionConfig_v23200, mode) - 16usize];
    [
        "Offset of field: ncclEncryptionConfig_v23200::psk",
    ][::std::mem::offset_of!(ncclEncryptionConfig_v23200, psk) - 24usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of ncclWaitSignalDesc_t",
    ][::std::mem::size_of::<ncclWaitSignalDesc_t>() - 16usize];
    [
        "Alignment of ncclWaitSignalDesc_t",
    ][::std::mem::align_of::<ncclWaitSignalDesc_t>() - 4usize];
    [
        "Offset of field: ncclWaitSignalDesc_t::opCnt",
    ][::std::mem::offset_of!(ncclWaitSignalDesc_t, opCnt) - 0usize];
    [
        "Offset of field: ncclWaitSignalDesc_t::peer",
    ][::std::mem::offset_of!(ncclWaitSignalDesc_t, peer) - 4usize];
    [
        "Offset of field: ncclWaitSignalDesc_t::sigIdx",
    ][::std::mem::offset_of!(ncclWaitSignalDesc_t, sigIdx) - 8usize];
    [
        "Offset of field: ncclWaitSignalDesc_t::ctx",
    ][::std::mem::offset_of!(ncclWaitSignalDesc_t, ctx) - 12usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of gpucommDeviceInfo_t",
    ][::std::mem::size_of::<gpucommDeviceInfo_t>() - 280usize];
    [
        "Alignment of gpucommDeviceInfo_t",
    ][::std::mem::align_of::<gpucommDeviceInfo_t>() - 8usize];
    [
        "Offset of field: gpucommDeviceInfo_t::name",
    ][::std::mem::offset_of!(gpucommDeviceInfo_t, name) - 0usize];
    [
        "Offset of field: gpucommDeviceInfo_t::uuid",
    ][::std::mem::offset_of!(gpucommDeviceInfo_t, uuid) - 256usize];
    [
        "Offset of field: gpucommDeviceInfo_t::totalMemory",
    ][::std::mem::offset_of!(gpucommDeviceInfo_t, totalMemory) - 272usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of gpucommPointerInfo_t",
    ][::std::mem::size_of::<gpucommPointerInfo_t>() - 8usize];
    [
        "Alignment of gpucommPointerInfo_t",
    ][::std::mem::align_of::<gpucommPointerInfo_t>() - 4usize];
    [
        "Offset of field: gpucommPointerInfo_t::kind",
    ][::std::mem::offset_of!(gpucommPointerInfo_t, kind) - 0usize];
    [
        "Offset of field: gpucommPointerInfo_t::device",
    ][::std::mem::offset_of!(gpucommPointerInfo_t, device) - 4usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of gpucommNcclProperties_t",
    ][::std::mem::size_of::<gpucommNcclProperties_t>() - 28usize];
    [
        "Alignment of gpucommNcclProperties_t",
    ][::std::mem::align_of::<gpucommNcclProperties_t>() - 4usize];
    [
        "Offset of field: gpucommNcclProperties_t::nvmlDev",
    ][::std::mem::offset_of!(gpucommNcclProperties_t, nvmlDev) - 0usize];
    [
        "Offset of field: gpucommNcclProperties_t::deviceApiSupport",
    ][::std::mem::offset_of!(gpucommNcclProperties_t, deviceApiSupport) - 4usize];
    [
        "Offset of field: gpucommNcclProperties_t::multimemSupport",
    ][::std::mem::offset_of!(gpucommNcclProperties_t, multimemSupport) - 8usize];
    [
        "Offset of field: gpucommNcclProperties_t::ginType",
    ][::std::mem::offset_of!(gpucommNcclProperties_t, ginType) - 12usize];
    [
        "Offset of field: gpucommNcclProperties_t::nLsaTeams",
    ][::std::mem::offset_of!(gpucommNcclProperties_t, nLsaTeams) - 16usize];
    [
        "Offset of field: gpucommNcclProperties_t::hostRmaSupport",
    ][::std::mem::offset_of!(gpucommNcclProperties_t, hostRmaSupport) - 20usize];
    [
        "Offset of field: gpucommNcclProperties_t::railedGinType",
    ][::std::mem::offset_of!(gpucommNcclProperties_t, railedGinType) - 24usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union ncclConfigExt__bindgen_ty_2 {
    pub i: ::std::os::raw::c_int,
    pub s: *const ::std::os::raw::c_char,
    pub raw: *mut ::std::os::raw::c_void,
}
impl CUmemAllocationHandleType_enum {
    pub const CU_MEM_HANDLE_TYPE_NONE: CUmemAllocationHandleType_enum = CUmemAllocationHandleType_enum(
        0,
    );
    pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: CUmemAllocationHandleType_enum = CUmemAllocationHandleType_enum(
        1,
    );
    pub const CU_MEM_HANDLE_TYPE_WIN32: CUmemAllocationHandleType_enum = CUmemAllocationHandleType_enum(
        2,
    );
    pub const CU_MEM_HANDLE_TYPE_WIN32_KMT: CUmemAllocationHandleType_enum = CUmemAllocationHandleType_enum(
        4,
    );
    pub const CU_MEM_HANDLE_TYPE_FABRIC: CUmemAllocationHandleType_enum = CUmemAllocationHandleType_enum(
        8,
    );
}
impl CUmemAccess_flags_enum {
    pub const CU_MEM_ACCESS_FLAGS_PROT_NONE: CUmemAccess_flags_enum = CUmemAccess_flags_enum(
        0,
    );
    pub const CU_MEM_ACCESS_FLAGS_PROT_READ: CUmemAccess_flags_enum = CUmemAccess_flags_enum(
        1,
    );
    pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: CUmemAccess_flags_enum = CUmemAccess_flags_enum(
        3,
    );
}
impl CUmemLocationType_enum {
    pub const CU_MEM_LOCATION_TYPE_INVALID: CUmemLocationType_enum = CUmemLocationType_enum(
        0,
    );
    pub const CU_MEM_LOCATION_TYPE_DEVICE: CUmemLocationType_enum = CUmemLocationType_enum(
        1,
    );
}
impl CUmemAllocationType_enum {
    pub const CU_MEM_ALLOCATION_TYPE_INVALID: CUmemAllocationType_enum = CUmemAllocationType_enum(
        0,
    );
    pub const CU_MEM_ALLOCATION_TYPE_PINNED: CUmemAllocationType_enum = CUmemAllocationType_enum(
        1,
    );
}
impl CUmemAllocationGranularity_flags_enum {
    pub const CU_MEM_ALLOC_GRANULARITY_MINIMUM: CUmemAllocationGranularity_flags_enum = CUmemAllocationGranularity_flags_enum(
        0,
    );
    pub const CU_MEM_ALLOC_GRANULARITY_RECOMMENDED: CUmemAllocationGranularity_flags_enum = CUmemAllocationGranularity_flags_enum(
        1,
    );
}
impl cudaError_enum {
    pub const CUDA_SUCCESS: cudaError_enum = cudaError_enum(0);
    pub const CUDA_ERROR_INVALID_VALUE: cudaError_enum = cudaError_enum(1);
    pub const CUDA_ERROR_OUT_OF_MEMORY: cudaError_enum = cudaError_enum(2);
    pub const CUDA_ERROR_NOT_INITIALIZED: cudaError_enum = cudaError_enum(3);
    pub const CUDA_ERROR_INVALID_HANDLE: cudaError_enum = cudaError_enum(400);
    pub const CUDA_ERROR_ILLEGAL_ADDRESS: cudaError_enum = cudaError_enum(700);
    pub const CUDA_ERROR_NOT_SUPPORTED: cudaError_enum = cudaError_enum(801);
    pub const CUDA_ERROR_UNKNOWN: cudaError_enum = cudaError_enum(999);
}
impl cudaError {
    pub const cudaSuccess: cudaError = cudaError(0);
    pub const cudaErrorInvalidValue: cudaError = cudaError(1);
    pub const cudaErrorMemoryAllocation: cudaError = cudaError(2);
    pub const cudaErrorInitializationError: cudaError = cudaError(3);
    pub const cudaErrorCudartUnloading: cudaError = cudaError(4);
    pub const cudaErrorStubLibrary: cudaError = cudaError(34);
    pub const cudaErrorInsufficientDriver: cudaError = cudaError(35);
    pub const cudaErrorDevicesUnavailable: cudaError = cudaError(46);
    pub const cudaErrorNoDevice: cudaError = cudaError(100);
    pub const cudaErrorInvalidDevice: cudaError = cudaError(101);
    pub const cudaErrorDeviceUninitialized: cudaError = cudaError(201);
    pub const cudaErrorPeerAccessUnsupported: cudaError = cudaError(217);
    pub const cudaErrorInvalidResourceHandle: cudaError = cudaError(400);
    pub const cudaErrorIllegalState: cudaError = cudaError(401);
    pub const cudaErrorSymbolNotFound: cudaError = cudaError(500);
    pub const cudaErrorNotReady: cudaError = cudaError(600);
    pub const cudaErrorIllegalAddress: cudaError = cudaError(700);
    pub const cudaErrorPeerAccessAlreadyEnabled: cudaError = cudaError(704);
    pub const cudaErrorPeerAccessNotEnabled: cudaError = cudaError(705);
    pub const cudaErrorLaunchFailure: cudaError = cudaError(719);
    pub const cudaErrorNotPermitted: cudaError = cudaError(800);
    pub const cudaErrorNotSupported: cudaError = cudaError(801);
    pub const cudaErrorSystemNotReady: cudaError = cudaError(802);
    pub const cudaErrorSystemDriverMismatch: cudaError = cudaError(803);
    pub const cudaErrorCompatNotSupportedOnDevice: cudaError = cudaError(804);
    pub const cudaErrorStreamCaptureUnsupported: cudaError = cudaError(900);
    pub const cudaErrorStreamCaptureInvalidated: cudaError = cudaError(901);
    pub const cudaErrorStreamCaptureMerge: cudaError = cudaError(902);
    pub const cudaErrorStreamCaptureUnmatched: cudaError = cudaError(903);
    pub const cudaErrorStreamCaptureUnjoined: cudaError = cudaError(904);
    pub const cudaErrorStreamCaptureIsolation: cudaError = cudaError(905);
    pub const cudaErrorStreamCaptureImplicit: cudaError = cudaError(906);
    pub const cudaErrorCapturedEvent: cudaError = cudaError(907);
    pub const cudaErrorStreamCaptureWrongThread: cudaError = cudaError(908);
    pub const cudaErrorGraphExecUpdateFailure: cudaError = cudaError(910);
    pub const cudaErrorUnknown: cudaError = cudaError(999);
}
impl cudaMemcpyKind {
    pub const cudaMemcpyHostToHost: cudaMemcpyKind = cudaMemcpyKind(0);
    pub const cudaMemcpyHostToDevice: cudaMemcpyKind = cudaMemcpyKind(1);
    pub const cudaMemcpyDeviceToHost: cudaMemcpyKind = cudaMemcpyKind(2);
    pub const cudaMemcpyDeviceToDevice: cudaMemcpyKind = cudaMemcpyKind(3);
    pub const cudaMemcpyDefault: cudaMemcpyKind = cudaMemcpyKind(4);
}
impl cudaDeviceAttr {
    pub const cudaDevAttrMaxThreadsPerBlock: cudaDeviceAttr = cudaDeviceAttr(1);
    pub const cudaDevAttrMultiProcessorCount: cudaDeviceAttr = cudaDeviceAttr(16);
    pub const cudaDevAttrIntegrated: cudaDeviceAttr = cudaDeviceAttr(18);
    pub const cudaDevAttrComputeMode: cudaDeviceAttr = cudaDeviceAttr(20);
    pub const cudaDevAttrConcurrentKernels: cudaDeviceAttr = cudaDeviceAttr(31);
    pub const cudaDevAttrPciBusId: cudaDeviceAttr = cudaDeviceAttr(33);
    pub const cudaDevAttrPciDeviceId: cudaDeviceAttr = cudaDeviceAttr(34);
    pub const cudaDevAttrGlobalMemoryBusWidth: cudaDeviceAttr = cudaDeviceAttr(37);
    pub const cudaDevAttrL2CacheSize: cudaDeviceAttr = cudaDeviceAttr(38);
    pub const cudaDevAttrAsyncEngineCount: cudaDeviceAttr = cudaDeviceAttr(40);
    pub const cudaDevAttrUnifiedAddressing: cudaDeviceAttr = cudaDeviceAttr(41);
    pub const cudaDevAttrPciDomainId: cudaDeviceAttr = cudaDeviceAttr(50);
    pub const cudaDevAttrComputeCapabilityMajor: cudaDeviceAttr = cudaDeviceAttr(75);
    pub const cudaDevAttrComputeCapabilityMinor: cudaDeviceAttr = cudaDeviceAttr(76);
    pub const cudaDevAttrManagedMemory: cudaDeviceAttr = cudaDeviceAttr(83);
    pub const cudaDevAttrPageableMemoryAccess: cudaDeviceAttr = cudaDeviceAttr(88);
    pub const cudaDevAttrMemoryPoolsSupported: cudaDeviceAttr = cudaDeviceAttr(115);
    pub const cudaDevAttrGPUDirectRDMASupported: cudaDeviceAttr = cudaDeviceAttr(116);
}
impl cudaDeviceP2PAttr {
    pub const cudaDevP2PAttrPerformanceRank: cudaDeviceP2PAttr = cudaDeviceP2PAttr(1);
    pub const cudaDevP2PAttrAccessSupported: cudaDeviceP2PAttr = cudaDeviceP2PAttr(2);
    pub const cudaDevP2PAttrNativeAtomicSupported: cudaDeviceP2PAttr = cudaDeviceP2PAttr(
        3,
    );
    pub const cudaDevP2PAttrCudaArrayAccessSupported: cudaDeviceP2PAttr = cudaDeviceP2PAttr(
        4,
    );
}
impl cudaStreamCaptureMode {
    pub const cudaStreamCaptureModeGlobal: cudaStreamCaptureMode = cudaStreamCaptureMode(
        0,
    );
    pub const cudaStreamCaptureModeThreadLocal: cudaStreamCaptureMode = cudaStreamCaptureMode(
        1,
    );
    pub const cudaStreamCaptureModeRelaxed: cudaStreamCaptureMode = cudaStreamCaptureMode(
        2,
    );
}
impl cudaStreamCaptureStatus {
    pub const cudaStreamCaptureStatusNone: cudaStreamCaptureStatus = cudaStreamCaptureStatus(
        0,
    );
    pub const cudaStreamCaptureStatusActive: cudaStreamCaptureStatus = cudaStreamCaptureStatus(
        1,
    );
    pub const cudaStreamCaptureStatusInvalidated: cudaStreamCaptureStatus = cudaStreamCaptureStatus(
        2,
    );
}
impl cudaGraphExecUpdateResult {
    pub const cudaGraphExecUpdateSuccess: cudaGraphExecUpdateResult = cudaGraphExecUpdateResult(
        0,
    );
    pub const cudaGraphExecUpdateError: cudaGraphExecUpdateResult = cudaGraphExecUpdateResult(
        1,
    );
    pub const cudaGraphExecUpdateErrorTopologyChanged: cudaGraphExecUpdateResult = cudaGraphExecUpdateResult(
        2,
    );
    pub const cudaGraphExecUpdateErrorNodeTypeChanged: cudaGraphExecUpdateResult = cudaGraphExecUpdateResult(
        3,
    );
    pub const cudaGraphExecUpdateErrorFunctionChanged: cudaGraphExecUpdateResult = cudaGraphExecUpdateResult(
        4,
    );
    pub const cudaGraphExecUpdateErrorParametersChanged: cudaGraphExecUpdateResult = cudaGraphExecUpdateResult(
        5,
    );
    pub const cudaGraphExecUpdateErrorNotSupported: cudaGraphExecUpdateResult = cudaGraphExecUpdateResult(
        6,
    );
    pub const cudaGraphExecUpdateErrorUnsupportedFunctionChange: cudaGraphExecUpdateResult = cudaGraphExecUpdateResult(
        7,
    );
    pub const cudaGraphExecUpdateErrorAttributesChanged: cudaGraphExecUpdateResult = cudaGraphExecUpdateResult(
        8,
    );
}
impl cudaLimit {
    pub const cudaLimitStackSize: cudaLimit = cudaLimit(0);
    pub const cudaLimitPrintfFifoSize: cudaLimit = cudaLimit(1);
    pub const cudaLimitMallocHeapSize: cudaLimit = cudaLimit(2);
}
impl ncclResult_t {
    pub const ncclSuccess: ncclResult_t = ncclResult_t(0);
    pub const ncclUnhandledCudaError: ncclResult_t = ncclResult_t(1);
    pub const ncclSystemError: ncclResult_t = ncclResult_t(2);
    pub const ncclInternalError: ncclResult_t = ncclResult_t(3);
    pub const ncclInvalidArgument: ncclResult_t = ncclResult_t(4);
    pub const ncclInvalidUsage: ncclResult_t = ncclResult_t(5);
    pub const ncclRemoteError: ncclResult_t = ncclResult_t(6);
    pub const ncclInProgress: ncclResult_t = ncclResult_t(7);
    pub const ncclTimeout: ncclResult_t = ncclResult_t(8);
    pub const ncclNumResults: ncclResult_t = ncclResult_t(9);
}
impl ncclHostCftMode_t {
    pub const ncclHostCftDefault: ncclHostCftMode_t = ncclHostCftMode_t(-2147483648);
    pub const ncclHostCftEnable: ncclHostCftMode_t = ncclHostCftMode_t(1);
    pub const ncclHostCftDisable: ncclHostCftMode_t = ncclHostCftMode_t(2);
    pub const ncclHostCftFallback: ncclHostCftMode_t = ncclHostCftMode_t(3);
}
impl ncclNvlsHostMode_t {
    pub const ncclNvlsHostModeDefault: ncclNvlsHostMode_t = ncclNvlsHostMode_t(
        -2147483648,
    );
    pub const ncclNvlsHostModeEnable: ncclNvlsHostMode_t = ncclNvlsHostMode_t(0);
    pub const ncclNvlsHostModeDisableTransport: ncclNvlsHostMode_t = ncclNvlsHostMode_t(
        1,
    );
    pub const ncclNvlsHostModeDisableSymmetricMultimem: ncclNvlsHostMode_t = ncclNvlsHostMode_t(
        2,
    );
    pub const ncclNvlsHostModeDisable: ncclNvlsHostMode_t = ncclNvlsHostMode_t(
        2147483647,
    );
}
impl ncclEncryptionMode_t {
    pub const NCCL_ENCRYPTION_MODE_NONE: ncclEncryptionMode_t = ncclEncryptionMode_t(0);
    pub const NCCL_ENCRYPTION_MODE_PSK: ncclEncryptionMode_t = ncclEncryptionMode_t(1);
}
impl ncclRedOp_t {
    pub const ncclSum: ncclRedOp_t = ncclRedOp_t(0);
    pub const ncclProd: ncclRedOp_t = ncclRedOp_t(1);
    pub const ncclMax: ncclRedOp_t = ncclRedOp_t(2);
    pub const ncclMin: ncclRedOp_t = ncclRedOp_t(3);
    pub const ncclAvg: ncclRedOp_t = ncclRedOp_t(4);
    pub const ncclNumOps: ncclRedOp_t = ncclRedOp_t(5);
    pub const ncclMaxRedOp: ncclRedOp_t = ncclRedOp_t(2147483647);
}
impl ncclDataType_t {
    pub const ncclInt8: ncclDataType_t = ncclDataType_t(0);
    pub const ncclChar: ncclDataType_t = ncclDataType_t(0);
    pub const ncclUint8: ncclDataType_t = ncclDataType_t(1);
    pub const ncclInt32: ncclDataType_t = ncclDataType_t(2);
    pub const ncclInt: ncclDataType_t = ncclDataType_t(2);
    pub const ncclUint32: ncclDataType_t = ncclDataType_t(3);
    pub const ncclInt64: ncclDataType_t = ncclDataType_t(4);
    pub const ncclUint64: ncclDataType_t = ncclDataType_t(5);
    pub const ncclFloat16: ncclDataType_t = ncclDataType_t(6);
    pub const ncclHalf: ncclDataType_t = ncclDataType_t(6);
    pub const ncclFloat32: ncclDataType_t = ncclDataType_t(7);
    pub const ncclFloat: ncclDataType_t = ncclDataType_t(7);
    pub const ncclFloat64: ncclDataType_t = ncclDataType_t(8);
    pub const ncclDouble: ncclDataType_t = ncclDataType_t(8);
    pub const ncclBfloat16: ncclDataType_t = ncclDataType_t(9);
    pub const ncclFloat8e4m3: ncclDataType_t = ncclDataType_t(10);
    pub const ncclFloat8e5m2: ncclDataType_t = ncclDataType_t(11);
    pub const ncclNumTypes: ncclDataType_t = ncclDataType_t(12);
}
impl ncclScalarResidence_t {
    pub const ncclScalarDevice: ncclScalarResidence_t = ncclScalarResidence_t(0);
    pub const ncclScalarHostImmediate: ncclScalarResidence_t = ncclScalarResidence_t(1);
}
impl ncclCommMemStat_t {
    pub const ncclStatGpuMemSuspend: ncclCommMemStat_t = ncclCommMemStat_t(0);
    pub const ncclStatGpuMemSuspended: ncclCommMemStat_t = ncclCommMemStat_t(1);
    pub const ncclStatGpuMemPersist: ncclCommMemStat_t = ncclCommMemStat_t(2);
    pub const ncclStatGpuMemTotal: ncclCommMemStat_t = ncclCommMemStat_t(3);
}
pub use self::CUmemAllocationHandleType_enum as CUmemAllocationHandleType;
pub use self::CUmemAccess_flags_enum as CUmemAccess_flags;
pub use self::CUmemLocationType_enum as CUmemLocationType;
pub use self::CUmemAllocationType_enum as CUmemAllocationType;
pub use self::CUmemAllocationGranularity_flags_enum as CUmemAllocationGranularity_flags;
pub use self::cudaError_enum as CUresult;
pub use self::cudaError as cudaError_t;
