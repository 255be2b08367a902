//! What the emulator knowingly does otherwise than the libraries, beside what is true of all functions.

/// Functions, and what differs.
pub const ALL: &[(&[&str], &str)] = &[
    (
        &["ncclAllReduce", "ncclReduce", "ncclReduceScatter"],
        "where a step of a sum or product of floats has to be rounded, the last bits may differ: NCCL chooses the order of the ranks",
    ),
    (&["ncclRedOpCreatePreMulSum"], "rounding, as with ncclAllReduce"),
    (&["cudaDeviceGetAttribute"], "attributes for which this crate does not ask are refused"),
    (&["cudaDeviceSetLimit", "cudaDeviceGetLimit"], "limits other than that of the stack are refused"),
    (
        &["gpucommDriverEntryPoint"],
        "finds the functions for which this crate asks, and those for mapped memory; no others",
    ),
    (&["cudaGetErrorString", "ncclGetErrorString", "ncclGetLastError"], "says it in other words"),
    (&["cudaGraphGetNodes"], "says how many there are, and not which"),
    (
        &["cudaGraphInstantiate", "cudaGraphLaunch"],
        "pieces of a graph that have no order are done side by side, by as many threads as it takes; no graph allocates memory",
    ),
    (
        &["cudaGraphExecUpdate"],
        "names no node where it fails; it fails where anything of an operation of NCCL changes, which a GPU may take",
    ),
    (&["cudaGraphUpload"], "comes after earlier launches, and does nothing"),
    (
        &["ncclCommRegister"],
        "moves memory as any other. It is a violation where ranks differ in what is registered, by NCCL itself for graphs too, of whatever \
         size, and where NCCL still knows other memory by an address that a graph had there",
    ),
    (&["cudaMemGetInfo"], "contexts, kernels, streams and events take no memory"),
    (&["cudaEventElapsedTime"], "the time of threads on a CPU"),
    (
        &["ncclGetUniqueId", "ncclCommGetUniqueId", "ncclCommInitRankConfig"],
        "ranks meet on one machine only, under one user",
    ),
    (
        &["gpucommNcclConfigInit"],
        "fields that choose between algorithms, channels and networks are checked, and have no effect; what `graphUsageMode` and \
         `graphStreamOrdering` say that the program does not do, or puts in order, is a violation where it does, or does not",
    ),
    (&["ncclGroupSimulateEnd"], "the time is that of a ring of its own, at 200 GB/s"),
    (
        &["ncclCommSuspend", "ncclCommResume", "ncclCommMemStats"],
        "a communicator has 128 KiB for each rank to give back, and 96 KiB more; before NCCL 2.29.7 it has none",
    ),
    (
        &["ncclParamBind", "ncclParamGetParameter", "ncclParamGetAllParameterKeys"],
        "the parameters of NCCL 2.30.7, and one more from 2.32 on; none has an effect. It is a violation where two threads ask by names at a \
         time",
    ),
    (
        &[
            "ncclParamGetI8",
            "ncclParamGetI16",
            "ncclParamGetI32",
            "ncclParamGetI64",
            "ncclParamGetU8",
            "ncclParamGetU16",
        ],
        "no parameter is of this type, as in NCCL up to 2.32.3",
    ),
    (
        &["gpucommNcclLsaPointer", "gpucommNcclPeerPointer"],
        "addresses of this process, where the library has others for kernels; none of ranks of other processes",
    ),
    (&["gpucommNcclMultimemPointer"], "there are no switches"),
    (
        &["ncclPutSignal", "ncclSignal", "ncclWaitSignal"],
        "an abort ends waits; captured ones before NCCL 2.30.3, of which each launch counts as the first one does, are a violation",
    ),
    (&["cudaDeviceCanAccessPeer", "cudaDeviceGetP2PAttribute"], "all devices reach each other, as over NVLink"),
];
