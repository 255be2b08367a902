// Generated from wrapper.h over vendor/include by build/bind.rs. Do not edit: see CONTRIBUTING.md.

unsafe extern "C" {
    pub fn cudaGetErrorName(error: cudaError_t) -> *const ::std::os::raw::c_char;
    pub fn cudaGetErrorString(error: cudaError_t) -> *const ::std::os::raw::c_char;
    pub fn cudaGetLastError() -> cudaError_t;
    pub fn cudaDriverGetVersion(
        driverVersion: *mut ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn cudaRuntimeGetVersion(
        runtimeVersion: *mut ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn cudaGetDeviceCount(count: *mut ::std::os::raw::c_int) -> cudaError_t;
    pub fn cudaGetDevice(device: *mut ::std::os::raw::c_int) -> cudaError_t;
    pub fn cudaSetDevice(device: ::std::os::raw::c_int) -> cudaError_t;
    pub fn cudaDeviceGetAttribute(
        value: *mut ::std::os::raw::c_int,
        attr: cudaDeviceAttr,
        device: ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn cudaDeviceGetPCIBusId(
        pciBusId: *mut ::std::os::raw::c_char,
        len: ::std::os::raw::c_int,
        device: ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn cudaDeviceGetByPCIBusId(
        device: *mut ::std::os::raw::c_int,
        pciBusId: *const ::std::os::raw::c_char,
    ) -> cudaError_t;
    pub fn cudaDeviceCanAccessPeer(
        canAccessPeer: *mut ::std::os::raw::c_int,
        device: ::std::os::raw::c_int,
        peerDevice: ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn cudaDeviceEnablePeerAccess(
        peerDevice: ::std::os::raw::c_int,
        flags: ::std::os::raw::c_uint,
    ) -> cudaError_t;
    pub fn cudaDeviceGetP2PAttribute(
        value: *mut ::std::os::raw::c_int,
        attr: cudaDeviceP2PAttr,
        srcDevice: ::std::os::raw::c_int,
        dstDevice: ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn cudaDeviceGetStreamPriorityRange(
        leastPriority: *mut ::std::os::raw::c_int,
        greatestPriority: *mut ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn cudaDeviceSetLimit(limit: cudaLimit, value: usize) -> cudaError_t;
    pub fn cudaDeviceGetLimit(pValue: *mut usize, limit: cudaLimit) -> cudaError_t;
    pub fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> cudaError_t;
    pub fn cudaStreamCreateWithPriority(
        pStream: *mut cudaStream_t,
        flags: ::std::os::raw::c_uint,
        priority: ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn cudaStreamDestroy(stream: cudaStream_t) -> cudaError_t;
    pub fn cudaStreamGetPriority(
        hStream: cudaStream_t,
        priority: *mut ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn cudaStreamGetFlags(
        hStream: cudaStream_t,
        flags: *mut ::std::os::raw::c_uint,
    ) -> cudaError_t;
    pub fn cudaStreamQuery(stream: cudaStream_t) -> cudaError_t;
    pub fn cudaStreamWaitEvent(
        stream: cudaStream_t,
        event: cudaEvent_t,
        flags: ::std::os::raw::c_uint,
    ) -> cudaError_t;
    pub fn cudaStreamBeginCapture(
        stream: cudaStream_t,
        mode: cudaStreamCaptureMode,
    ) -> cudaError_t;
    pub fn cudaThreadExchangeStreamCaptureMode(
        mode: *mut cudaStreamCaptureMode,
    ) -> cudaError_t;
    pub fn cudaStreamEndCapture(
        stream: cudaStream_t,
        pGraph: *mut cudaGraph_t,
    ) -> cudaError_t;
    pub fn cudaStreamIsCapturing(
        stream: cudaStream_t,
        pCaptureStatus: *mut cudaStreamCaptureStatus,
    ) -> cudaError_t;
    pub fn cudaGraphGetNodes(
        graph: cudaGraph_t,
        nodes: *mut cudaGraphNode_t,
        numNodes: *mut usize,
    ) -> cudaError_t;
    pub fn cudaGraphInstantiate(
        pGraphExec: *mut cudaGraphExec_t,
        graph: cudaGraph_t,
        flags: ::std::os::raw::c_ulonglong,
    ) -> cudaError_t;
    pub fn cudaGraphExecUpdate(
        hGraphExec: cudaGraphExec_t,
        hGraph: cudaGraph_t,
        resultInfo: *mut cudaGraphExecUpdateResultInfo,
    ) -> cudaError_t;
    pub fn cudaGraphUpload(
        graphExec: cudaGraphExec_t,
        stream: cudaStream_t,
    ) -> cudaError_t;
    pub fn cudaGraphLaunch(
        graphExec: cudaGraphExec_t,
        stream: cudaStream_t,
    ) -> cudaError_t;
    pub fn cudaGraphExecDestroy(exec: cudaGraphExec_t) -> cudaError_t;
    pub fn cudaGraphDestroy(graph: cudaGraph_t) -> cudaError_t;
    pub fn cudaLaunchHostFunc(
        stream: cudaStream_t,
        fn_: cudaHostFn_t,
        userData: *mut ::std::os::raw::c_void,
    ) -> cudaError_t;
    pub fn cudaEventCreateWithFlags(
        event: *mut cudaEvent_t,
        flags: ::std::os::raw::c_uint,
    ) -> cudaError_t;
    pub fn cudaEventDestroy(event: cudaEvent_t) -> cudaError_t;
    pub fn cudaEventRecord(event: cudaEvent_t, stream: cudaStream_t) -> cudaError_t;
    pub fn cudaEventQuery(event: cudaEvent_t) -> cudaError_t;
    pub fn cudaEventElapsedTime(
        ms: *mut f32,
        start: cudaEvent_t,
        end: cudaEvent_t,
    ) -> cudaError_t;
    pub fn cudaMalloc(
        devPtr: *mut *mut ::std::os::raw::c_void,
        size: usize,
    ) -> cudaError_t;
    pub fn cudaFree(devPtr: *mut ::std::os::raw::c_void) -> cudaError_t;
    pub fn cudaMallocFromPoolAsync(
        ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
        memPool: cudaMemPool_t,
        stream: cudaStream_t,
    ) -> cudaError_t;
    pub fn cudaFreeAsync(
        devPtr: *mut ::std::os::raw::c_void,
        hStream: cudaStream_t,
    ) -> cudaError_t;
    pub fn cudaHostAlloc(
        pHost: *mut *mut ::std::os::raw::c_void,
        size: usize,
        flags: ::std::os::raw::c_uint,
    ) -> cudaError_t;
    pub fn cudaFreeHost(ptr: *mut ::std::os::raw::c_void) -> cudaError_t;
    pub fn cudaMemcpyAsync(
        dst: *mut ::std::os::raw::c_void,
        src: *const ::std::os::raw::c_void,
        count: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t;
    pub fn cudaMemcpyPeerAsync(
        dst: *mut ::std::os::raw::c_void,
        dstDevice: ::std::os::raw::c_int,
        src: *const ::std::os::raw::c_void,
        srcDevice: ::std::os::raw::c_int,
        count: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;
    pub fn cudaMemsetAsync(
        devPtr: *mut ::std::os::raw::c_void,
        value: ::std::os::raw::c_int,
        count: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;
    pub fn ncclGetVersion(version: *mut ::std::os::raw::c_int) -> ncclResult_t;
    pub fn ncclGetUniqueId(uniqueId: *mut ncclUniqueId) -> ncclResult_t;
    pub fn ncclGetErrorString(result: ncclResult_t) -> *const ::std::os::raw::c_char;
    pub fn ncclGetLastError(comm: ncclComm_t) -> *const ::std::os::raw::c_char;
    pub fn ncclCommInitRankConfig(
        comm: *mut ncclComm_t,
        nranks: ::std::os::raw::c_int,
        commId: ncclUniqueId,
        rank: ::std::os::raw::c_int,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclCommInitRankScalable"]
    pub fn ncclCommInitRankScalable(
        newcomm: *mut ncclComm_t,
        nranks: ::std::os::raw::c_int,
        myrank: ::std::os::raw::c_int,
        nId: ::std::os::raw::c_int,
        commIds: *mut ncclUniqueId,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;
    pub fn ncclCommSplit(
        comm: ncclComm_t,
        color: ::std::os::raw::c_int,
        key: ::std::os::raw::c_int,
        newcomm: *mut ncclComm_t,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclCommShrink"]
    pub fn ncclCommShrink(
        comm: ncclComm_t,
        excludeRanksList: *mut ::std::os::raw::c_int,
        excludeRanksCount: ::std::os::raw::c_int,
        newcomm: *mut ncclComm_t,
        config: *mut ncclConfig_t,
        shrinkFlags: ::std::os::raw::c_int,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclCommGetUniqueId"]
    pub fn ncclCommGetUniqueId(
        comm: ncclComm_t,
        uniqueId: *mut ncclUniqueId,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclCommGrow"]
    pub fn ncclCommGrow(
        comm: ncclComm_t,
        nRanks: ::std::os::raw::c_int,
        uniqueId: *const ncclUniqueId,
        rank: ::std::os::raw::c_int,
        newcomm: *mut ncclComm_t,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;
    pub fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t;
    pub fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t;
    pub fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclCommRevoke"]
    pub fn ncclCommRevoke(
        comm: ncclComm_t,
        revokeFlags: ::std::os::raw::c_int,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclCommSuspend"]
    pub fn ncclCommSuspend(
        comm: ncclComm_t,
        flags: ::std::os::raw::c_int,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclCommResume"]
    pub fn ncclCommResume(comm: ncclComm_t) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclCommMemStats"]
    pub fn ncclCommMemStats(
        comm: ncclComm_t,
        stat: ncclCommMemStat_t,
        value: *mut u64,
    ) -> ncclResult_t;
    pub fn ncclCommGetAsyncError(
        comm: ncclComm_t,
        asyncError: *mut ncclResult_t,
    ) -> ncclResult_t;
    pub fn ncclCommCount(
        comm: ncclComm_t,
        count: *mut ::std::os::raw::c_int,
    ) -> ncclResult_t;
    pub fn ncclCommCuDevice(
        comm: ncclComm_t,
        device: *mut ::std::os::raw::c_int,
    ) -> ncclResult_t;
    pub fn ncclCommUserRank(
        comm: ncclComm_t,
        rank: *mut ::std::os::raw::c_int,
    ) -> ncclResult_t;
    pub fn ncclMemAlloc(
        ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
    ) -> ncclResult_t;
    pub fn ncclMemFree(ptr: *mut ::std::os::raw::c_void) -> ncclResult_t;
    pub fn ncclCommRegister(
        comm: ncclComm_t,
        buff: *mut ::std::os::raw::c_void,
        size: usize,
        handle: *mut *mut ::std::os::raw::c_void,
    ) -> ncclResult_t;
    pub fn ncclCommDeregister(
        comm: ncclComm_t,
        handle: *mut ::std::os::raw::c_void,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclCommWindowRegister"]
    pub fn ncclCommWindowRegister(
        comm: ncclComm_t,
        buff: *mut ::std::os::raw::c_void,
        size: usize,
        win: *mut ncclWindow_t,
        winFlags: ::std::os::raw::c_int,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclCommWindowDeregister"]
    pub fn ncclCommWindowDeregister(comm: ncclComm_t, win: ncclWindow_t) -> ncclResult_t;
    pub fn ncclRedOpCreatePreMulSum(
        op: *mut ncclRedOp_t,
        scalar: *mut ::std::os::raw::c_void,
        datatype: ncclDataType_t,
        residence: ncclScalarResidence_t,
        comm: ncclComm_t,
    ) -> ncclResult_t;
    pub fn ncclRedOpDestroy(op: ncclRedOp_t, comm: ncclComm_t) -> ncclResult_t;
    pub fn ncclReduce(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        root: ::std::os::raw::c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    pub fn ncclBroadcast(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: ::std::os::raw::c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    pub fn ncclAllReduce(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    pub fn ncclReduceScatter(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        recvcount: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    pub fn ncclAllGather(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        sendcount: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclAlltoAll"]
    pub fn ncclAlltoAll(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclGather"]
    pub fn ncclGather(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: ::std::os::raw::c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclScatter"]
    pub fn ncclScatter(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: ::std::os::raw::c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclAllReduceConfig"]
    pub fn ncclAllReduceConfig(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclBroadcastConfig"]
    pub fn ncclBroadcastConfig(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: ::std::os::raw::c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclReduceConfig"]
    pub fn ncclReduceConfig(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        root: ::std::os::raw::c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclAllGatherConfig"]
    pub fn ncclAllGatherConfig(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        sendcount: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclReduceScatterConfig"]
    pub fn ncclReduceScatterConfig(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        recvcount: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclAlltoAllConfig"]
    pub fn ncclAlltoAllConfig(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclGatherConfig"]
    pub fn ncclGatherConfig(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: ::std::os::raw::c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclScatterConfig"]
    pub fn ncclScatterConfig(
        sendbuff: *const ::std::os::raw::c_void,
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: ::std::os::raw::c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;
    pub fn ncclSend(
        sendbuff: *const ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: ::std::os::raw::c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    pub fn ncclRecv(
        recvbuff: *mut ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: ::std::os::raw::c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclPutSignal"]
    pub fn ncclPutSignal(
        localbuff: *const ::std::os::raw::c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: ::std::os::raw::c_int,
        peerWin: ncclWindow_t,
        peerWinOffset: usize,
        sigIdx: ::std::os::raw::c_int,
        ctx: ::std::os::raw::c_int,
        flags: ::std::os::raw::c_uint,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclSignal"]
    pub fn ncclSignal(
        peer: ::std::os::raw::c_int,
        sigIdx: ::std::os::raw::c_int,
        ctx: ::std::os::raw::c_int,
        flags: ::std::os::raw::c_uint,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclWaitSignal"]
    pub fn ncclWaitSignal(
        nDesc: ::std::os::raw::c_int,
        signalDescs: *mut ncclWaitSignalDesc_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclWinGetUserPtr"]
    pub fn ncclWinGetUserPtr(
        comm: ncclComm_t,
        win: ncclWindow_t,
        outUserPtr: *mut *mut ::std::os::raw::c_void,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclSetEncryption"]
    pub fn ncclSetEncryption(config: *const ncclEncryptionConfig_t) -> ncclResult_t;
    pub fn ncclGroupStart() -> ncclResult_t;
    pub fn ncclGroupEnd() -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclGroupSimulateEnd"]
    pub fn ncclGroupSimulateEnd(simInfo: *mut ncclSimInfo_t) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamBind"]
    pub fn ncclParamBind(
        out: *mut ncclParamHandle_t,
        key: *const ::std::os::raw::c_char,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetI8"]
    pub fn ncclParamGetI8(h: ncclParamHandle_t, out: *mut i8) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetI16"]
    pub fn ncclParamGetI16(h: ncclParamHandle_t, out: *mut i16) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetI32"]
    pub fn ncclParamGetI32(h: ncclParamHandle_t, out: *mut i32) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetI64"]
    pub fn ncclParamGetI64(h: ncclParamHandle_t, out: *mut i64) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetU8"]
    pub fn ncclParamGetU8(h: ncclParamHandle_t, out: *mut u8) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetU16"]
    pub fn ncclParamGetU16(h: ncclParamHandle_t, out: *mut u16) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetU32"]
    pub fn ncclParamGetU32(h: ncclParamHandle_t, out: *mut u32) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetU64"]
    pub fn ncclParamGetU64(h: ncclParamHandle_t, out: *mut u64) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetStr"]
    pub fn ncclParamGetStr(
        h: ncclParamHandle_t,
        out: *mut *const ::std::os::raw::c_char,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGet"]
    pub fn ncclParamGet(
        h: ncclParamHandle_t,
        out: *mut ::std::os::raw::c_void,
        maxLen: ::std::os::raw::c_int,
        len: *mut ::std::os::raw::c_int,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetParameter"]
    pub fn ncclParamGetParameter(
        key: *const ::std::os::raw::c_char,
        value: *mut *const ::std::os::raw::c_char,
        valueLen: *mut ::std::os::raw::c_int,
    ) -> ncclResult_t;
    #[link_name = "\u{1}gpucomm_ncclParamGetAllParameterKeys"]
    pub fn ncclParamGetAllParameterKeys(
        table: *mut *mut *const ::std::os::raw::c_char,
        tableLen: *mut ::std::os::raw::c_int,
    ) -> ncclResult_t;
    pub fn gpucommDeviceInfo(
        info: *mut gpucommDeviceInfo_t,
        device: ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn gpucommPointerInfo(
        info: *mut gpucommPointerInfo_t,
        ptr: *const ::std::os::raw::c_void,
    ) -> cudaError_t;
    pub fn gpucommPoolCreate(
        pool: *mut cudaMemPool_t,
        device: ::std::os::raw::c_int,
    ) -> cudaError_t;
    pub fn gpucommDriverEntryPoint(
        function: *mut *mut ::std::os::raw::c_void,
        symbol: *const ::std::os::raw::c_char,
        version: ::std::os::raw::c_uint,
    ) -> cudaError_t;
    pub fn gpucommNcclProperties(
        comm: ncclComm_t,
        properties: *mut gpucommNcclProperties_t,
    ) -> ncclResult_t;
    pub fn gpucommNcclLsaPointer(
        window: ncclWindow_t,
        offset: usize,
        lsaRank: ::std::os::raw::c_int,
        address: *mut *mut ::std::os::raw::c_void,
    ) -> ncclResult_t;
    pub fn gpucommNcclPeerPointer(
        window: ncclWindow_t,
        offset: usize,
        peer: ::std::os::raw::c_int,
        address: *mut *mut ::std::os::raw::c_void,
    ) -> ncclResult_t;
    pub fn gpucommNcclMultimemPointer(
        window: ncclWindow_t,
        offset: usize,
        address: *mut *mut ::std::os::raw::c_void,
    ) -> ncclResult_t;
    pub fn gpucommNcclConfigInit(config: *mut ncclConfig_t);
    pub fn gpucommNcclSimInfoInit(info: *mut ncclSimInfo_t);
    pub fn gpucommNcclCollConfigInit(config: *mut ncclCollConfig_t);
    pub fn gpucommNcclEncryptionConfigInit(config: *mut ncclEncryptionConfig_t);
}
