//! Graphs: what was captured.

use super::{Out, launch, runtime};
use crate::cuda::core::graph;
use crate::cuda::core::plan::Change;
use crate::cuda::core::safety::functions;
use crate::report;
use crate::sys::*;

pub unsafe extern "C" fn cudaGraphGetNodes(
    handle: cudaGraph_t,
    nodes: *mut cudaGraphNode_t,
    count: *mut usize,
) -> cudaError_t {
    runtime(functions::cudaGraphGetNodes, || {
        // SAFETY: as C declares it: a `size_t` to write to, or null.
        let out = unsafe { Out::new(count)? };
        let number = graph::nodes(handle)?;
        if !nodes.is_null() {
            report::line("cudaGraphGetNodes: the emulator tells how many nodes there are, and not which");
            return Err(cudaError::cudaErrorNotSupported);
        }
        out.set(number);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaGraphDestroy(handle: cudaGraph_t) -> cudaError_t {
    runtime(functions::cudaGraphDestroy, || graph::destroy(handle))
}

pub unsafe extern "C" fn cudaGraphInstantiate(
    exec: *mut cudaGraphExec_t,
    handle: cudaGraph_t,
    flags: std::ffi::c_ulonglong,
) -> cudaError_t {
    runtime(functions::cudaGraphInstantiate, || {
        // SAFETY: as C declares it: a handle to write to, or null.
        let out = unsafe { Out::new(exec)? };
        out.set(graph::instantiate(handle, flags)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaGraphExecUpdate(
    exec: cudaGraphExec_t,
    handle: cudaGraph_t,
    info: *mut cudaGraphExecUpdateResultInfo,
) -> cudaError_t {
    runtime(functions::cudaGraphExecUpdate, || {
        // SAFETY: as C declares it: a place to write to, or null.
        let out = unsafe { Out::new(info)? };
        let done = graph::update(exec, handle);
        let result = match done {
            Err(_) => cudaGraphExecUpdateResult::cudaGraphExecUpdateError,
            Ok(None) => cudaGraphExecUpdateResult::cudaGraphExecUpdateSuccess,
            Ok(Some(Change::Topology)) => cudaGraphExecUpdateResult::cudaGraphExecUpdateErrorTopologyChanged,
            Ok(Some(Change::Kind)) => cudaGraphExecUpdateResult::cudaGraphExecUpdateErrorNodeTypeChanged,
            Ok(Some(Change::Parameters)) => cudaGraphExecUpdateResult::cudaGraphExecUpdateErrorParametersChanged,
        };
        let none = std::ptr::null_mut();
        out.set(cudaGraphExecUpdateResultInfo { result, errorNode: none, errorFromNode: none });
        done?.map_or(Ok(()), |_| Err(cudaError::cudaErrorGraphExecUpdateFailure))
    })
}

pub unsafe extern "C" fn cudaGraphUpload(exec: cudaGraphExec_t, handle: cudaStream_t) -> cudaError_t {
    launch(functions::cudaGraphUpload, handle, |stream| graph::upload(exec, stream))
}

pub unsafe extern "C" fn cudaGraphLaunch(exec: cudaGraphExec_t, handle: cudaStream_t) -> cudaError_t {
    launch(functions::cudaGraphLaunch, handle, |stream| graph::launch(exec, stream))
}

pub unsafe extern "C" fn cudaGraphExecDestroy(exec: cudaGraphExec_t) -> cudaError_t {
    runtime(functions::cudaGraphExecDestroy, || graph::destroy_exec(exec))
}
