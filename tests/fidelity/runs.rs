//! What was run on GPUs as it runs on the emulator, and gave the same answers: the record that `docs/emulator.md` rests on.

/// What was run.
#[derive(Debug, Clone, Copy)]
pub enum What {
    /// Test programs of this crate.
    Programs(&'static [&'static str]),
    /// Calls of these functions by a program in C, whose answers the emulator's unit tests hold.
    Calls(&'static [&'static str]),
}

#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub date: &'static str,
    pub gpus: &'static str,
    /// The version of NCCL, or of CUDA where NCCL had no part.
    pub nccl: &'static str,
    /// Of this crate; empty where only C was run.
    pub commit: &'static str,
    pub what: What,
    /// Functions that the interface has got since.
    pub newer: &'static [&'static str],
    /// In docs/measurements.
    pub page: &'static str,
}

/// Called by test programs since the last run of 2026-11-22 only.
const SINCE_ALL: &[&str] = &[
    "cudaGraphGetNodes",
    "cudaGraphInstantiate",
    "cudaGraphExecUpdate",
    "cudaGraphUpload",
    "cudaGraphLaunch",
    "cudaGraphExecDestroy",
    "ncclPutSignal",
    "ncclSignal",
    "ncclWaitSignal",
    "ncclWinGetUserPtr",
    "gpucommNcclProperties",
    "ncclCommGetUniqueId",
    "ncclCommGrow",
    "ncclCommSuspend",
    "ncclCommResume",
    "ncclCommMemStats",
    "ncclGroupSimulateEnd",
    "gpucommNcclSimInfoInit",
    "gpucommNcclLsaPointer",
    "gpucommNcclPeerPointer",
];

/// Called by test programs since that run, but for the last one.
const SINCE_GRAPHS: &[&str] = &[
    "cudaGraphGetNodes",
    "cudaGraphInstantiate",
    "cudaGraphExecUpdate",
    "cudaGraphUpload",
    "cudaGraphLaunch",
    "cudaGraphExecDestroy",
];

/// Newer than any NCCL that ran, or than the last run, or, with NVLS off, nothing but an error.
const NEVER: &[&str] = &[
    "ncclAllReduceConfig",
    "ncclBroadcastConfig",
    "ncclReduceConfig",
    "ncclAllGatherConfig",
    "ncclReduceScatterConfig",
    "ncclAlltoAllConfig",
    "ncclGatherConfig",
    "ncclScatterConfig",
    "gpucommNcclCollConfigInit",
    "ncclSetEncryption",
    "gpucommNcclEncryptionConfigInit",
    "gpucommNcclMultimemPointer",
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
];

const STARTS: [&str; 2] = ["ncclCommShrink", "ncclCommInitRankScalable"];

/// Since b7eade7.
const SINCE_NINE: &[&str] = &STARTS;

/// Which random programs call since they have graphs.
const CAPTURES: [&str; 3] = ["cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphDestroy"];

/// Since e407662 and 5cc701d, of which random programs ran.
const SINCE_EIGHT: &[&str] = &[STARTS[0], STARTS[1], "ncclCommCuDevice", CAPTURES[0], CAPTURES[1], CAPTURES[2]];

/// Since 71bc38c.
const SINCE_FOUR: &[&str] = &[STARTS[0], STARTS[1], "ncclCommRegister", "ncclCommDeregister", "ncclCommCuDevice"];

/// Since 40fb03e and 7a900fb.
const SINCE_TWO: &[&str] = &[
    STARTS[0],
    STARTS[1],
    "ncclCommRegister",
    "ncclCommDeregister",
    "cudaDeviceGetByPCIBusId",
    "gpucommPointerInfo",
    "ncclCommCuDevice",
];

/// The same, of random programs.
const SINCE_TWO_RANDOM: &[&str] = &[
    CAPTURES[0],
    CAPTURES[1],
    CAPTURES[2],
    STARTS[0],
    STARTS[1],
    "ncclCommRegister",
    "ncclCommDeregister",
    "cudaDeviceGetByPCIBusId",
    "gpucommPointerInfo",
    "ncclCommCuDevice",
];

pub const ALL: &[Run] = &[
    Run {
        date: "2026-11-22",
        gpus: "2 H200",
        nccl: "2.28.9",
        commit: "40fb03e",
        what: What::Programs(&["conformance"]),
        newer: SINCE_TWO,
        page: "2026-11-22-h200-two.md",
    },
    Run {
        date: "2026-11-22",
        gpus: "2 H200",
        nccl: "2.30.7",
        commit: "40fb03e",
        what: What::Programs(&["random"]),
        newer: SINCE_TWO_RANDOM,
        page: "2026-11-22-h200-two.md",
    },
    Run {
        date: "2026-11-22",
        gpus: "4 H200",
        nccl: "2.28.9",
        commit: "7a900fb",
        what: What::Programs(&["conformance", "random"]),
        newer: SINCE_TWO,
        page: "2026-11-22-h200-four.md",
    },
    Run {
        date: "2026-11-22",
        gpus: "4 H200",
        nccl: "2.28.9",
        commit: "71bc38c",
        what: What::Programs(&["cuda", "random"]),
        newer: SINCE_FOUR,
        page: "2026-11-22-h200-four.md",
    },
    Run {
        date: "2026-11-22",
        gpus: "1 H100",
        nccl: "CUDA 13.0",
        commit: "",
        what: What::Calls(&[
            "cudaStreamBeginCapture",
            "cudaStreamEndCapture",
            "cudaStreamIsCapturing",
            "cudaGraphInstantiate",
            "cudaGraphLaunch",
            "cudaGraphExecDestroy",
            "cudaGraphDestroy",
        ]),
        newer: &[],
        page: "2026-11-22-h100-captures.md",
    },
    Run {
        date: "2026-11-22",
        gpus: "4 H200",
        nccl: "CUDA 13.0",
        commit: "",
        what: What::Calls(&["cudaMemcpyAsync", "cudaMemcpyPeerAsync", "cudaMemsetAsync", "gpucommDriverEntryPoint"]),
        newer: &[],
        page: "2026-11-22-h200-access.md",
    },
    Run {
        date: "2026-11-22",
        gpus: "2 H200",
        nccl: "2.28.9",
        commit: "e407662",
        what: What::Programs(&["random"]),
        newer: SINCE_EIGHT,
        page: "2026-11-22-h200-ends.md",
    },
    Run {
        date: "2026-11-22",
        gpus: "4 H200",
        nccl: "2.28.9",
        commit: "5cc701d",
        what: What::Programs(&["random"]),
        newer: SINCE_EIGHT,
        page: "2026-11-22-h200-differential.md",
    },
    Run {
        date: "2026-11-22",
        gpus: "2 H200",
        nccl: "2.28.9",
        commit: "b7eade7",
        what: What::Programs(&["conformance", "cuda", "random"]),
        newer: SINCE_NINE,
        page: "2026-11-22-h200-vmm.md",
    },
    Run {
        date: "2026-11-22",
        gpus: "2 H200",
        nccl: "2.28.9",
        commit: "3883245",
        what: What::Programs(&["conformance", "random"]),
        newer: &[],
        page: "2026-11-22-h200-life.md",
    },
    Run {
        date: "2026-11-23",
        gpus: "2 H200",
        nccl: "2.30.7",
        commit: "46195d2",
        what: What::Programs(&["conformance", "random"]),
        newer: SINCE_GRAPHS,
        page: "2026-11-23-h200-newer.md",
    },
    Run {
        date: "2026-11-23",
        gpus: "1 H200",
        nccl: "2.30.7",
        commit: "7fb397c",
        what: What::Programs(&["conformance"]),
        newer: &[],
        page: "2026-11-23-h200-one.md",
    },
];

impl Run {
    /// The functions that C called.
    pub fn functions(&self) -> &'static [&'static str] {
        match self.what {
            What::Programs(_) => &[],
            What::Calls(functions) => functions,
        }
    }

    /// Whether a function that these test programs go through had a part in it.
    pub fn has(&self, function: &str, programs: &[&str]) -> bool {
        match self.what {
            What::Calls(functions) => functions.contains(&function),
            What::Programs(ran) => {
                let since = if self.date < "2026-11-23" { SINCE_ALL } else { &[] };
                let newer = [self.newer, since, NEVER].concat();
                ran.iter().any(|one| programs.contains(one)) && !newer.contains(&function)
            }
        }
    }

    /// What was run, in words.
    pub fn what(&self) -> String {
        match self.what {
            What::Programs(names) => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
            What::Calls(_) => "the calls, in C".to_owned(),
        }
    }
}
