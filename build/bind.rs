//! Bindings: what bindgen is asked for. The committed snapshot is made by the same function.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::headers::{DEFINES, unbound};
use super::nvshmem;

/// Functions that the crate calls. Those of NCCL bind to nothing where `nccl` is off or the headers are older.
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
    "cudaDeviceGetByPCIBusId",
    "cudaDeviceCanAccessPeer",
    "cudaDeviceEnablePeerAccess",
    "cudaDeviceGetP2PAttribute",
    "cudaDeviceGetStreamPriorityRange",
    "cudaDeviceSetLimit",
    "cudaDeviceGetLimit",
    "cudaMemGetInfo",
    "cudaStreamCreateWithPriority",
    "cudaStreamDestroy",
    "cudaStreamGetPriority",
    "cudaStreamGetFlags",
    "cudaStreamQuery",
    "cudaStreamWaitEvent",
    "cudaStreamBeginCapture",
    "cudaThreadExchangeStreamCaptureMode",
    "cudaStreamEndCapture",
    "cudaStreamIsCapturing",
    "cudaGraphGetNodes",
    "cudaGraphInstantiate",
    "cudaGraphExecUpdate",
    "cudaGraphUpload",
    "cudaGraphLaunch",
    "cudaGraphExecDestroy",
    "cudaGraphDestroy",
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
    "ncclCommInitRankScalable",
    "ncclCommSplit",
    "ncclCommShrink",
    "ncclCommGetUniqueId",
    "ncclCommGrow",
    "ncclCommFinalize",
    "ncclCommDestroy",
    "ncclCommAbort",
    "ncclCommRevoke",
    "ncclCommSuspend",
    "ncclCommResume",
    "ncclCommMemStats",
    "ncclCommGetAsyncError",
    "ncclCommCount",
    "ncclCommCuDevice",
    "ncclCommUserRank",
    "ncclMemAlloc",
    "ncclMemFree",
    "ncclCommRegister",
    "ncclCommDeregister",
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
    "ncclAllReduceConfig",
    "ncclBroadcastConfig",
    "ncclReduceConfig",
    "ncclAllGatherConfig",
    "ncclReduceScatterConfig",
    "ncclAlltoAllConfig",
    "ncclGatherConfig",
    "ncclScatterConfig",
    "ncclSend",
    "ncclRecv",
    "ncclPutSignal",
    "ncclSignal",
    "ncclWaitSignal",
    "ncclWinGetUserPtr",
    "ncclGroupStart",
    "ncclGroupEnd",
    "ncclGroupSimulateEnd",
    "ncclParamBind",
    "ncclParamGetI8",
    "ncclParamGetI16",
    "ncclParamGetI32",
    "ncclParamGetI64",
    "ncclParamGetU8",
    "ncclParamGetU16",
    "ncclParamGetU32",
    "ncclParamGetU64",
    "ncclParamGetStr",
    "ncclParamGet",
    "ncclParamGetParameter",
    "ncclParamGetAllParameterKeys",
    "ncclSetEncryption",
    "gpucommDeviceInfo",
    "gpucommPointerInfo",
    "gpucommPoolCreate",
    "gpucommDriverEntryPoint",
    "gpucommNcclConfigInit",
    "gpucommNcclProperties",
    "gpucommNcclLsaPointer",
    "gpucommNcclPeerPointer",
    "gpucommNcclMultimemPointer",
    "gpucommNcclSimInfoInit",
    "gpucommNcclCollConfigInit",
    "gpucommNcclEncryptionConfigInit",
];

/// Functions of NCCL that are younger than the oldest version that will do: vendor/shim calls them, if they are there.
const NEWER: &[&str] = &[
    "ncclGroupSimulateEnd",
    "ncclCommInitRankScalable",
    "ncclCommShrink",
    "ncclCommWindowRegister",
    "ncclCommWindowDeregister",
    "ncclAlltoAll",
    "ncclGather",
    "ncclScatter",
    "ncclCommRevoke",
    "ncclCommGetUniqueId",
    "ncclCommGrow",
    "ncclCommSuspend",
    "ncclCommResume",
    "ncclCommMemStats",
    "ncclPutSignal",
    "ncclSignal",
    "ncclWaitSignal",
    "ncclWinGetUserPtr",
    "ncclParamBind",
    "ncclParamGetI8",
    "ncclParamGetI16",
    "ncclParamGetI32",
    "ncclParamGetI64",
    "ncclParamGetU8",
    "ncclParamGetU16",
    "ncclParamGetU32",
    "ncclParamGetU64",
    "ncclParamGetStr",
    "ncclParamGet",
    "ncclParamGetParameter",
    "ncclParamGetAllParameterKeys",
    "ncclAllReduceConfig",
    "ncclBroadcastConfig",
    "ncclReduceConfig",
    "ncclAllGatherConfig",
    "ncclReduceScatterConfig",
    "ncclAlltoAllConfig",
    "ncclGatherConfig",
    "ncclScatterConfig",
    "ncclSetEncryption",
];

/// Types that no listed function mentions.
const TYPES: &[&str] = &[
    "PFN_cuMemset(D16|D32|D2D32)Async_v3020",
    "PFN_cuMem(Create|Release|AddressReserve|AddressFree|Map|Unmap|SetAccess|GetAccess)_v10020",
    "PFN_cuMem(ExportToShareableHandle|ImportFromShareableHandle)_v10020",
    "PFN_cuMem(GetAllocationGranularity|GetAllocationPropertiesFromHandle)_v10020",
    "PFN_cuMemRetainAllocationHandle_v11000",
    "CUresult",
    "nccl(HostCft|NvlsHost|Encryption)Mode_t",
];

/// Constants that the crate uses.
const CONSTANTS: &[&str] = &[
    "CUDART_VERSION",
    "NCCL_(MAJOR|MINOR|PATCH|VERSION_CODE|UNIQUE_ID_BYTES|CONFIG_UNDEF_INT|SPLIT_NOCOLOR)",
    "NCCL_WIN_.*",
    "NCCL_CTA_POLICY_.*",
    "NCCL_(SHRINK|REVOKE)_.*",
    "NCCL_SUSPEND_MEM",
    "cudaStream(Default|NonBlocking)",
    "cudaEvent(Default|BlockingSync|DisableTiming)",
    "cudaHostAlloc(Default|Portable)",
];

/// What is bound together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The CUDA runtime.
    Cuda,
    /// The CUDA runtime and NCCL.
    Nccl,
    /// NVSHMEM; the types of CUDA that it needs are in the other bindings.
    Nvshmem,
}

impl Part {
    /// The header that includes all others, below the root of the package.
    pub fn header(self) -> &'static str {
        match self {
            Self::Cuda | Self::Nccl => "wrapper.h",
            Self::Nvshmem => "vendor/shim/gpucomm_nvshmem.h",
        }
    }
}

/// What [`generate`] is to do.
#[derive(Debug, Clone)]
pub struct Request {
    /// The root of this package.
    pub root: PathBuf,
    /// Directories to search, in order, after vendor/shim.
    pub includes: Vec<PathBuf>,
    /// What is wanted.
    pub part: Part,
    /// What to do where there is no libclang.
    pub instead: &'static str,
}

/// The bindings and what to tell cargo of the headers that were read, or a text for the user.
///
/// A libclang that came without its own headers, such as that from PyPI, gets those of the C compiler.
pub fn generate(request: &Request) -> Result<(String, Vec<String>), String> {
    match attempt(request, &[]) {
        Err(message) if message.contains("file not found") => match compiler_headers() {
            Some(headers) => attempt(request, &["-isystem".to_string(), headers]),
            None => Err(message),
        },
        result => result,
    }
}

fn attempt(request: &Request, more: &[String]) -> Result<(String, Vec<String>), String> {
    // bindgen panics where libclang cannot be loaded: the text is ours, and no backtrace is wanted.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let read = Headers::default();
    let result = super::quiet::stderr(|| {
        let read = read.clone();
        std::panic::catch_unwind(move || builder(request, more).parse_callbacks(Box::new(read)).generate())
    });
    std::panic::set_hook(hook);
    match result {
        Ok(Ok(bindings)) => Ok((bindings.to_string(), read.lines())),
        Ok(Err(error)) => Err(diagnosed(&error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            if text.contains("not supported by the loaded `libclang`") {
                return Err(format!("error: the installed libclang is too old; {}", lines.nth(1).unwrap_or_default()));
            }
            if !text.contains("libclang") {
                return Err(format!("error: bindgen failed: {text}"));
            }
            Err(format!("{NO_LIBCLANG} {}.\n  ({})", request.instead, lines.next().unwrap_or_default()))
        }
    }
}

/// The first thing that is wrong with the headers; what comes after it usually follows from it.
fn diagnosed(text: &str) -> String {
    let text = text.trim_start_matches("clang diagnosed error: ");
    let first = text.lines().find(|line| line.contains("error: ")).unwrap_or(text);
    unbound(first)
}

/// Collects the headers that are read, and names the functions to link.
#[derive(Debug, Default, Clone)]
struct Headers(Arc<Mutex<BTreeSet<String>>>);

impl Headers {
    fn lines(&self) -> Vec<String> {
        let read = self.0.lock().expect("one thread");
        read.iter().map(|name| format!("cargo::rerun-if-changed={name}")).collect()
    }
}

impl bindgen::callbacks::ParseCallbacks for Headers {
    fn include_file(&self, name: &str) {
        self.0.lock().expect("one thread").insert(name.into());
    }

    fn generated_link_name_override(&self, item: bindgen::callbacks::ItemInfo<'_>) -> Option<String> {
        (NEWER.contains(&item.name) || nvshmem::NEWER.contains(&item.name)).then(|| format!("gpucomm_{}", item.name))
    }

    fn item_name(&self, item: bindgen::callbacks::ItemInfo<'_>) -> Option<String> {
        item.name.starts_with(nvshmem::PREFIX).then(|| item.name.trim_start_matches("gpucomm_").to_string())
    }
}

const NO_LIBCLANG: &str = "\
error: libclang is missing: it reads the headers of CUDA, NCCL and NVSHMEM. Install it with `apt install libclang-dev` or
  `dnf install clang-devel`; on a cluster, `module load llvm` (or clang); without root, `pip install libclang` and
  LIBCLANG_PATH set to the directory of its libclang.so. Without the feature `bindgen`, which is on by default, the committed
  bindings are taken and no libclang is needed: default-features = false, features = [\"nccl\"].
  Nor is it with the emulator:";

/// The directory of the C compiler's own headers, `stddef.h` among them.
fn compiler_headers() -> Option<String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = std::process::Command::new(compiler).arg("-print-file-name=include").output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_string();
    PathBuf::from(&path).is_absolute().then_some(path)
}

fn builder(request: &Request, more: &[String]) -> bindgen::Builder {
    let mut builder = bindgen::builder()
        .header(request.root.join(request.part.header()).display().to_string())
        .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: false })
        .layout_tests(true)
        .derive_default(false)
        .generate_comments(false)
        .merge_extern_blocks(true)
        .sort_semantically(true)
        .disable_header_comment()
        .formatter(bindgen::Formatter::Prettyplease)
        .clang_args(DEFINES.iter().map(|name| format!("-D{name}=1")))
        .clang_args(more)
        .clang_arg(format!("-I{}", request.root.join("vendor/shim").display()));
    if request.part == Part::Nccl {
        builder = builder.clang_arg("-DGPUCOMM_NCCL");
    }
    for include in &request.includes {
        builder = builder.clang_arg(format!("-I{}", include.display()));
    }
    let (functions, types, constants) = match request.part {
        Part::Cuda | Part::Nccl => (FUNCTIONS.to_vec(), TYPES, CONSTANTS),
        Part::Nvshmem => {
            // Types of streams are those of the other bindings; modules nothing else has.
            builder = builder.blocklist_type("cuda.*|CUstream.*");
            let prefixed = format!("{}.*", nvshmem::PREFIX);
            builder = builder.allowlist_var(prefixed);
            ([nvshmem::FUNCTIONS, nvshmem::NEWER].concat(), &[][..], nvshmem::CONSTANTS)
        }
    };
    for name in functions {
        builder = builder.allowlist_function(name);
    }
    for name in types {
        builder = builder.allowlist_type(name);
    }
    for name in constants {
        builder = builder.allowlist_var(name);
    }
    builder
}
