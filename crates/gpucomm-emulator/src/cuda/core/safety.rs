//! What each function does to captures: the one table of the C functions of this half.

/// What a function does, seen from a stream that is being captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Concerns no work: may be called at any time.
    Any,
    /// The same, and does without the context of a device: every other function of the runtime sets up that of the current device.
    Free,
    /// Puts something into the order of the stream that it is given: part of the graph, where that is being captured, if a graph can hold
    /// it.
    Enqueues,
    /// Concerns work of the whole device, or asks for its progress, which a capture only pretends to enqueue. CUDA calls these
    /// potentially unsafe: they fail, and spoil the captures that the calling thread must heed.
    Unsafe,
    /// The same, once it is known that what it asks about is no part of a capture itself: it sees to that.
    Asks,
}

/// A C function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) class: Class,
}

macro_rules! functions {
    ($($class:ident: $($name:ident)*;)*) => {
        /// The functions, by their names.
        #[allow(non_upper_case_globals, reason = "they are named as in C")]
        pub(crate) mod functions {
            use super::{Class, Function};

            $($(pub(crate) const $name: Function = Function { name: stringify!($name), class: Class::$class };)*)*
        }

        #[cfg(test)]
        const ALL: &[Function] = &[$($(functions::$name),*),*];
    };
}

functions! {
    Any:
        cudaDeviceEnablePeerAccess cudaDeviceGetStreamPriorityRange cudaEventCreateWithFlags cudaEventDestroy cudaEventElapsedTime
        cudaGraphDestroy cudaGraphExecDestroy cudaGraphGetNodes cudaMemGetInfo cudaStreamBeginCapture cudaStreamCreateWithPriority
        cudaStreamDestroy cudaStreamEndCapture cudaStreamGetFlags cudaStreamGetPriority cudaStreamIsCapturing gpucommPointerInfo gpucommPoolCreate;
    Free:
        cudaDeviceCanAccessPeer cudaDeviceGetAttribute cudaDeviceGetByPCIBusId cudaDeviceGetP2PAttribute cudaDeviceGetPCIBusId
        cudaDriverGetVersion cudaGetDevice cudaGetDeviceCount cudaRuntimeGetVersion cudaSetDevice cudaThreadExchangeStreamCaptureMode
        gpucommDeviceInfo gpucommDriverEntryPoint
        cuCtxGetCurrent cuDeviceGetAttribute cuDevicePrimaryCtxGetState cuMemAddressFree cuMemAddressReserve cuMemCreate cuMemExportToShareableHandle cuMemGetAddressRange cuMemGetAccess cuMemGetAllocationGranularity
        cuMemGetAllocationPropertiesFromHandle cuMemImportFromShareableHandle cuMemMap cuMemRelease cuMemRetainAllocationHandle
        cuMemSetAccess cuMemUnmap cuMulticastAddDevice cuMulticastBindAddr cuMulticastBindMem cuMulticastCreate
        cuMulticastGetGranularity cuMulticastUnbind;
    Enqueues:
        cudaEventRecord cudaFreeAsync cudaGraphLaunch cudaGraphUpload cudaLaunchHostFunc cudaMallocFromPoolAsync cudaMemcpyAsync
        cudaMemcpyPeerAsync cudaMemsetAsync cudaStreamWaitEvent cuMemsetD16Async cuMemsetD32Async cuMemsetD2D32Async;
    Unsafe:
        cudaFree cudaFreeHost cudaGraphExecUpdate cudaGraphInstantiate cudaHostAlloc cudaMalloc cudaStreamQuery;
    Asks:
        cudaEventQuery;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that only look up texts need no frame, and so no class.
    const WITHOUT: [&str; 3] = ["cudaGetErrorName", "cudaGetErrorString", "cudaGetLastError"];

    #[test]
    fn every_function_has_one_class() {
        let functions = gpucomm_abi::text::CUDA_NCCL.split("pub fn ").skip(1).filter_map(|text| text.split('(').next());
        let declared = functions.filter(|name| name.starts_with("cuda"));
        let count = |name: &str| ALL.iter().filter(|function| function.name == name).count();
        let mut found = 0;
        for name in declared.filter(|name| !WITHOUT.contains(name)) {
            assert_eq!(count(name), 1, "{name}");
            found += 1;
        }
        assert!(found > 30, "too few functions: {found}");
        assert!(ALL.iter().all(|function| count(function.name) == 1));
    }
}
