//! What each function does to captures: the one table of the C functions of this half, from the source of NCCL 2.28.9.

use crate::bugs::Nccl;
use crate::cuda::core::capture;
use crate::sys::cudaError;

/// What a function does, seen from a stream that is being captured. NCCL allocates, and asks about its own streams, in relaxed mode
/// where it expects captures: in what may be captured. Elsewhere it makes calls that CUDA calls potentially unsafe as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Makes no such call: may be called at any time.
    Any,
    /// Puts work on the stream that it is given: part of the graph, where that is being captured.
    Enqueues,
    /// Makes such calls on the thread that calls it, and fails with them. What its job does beside, if it has one, too.
    Unsafe,
    /// Its job makes them: on the thread that ends the group where it is the only one and the communicator blocks, else on a thread of
    /// NCCL, whose mode is the default whatever that of the caller is. The call fails with them.
    Job,
    /// Makes them to wait, and takes a wait that is forbidden for one that is over.
    Blind,
}

/// A C function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// The version of NCCL that brought it; those that the emulator cannot stand for count for none.
    pub(crate) first: Nccl,
}

impl Function {
    /// Makes the calls that are potentially unsafe: fails, and spoils the captures, where the thread must heed some.
    pub(crate) fn unsafe_calls(self) -> Result<(), cudaError> {
        debug_assert!(!matches!(self.class, Class::Any | Class::Enqueues), "{} makes none", self.name);
        capture::check()
    }
}

macro_rules! functions {
    ($($class:ident: $($name:ident $(($first:literal))?)*;)*) => {
        /// The functions, by their names.
        #[allow(non_upper_case_globals, reason = "they are named as in C")]
        pub(crate) mod functions {
            use super::{Class, Function};

            $($(pub(crate) const $name: Function =
                Function { name: stringify!($name), class: Class::$class, first: 0 $(+ $first)? };)*)*
        }

        #[cfg(test)]
        const ALL: &[Function] = &[$($(functions::$name),*),*];
    };
}

functions! {
    Any:
        ncclCommCount ncclCommCuDevice ncclCommGetAsyncError ncclCommGetUniqueId(2_29_02) ncclCommRegister ncclCommUserRank ncclGetUniqueId ncclGetVersion ncclGroupEnd ncclGroupSimulateEnd
        ncclGroupStart ncclRedOpCreatePreMulSum ncclRedOpDestroy ncclWinGetUserPtr(2_29_02)
        gpucommNcclProperties(2_29_07) gpucommNcclLsaPointer(2_29_02) gpucommNcclPeerPointer(2_29_02)
        gpucommNcclMultimemPointer(2_29_02) ncclCommMemStats(2_29_07) ncclSetEncryption(2_32_03)
        ncclParamBind(2_30_04) ncclParamGetI8(2_30_04) ncclParamGetI16(2_30_04) ncclParamGetI32(2_30_04) ncclParamGetI64(2_30_04)
        ncclParamGetU8(2_30_04) ncclParamGetU16(2_30_04) ncclParamGetU32(2_30_04) ncclParamGetU64(2_30_04)
        ncclParamGetStr(2_30_04) ncclParamGet(2_30_04) ncclParamGetParameter(2_30_04)
        ncclParamGetAllParameterKeys(2_30_04);
    Enqueues:
        ncclAllGather ncclAllReduce ncclAlltoAll ncclBroadcast ncclGather ncclPutSignal(2_29_02) ncclRecv ncclReduce
        ncclReduceScatter ncclScatter ncclSend ncclSignal(2_29_02) ncclWaitSignal(2_29_02)
        ncclAllReduceConfig(2_31_02) ncclBroadcastConfig(2_31_02) ncclReduceConfig(2_31_02) ncclAllGatherConfig(2_31_02)
        ncclReduceScatterConfig(2_31_02) ncclAlltoAllConfig(2_31_02) ncclGatherConfig(2_31_02) ncclScatterConfig(2_31_02);
    Unsafe:
        ncclCommDeregister ncclCommGrow(2_29_02) ncclCommInitRankConfig ncclCommInitRankScalable ncclMemAlloc ncclMemFree;
    Job:
        ncclCommResume(2_29_07) ncclCommRevoke ncclCommShrink ncclCommSplit ncclCommSuspend(2_29_07) ncclCommWindowRegister;
    Blind:
        ncclCommAbort ncclCommDestroy ncclCommFinalize ncclCommWindowDeregister;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that only look up texts, or fill a struct in, need no frame, and so no class.
    const WITHOUT: [&str; 2] = ["ncclGetErrorString", "ncclGetLastError"];

    #[test]
    fn every_function_has_one_class() {
        let functions = gpucomm_abi::text::CUDA_NCCL.split("pub fn ").skip(1).filter_map(|text| text.split('(').next());
        let declared = functions.filter(|name| name.starts_with("nccl"));
        let count = |name: &str| ALL.iter().filter(|function| function.name == name).count();
        let mut found = 0;
        for name in declared.filter(|name| !WITHOUT.contains(name)) {
            assert_eq!(count(name), 1, "{name}");
            found += 1;
        }
        let of_nccl = ALL.iter().filter(|function| function.name.starts_with("nccl"));
        assert!(found >= of_nccl.count(), "too few functions: {found}");
        assert!(ALL.iter().all(|function| count(function.name) == 1));
    }
}
