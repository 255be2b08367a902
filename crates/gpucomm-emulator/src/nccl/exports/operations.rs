//! The functions of NCCL that issue operations, and those that group them.

use std::ffi::{c_int, c_uint, c_void};

use super::{Class, Entered, frame};
use crate::cuda::exports::runtime::cudaEventRecord;
use crate::nccl::basics::coll_config::CollConfig;
use crate::nccl::basics::error::{Failure, cuda};
use crate::nccl::basics::kind::Kind;
use crate::nccl::calls::group;
use crate::nccl::calls::one_sided::Put;
use crate::nccl::calls::one_sided::{self, Where};
use crate::nccl::requests::request::Request;
use crate::nccl::state::redop;
use crate::sys::*;
use crate::table::{Out, exports};

type Error = Failure;
type Status = ncclResult_t;

/// What a function asks for that sets no more of it.
const NOTHING: Request = Request {
    kind: Kind::AllReduce,
    send: std::ptr::null(),
    recv: std::ptr::null_mut(),
    count: 0,
    datatype: ncclDataType_t::ncclInt8,
    redop: ncclRedOp_t::ncclSum,
    peer: 0,
    config: 0,
};

/// Collectives, each as a function without and one with a configuration of the call. All take two buffers, a count and a type,
/// then the parameters that stand here, then a communicator and a stream.
macro_rules! collectives {
    ($($kind:ident: $plain:ident $configured:ident($($more:ident: $type:ty),*);)*) => {
        exports! { COLLECTIVES: abi; $(
            Enqueues fn $plain(
                send: *const c_void,
                recv: *mut c_void,
                count: usize,
                datatype: ncclDataType_t,
                $($more: $type,)*
                comm: ncclComm_t,
                stream: cudaStream_t,
            ) {
                let request = Request { kind: Kind::$kind, send, recv, count, datatype, $($more,)* ..NOTHING };
                group::issue(comm, stream, &request)
            }

            Enqueues(2_31_02) fn $configured(
                send: *const c_void,
                recv: *mut c_void,
                count: usize,
                datatype: ncclDataType_t,
                $($more: $type,)*
                comm: ncclComm_t,
                stream: cudaStream_t,
                config: *const ncclCollConfig_t,
            ) {
                // SAFETY: the caller's pointer, as C declares it: null, or a config made by its initialiser.
                let CollConfig { number: config, event } = unsafe { CollConfig::read(Kind::$kind, config) }?;
                // The event is recorded before the operation, as by NCCL with CUDA before 12.3.
                if !event.is_null() {
                    // SAFETY: the caller's event, as C declares it.
                    match unsafe { cudaEventRecord(event, stream) } {
                        cudaError::cudaSuccess => {}
                        error => return Err(cuda("the event of the launch", error)),
                    }
                }
                let request = Request { kind: Kind::$kind, send, recv, count, datatype, $($more,)* ..NOTHING };
                group::issue(comm, stream, &Request { config, ..request })
            }
        )* }
    };
}

collectives! {
    AllReduce: ncclAllReduce ncclAllReduceConfig(redop: ncclRedOp_t);
    Broadcast: ncclBroadcast ncclBroadcastConfig(peer: c_int);
    Reduce: ncclReduce ncclReduceConfig(redop: ncclRedOp_t, peer: c_int);
    AllGather: ncclAllGather ncclAllGatherConfig();
    ReduceScatter: ncclReduceScatter ncclReduceScatterConfig(redop: ncclRedOp_t);
    AlltoAll: ncclAlltoAll ncclAlltoAllConfig();
    Gather: ncclGather ncclGatherConfig(peer: c_int);
    Scatter: ncclScatter ncclScatterConfig(peer: c_int);
}

exports! { OPERATIONS: abi;
    Enqueues fn ncclSend(
        send: *const c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) {
        group::issue(comm, stream, &Request { kind: Kind::Send, send, count, datatype, peer, ..NOTHING })
    }

    Enqueues fn ncclRecv(
        recv: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) {
        group::issue(comm, stream, &Request { kind: Kind::Recv, recv, count, datatype, peer, ..NOTHING })
    }

    Enqueues(2_29_02) fn ncclPutSignal(
        localbuff: *const c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: c_int,
        peerWin: ncclWindow_t,
        peerWinOffset: usize,
        sigIdx: c_int,
        ctx: c_int,
        flags: c_uint,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) {
        let put = Put { local: localbuff, count, datatype, window: peerWin, offset: peerWinOffset };
        one_sided::give(comm, stream, peer, Where { signal: sigIdx, context: ctx, flags }, Some(put))
    }

    Enqueues(2_29_02) fn ncclSignal(
        peer: c_int,
        sigIdx: c_int,
        ctx: c_int,
        flags: c_uint,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) {
        one_sided::give(comm, stream, peer, Where { signal: sigIdx, context: ctx, flags }, None)
    }

    Enqueues(2_29_02) fn ncclWaitSignal(
        nDesc: c_int,
        signalDescs: *mut ncclWaitSignalDesc_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) {
        let count = usize::try_from(nDesc).unwrap_or(0);
        if signalDescs.is_null() || count == 0 {
            return Err(Failure::argument("there is nothing to wait for"));
        }
        // SAFETY: as C declares it: so many descriptors.
        let wanted = unsafe { std::slice::from_raw_parts(signalDescs.cast_const(), count) };
        one_sided::wait(comm, stream, wanted)
    }

    Any fn ncclRedOpCreatePreMulSum(
        op: Option<Out<ncclRedOp_t>>,
        scalar: *mut c_void,
        datatype: ncclDataType_t,
        residence: ncclScalarResidence_t,
        own: Entered,
    ) {
        own.comm.ensure_settled()?;
        let op = op.ok_or_else(|| Failure::unnoticed("the place for the operator is null"))?;
        // SAFETY: the caller's pointer, as C declares it.
        op.set(unsafe { redop::create(&own.comm.redops, scalar.cast::<u8>().cast_const(), datatype, residence) }?);
        Ok(())
    }

    Any fn ncclRedOpDestroy(op: ncclRedOp_t, own: Entered) { redop::destroy(&own.comm.redops, op) }

    Any fn ncclGroupStart() { group::start() }

    Any fn ncclGroupEnd() { group::end() }

    Any fn ncclGroupSimulateEnd(simInfo: *mut ncclSimInfo_t) {
        if simInfo.is_null() {
            return group::end();
        }
        // SAFETY: not null, and as C declares it, valid for reads and writes.
        let (ended, estimate) = group::end_simulated(unsafe { &*simInfo });
        if let Some(estimate) = estimate {
            // SAFETY: as above.
            unsafe { (*simInfo).estimatedTime = estimate };
        }
        ended
    }
}
