//! Bindings: what bindgen is asked for. The committed snapshot is made by the same function.

use std::path::{Path, PathBuf};

/// Functions that the crate calls, as regular expressions anchored by bindgen.
const FUNCTIONS: &[&str] = &[
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaGetLastError",
    "cudaDriverGetVersion",
    "cudaRuntimeGetVersion",
    "cudaGetDeviceCount",
    "cudaGetDevice",
    "cudaSetDevice",
    "cudaDeviceGetAttribute",
    "cudaDeviceGetPCIBusId",
    "cudaDeviceCanAccessPeer",
    "cudaDeviceEnablePeerAccess",
    "cudaDeviceGetP2PAttribute",
    "cudaDeviceGetStreamPriorityRange",
    "cudaMemGetInfo",
    "cudaStreamCreateWithPriority",
    "cudaStreamDestroy",
    "cudaStreamGetPriority",
    "cudaStreamGetFlags",
    "cudaStreamQuery",
    "cudaStreamWaitEvent",
    "cudaLaunchHostFunc",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventRecord",
    "cudaEventQuery",
    "cudaEventElapsedTime",
    "cudaMalloc",
    "cudaFree",
    "cudaMallocFromPoolAsync",
    "cudaFreeAsync",
    "cudaHostAlloc",
    "cudaFreeHost",
    "cudaMemcpyAsync",
    "cudaMemcpyPeerAsync",
    "cudaMemsetAsync",
    "ncclGetVersion",
    "ncclGetUniqueId",
    "ncclGetErrorString",
    "ncclGetLastError",
    "ncclCommInitRankConfig",
    "ncclCommSplit",
    "ncclCommFinalize",
    "ncclCommDestroy",
    "ncclCommAbort",
    "ncclCommGetAsyncError",
    "ncclCommCount",
    "ncclCommCuDevice",
    "ncclCommUserRank",
    "ncclMemAlloc",
    "ncclMemFree",
    "ncclCommWindowRegister",
    "ncclCommWindowDeregister",
    "ncclRedOpCreatePreMulSum",
    "ncclRedOpDestroy",
    "ncclReduce",
    "ncclBroadcast",
    "ncclAllReduce",
    "ncclReduceScatter",
    "ncclAllGather",
    "ncclAlltoAll",
    "ncclGather",
    "ncclScatter",
    "ncclSend",
    "ncclRecv",
    "ncclGroupStart",
    "ncclGroupEnd",
    "gpucommDeviceInfo",
    "gpucommPoolCreate",
    "gpucommDriverEntryPoint",
    "gpucommNcclConfigInit",
];

/// Types that no listed function mentions.
const TYPES: &[&str] = &["PFN_cuMemset(D16|D32|D2D32)Async_v3020", "CUresult"];

/// Constants that the crate uses.
const CONSTANTS: &[&str] = &[
    "CUDART_VERSION",
    "NCCL_(MAJOR|MINOR|PATCH|VERSION_CODE|UNIQUE_ID_BYTES|CONFIG_UNDEF_INT|SPLIT_NOCOLOR)",
    "NCCL_WIN_(DEFAULT|COLL_SYMMETRIC)",
    "NCCL_CTA_POLICY_.*",
    "cudaStream(Default|NonBlocking)",
    "cudaEvent(Default|BlockingSync|DisableTiming)",
    "cudaHostAlloc(Default|Portable)",
];

/// A bindgen builder for `wrapper` over the given include directories.
pub fn builder(wrapper: &Path, includes: &[PathBuf]) -> bindgen::Builder {
    let mut builder = bindgen::builder()
        .header(wrapper.display().to_string())
        .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: false })
        .layout_tests(true)
        .derive_default(false)
        .generate_comments(false)
        .merge_extern_blocks(true)
        .sort_semantically(true)
        .formatter(bindgen::Formatter::Prettyplease);
    for include in includes {
        builder = builder.clang_arg(format!("-I{}", include.display()));
    }
    for name in FUNCTIONS {
        builder = builder.allowlist_function(name);
    }
    for name in TYPES {
        builder = builder.allowlist_type(name);
    }
    for name in CONSTANTS {
        builder = builder.allowlist_var(name);
    }
    builder
}
