//! The functions of the CUDA runtime: devices, errors, memory, streams, events and graphs.

use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;

use super::super::error;
use super::{Class, OnStream, driver, frame};
use crate::cuda::core::device::{self, current, current_device, device, device_count, set_current};
use crate::cuda::core::event::{self, EVENTS, Event};
use crate::cuda::core::plan::Change;
use crate::cuda::core::stream::{self, STREAMS, Stream};
use crate::cuda::core::{capture, graph};
use crate::cuda::tasks::memory::{self, POOLS, Pool};
use crate::cuda::tasks::memset::Shape;
use crate::cuda::tasks::{copy, host, memset};
use crate::memory::heap::Origin;
use crate::settings::settings;
use crate::sys::*;
use crate::table::{Out, Text, exports};
use crate::visible::uuid;
use crate::{fault, report};

type Error = cudaError;
type Status = cudaError_t;

/// Portable, mapped and write-combined: all pinned memory here is the first two and needs not be the third.
const HOST_ALLOC_FLAGS: c_uint = 0x7;

/// Lower numbers are more urgent. The emulator keeps a priority and does nothing with it: threads share the CPU alike.
const PRIORITIES: std::ops::RangeInclusive<i32> = -5..=0;

/// Returns an attribute of a device. Sizes and counts are those of a large GPU. The emulator reports
/// a feature that it does not emulate as unsupported.
fn attribute(attr: cudaDeviceAttr, number: i32) -> Option<i32> {
    Some(match attr {
        cudaDeviceAttr::cudaDevAttrMaxThreadsPerBlock => 1024,
        cudaDeviceAttr::cudaDevAttrMultiProcessorCount => 132,
        cudaDeviceAttr::cudaDevAttrIntegrated => 0,
        cudaDeviceAttr::cudaDevAttrComputeMode => 0,
        cudaDeviceAttr::cudaDevAttrConcurrentKernels => 1,
        cudaDeviceAttr::cudaDevAttrPciBusId => device::bus(number),
        cudaDeviceAttr::cudaDevAttrPciDeviceId => 0,
        cudaDeviceAttr::cudaDevAttrPciDomainId => device::domain(number),
        cudaDeviceAttr::cudaDevAttrGlobalMemoryBusWidth => 5120,
        cudaDeviceAttr::cudaDevAttrL2CacheSize => 50 << 20,
        cudaDeviceAttr::cudaDevAttrAsyncEngineCount => 3,
        cudaDeviceAttr::cudaDevAttrUnifiedAddressing => 1,
        cudaDeviceAttr::cudaDevAttrComputeCapabilityMajor => settings().capabilities.of(number).0,
        cudaDeviceAttr::cudaDevAttrComputeCapabilityMinor => settings().capabilities.of(number).1,
        cudaDeviceAttr::cudaDevAttrManagedMemory => 0,
        cudaDeviceAttr::cudaDevAttrPageableMemoryAccess => 0,
        cudaDeviceAttr::cudaDevAttrMemoryPoolsSupported => 1,
        cudaDeviceAttr::cudaDevAttrGPUDirectRDMASupported => 0,
        _ => return None,
    })
}

exports! { DEVICES: abi;
    Bare fn cudaGetErrorName(error: cudaError_t) -> *const c_char { error::texts(error).0.as_ptr() }
    Bare fn cudaGetErrorString(error: cudaError_t) -> *const c_char { error::meaning(error).as_ptr() }
    Bare fn cudaGetLastError() -> cudaError_t { error::take_last() }

    Free fn cudaDriverGetVersion(version: Out<c_int>) {
        version.set(CUDART_VERSION as c_int);
        Ok(())
    }

    Free fn cudaRuntimeGetVersion(version: Out<c_int>) {
        version.set(CUDART_VERSION as c_int);
        Ok(())
    }

    Free fn cudaGetDeviceCount(count: Out<c_int>) {
        count.set(device_count());
        if device_count() == 0 { Err(device::none()) } else { Ok(()) }
    }

    Free fn cudaGetDevice(ordinal: Out<c_int>) {
        ordinal.set(current()?.ordinal);
        Ok(())
    }

    Free fn cudaSetDevice(ordinal: c_int) { set_current(ordinal) }

    Free fn cudaDeviceGetAttribute(value: Out<c_int>, attr: cudaDeviceAttr, ordinal: c_int) {
        let known = attribute(attr, device(ordinal)?.number()).ok_or_else(|| {
            report::line(format!("cudaDeviceGetAttribute: attribute {} is not emulated", attr.0));
            cudaError::cudaErrorInvalidValue
        })?;
        value.set(known);
        Ok(())
    }

    Free fn cudaDeviceSetLimit(limit: cudaLimit, value: usize) {
        if limit != cudaLimit::cudaLimitStackSize {
            report::line(format!("cudaDeviceSetLimit: limit {} is not emulated", limit.0));
            return Err(cudaError::cudaErrorInvalidValue);
        }
        device::set_stack_limit(current()?, value);
        Ok(())
    }

    Free fn cudaDeviceGetLimit(value: Out<usize>, limit: cudaLimit) {
        if limit != cudaLimit::cudaLimitStackSize {
            report::line(format!("cudaDeviceGetLimit: limit {} is not emulated", limit.0));
            return Err(cudaError::cudaErrorInvalidValue);
        }
        value.set(device::stack_limit(current()?));
        Ok(())
    }

    Free fn cudaDeviceGetPCIBusId(id: *mut c_char, len: c_int, ordinal: c_int) {
        let text = CString::new(device::bus_id(device(ordinal)?.number())).map_err(|_| cudaError::cudaErrorUnknown)?;
        let bytes = text.as_bytes_with_nul();
        if id.is_null() || usize::try_from(len).is_ok_and(|len| len < bytes.len()) || len < 0 {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        // SAFETY: the caller gives `len` bytes at `id`, and the text with its zero is no longer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), id, bytes.len()) };
        Ok(())
    }

    Free fn cudaDeviceGetByPCIBusId(ordinal: Out<c_int>, id: Text) {
        let id = id.get().ok_or(cudaError::cudaErrorInvalidValue)?.to_str().ok();
        let place = id.and_then(device::place).ok_or(cudaError::cudaErrorInvalidValue)?;
        let mut visible = device::devices().iter();
        let found = visible.find(|device| device::place(&device::bus_id(device.number())) == Some(place));
        ordinal.set(found.ok_or(cudaError::cudaErrorInvalidDevice)?.ordinal);
        Ok(())
    }

    Free fn cudaDeviceCanAccessPeer(can: Out<c_int>, ordinal: c_int, peer: c_int) {
        can.set(c_int::from(device(ordinal)?.ordinal != device(peer)?.ordinal));
        Ok(())
    }

    Any fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        if flags != 0 {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        let (own, peer) = (current()?, device(peer)?);
        own.check()?;
        peer.check()?;
        own.enable_peer(peer)
    }

    Free fn cudaDeviceGetP2PAttribute(value: Out<c_int>, attr: cudaDeviceP2PAttr, src: c_int, dst: c_int) {
        if device(src)?.ordinal == device(dst)?.ordinal {
            return Err(cudaError::cudaErrorInvalidDevice);
        }
        value.set(match attr {
            cudaDeviceP2PAttr::cudaDevP2PAttrPerformanceRank => 0,
            cudaDeviceP2PAttr::cudaDevP2PAttrAccessSupported => 1,
            cudaDeviceP2PAttr::cudaDevP2PAttrNativeAtomicSupported => 1,
            cudaDeviceP2PAttr::cudaDevP2PAttrCudaArrayAccessSupported => 0,
            _ => return Err(cudaError::cudaErrorInvalidValue),
        });
        Ok(())
    }

    Free fn gpucommDeviceInfo(info: Out<gpucommDeviceInfo_t>, ordinal: c_int) {
        let number = device(ordinal)?.number();
        let mut name = [0; 256];
        for (to, from) in name.iter_mut().zip(format!("gpucomm emulated GPU {number}").bytes()) {
            *to = from.cast_signed() as c_char;
        }
        info.set(gpucommDeviceInfo_t { name, uuid: uuid(number), totalMemory: settings().memory as usize });
        Ok(())
    }

    Free fn gpucommDriverEntryPoint(function: Out<*mut c_void>, symbol: Text, version: c_uint) {
        let symbol = symbol.get().ok_or(cudaError::cudaErrorInvalidValue)?;
        device(current_device())?;
        function.set(driver::entry_point(symbol, version));
        Ok(())
    }
}

exports! { MEMORY: abi;
    Any fn cudaMemGetInfo(free: Out<usize>, total: Out<usize>) {
        let device = current()?;
        device.check()?;
        let (bytes_free, bytes) = device.heap.room();
        free.set(bytes_free as usize);
        total.set(bytes as usize);
        Ok(())
    }

    Unsafe fn cudaMalloc(ptr: Out<*mut c_void>, size: usize) {
        let device = current()?;
        if fault::on_alloc(device.number(), size) {
            return Err(cudaError::cudaErrorMemoryAllocation);
        }
        ptr.set(memory::allocate(device.ordinal, size, Origin::Malloc)?);
        Ok(())
    }

    Unsafe fn cudaFree(ptr: *mut c_void) { memory::free(ptr) }

    Any fn gpucommPointerInfo(info: Out<gpucommPointerInfo_t>, ptr: *const c_void) {
        let (kind, device) = memory::kind_at(ptr.addr())?;
        info.set(gpucommPointerInfo_t { kind: kind as c_int, device });
        Ok(())
    }

    Any fn gpucommPoolCreate(handle: Out<cudaMemPool_t>, ordinal: c_int) {
        let device = device(ordinal)?;
        device.check()?;
        handle.set(POOLS.insert(Arc::new(Pool { device })).ok_or(cudaError::cudaErrorMemoryAllocation)?);
        Ok(())
    }

    Enqueues fn cudaMallocFromPoolAsync(ptr: Out<*mut c_void>, size: usize, pool: cudaMemPool_t, on: OnStream) {
        let pool = POOLS.get(pool).ok_or_else(|| {
            report::violation(format!("cudaMallocFromPoolAsync: {pool:p} is no pool"));
            cudaError::cudaErrorInvalidValue
        })?;
        if fault::on_alloc(pool.device.number(), size) {
            return Err(cudaError::cudaErrorMemoryAllocation);
        }
        ptr.set(memory::allocate_async(pool.device, size, &on.stream)?);
        Ok(())
    }

    Enqueues fn cudaFreeAsync(ptr: *mut c_void, on: OnStream) { memory::free_async(ptr, &on.stream) }

    Unsafe fn cudaHostAlloc(ptr: Out<*mut c_void>, size: usize, flags: c_uint) {
        if flags & !HOST_ALLOC_FLAGS != 0 {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        current()?.check()?;
        ptr.set(host::allocate(size)?);
        Ok(())
    }

    Unsafe fn cudaFreeHost(ptr: *mut c_void) {
        host::free(ptr)?;
        current()?.check()
    }

    Enqueues fn cudaMemcpyAsync(
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
        on: OnStream,
    ) {
        copy::copy(dst, src, count, kind, &on.stream)
    }

    Enqueues fn cudaMemcpyPeerAsync(
        dst: *mut c_void,
        dst_device: c_int,
        src: *const c_void,
        src_device: c_int,
        count: usize,
        on: OnStream,
    ) {
        copy::copy_peer((dst, device(dst_device)?), (src, device(src_device)?), count, &on.stream)
    }

    Enqueues fn cudaMemsetAsync(ptr: *mut c_void, value: c_int, count: usize, on: OnStream) |function| {
        // C converts the value to an unsigned char.
        memset::fill(function.name, ptr, value as u8, Shape::row(count), &on.stream)
    }
}

exports! { STREAMS_AND_EVENTS: abi;
    Any fn cudaDeviceGetStreamPriorityRange(least: Option<Out<c_int>>, greatest: Option<Out<c_int>>) {
        current()?;
        if let Some(least) = least {
            least.set(*PRIORITIES.end());
        }
        if let Some(greatest) = greatest {
            greatest.set(*PRIORITIES.start());
        }
        Ok(())
    }

    Any fn cudaStreamCreateWithPriority(handle: Out<cudaStream_t>, flags: c_uint, priority: c_int) {
        if flags & !cudaStreamNonBlocking != 0 {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        let device = current()?;
        let _shared = device::share_driver(device);
        device.check()?;
        let stream = Stream::new(device, flags, priority.clamp(*PRIORITIES.start(), *PRIORITIES.end()));
        handle.set(STREAMS.insert(stream).ok_or(cudaError::cudaErrorMemoryAllocation)?);
        Ok(())
    }

    Any fn cudaStreamDestroy(handle: cudaStream_t) {
        let stream = STREAMS.remove(handle).ok_or_else(|| {
            report::violation(format!("cudaStreamDestroy: {handle:p} is no stream: destroyed before, or never made"));
            cudaError::cudaErrorInvalidResourceHandle
        })?;
        capture::forget(&stream.line);
        stream.close();
        stream.device.check()
    }

    Any fn cudaStreamGetPriority(handle: cudaStream_t, priority: Out<c_int>) {
        let stream = stream::find(handle)?;
        stream.device.check()?;
        priority.set(stream.priority);
        Ok(())
    }

    Any fn cudaStreamGetFlags(handle: cudaStream_t, flags: Out<c_uint>) {
        let stream = stream::find(handle)?;
        stream.device.check()?;
        flags.set(stream.flags);
        Ok(())
    }

    Unsafe fn cudaStreamQuery(handle: cudaStream_t) {
        let stream = stream::find(handle)?;
        capture::refuse(&stream.line)?;
        // Asked first: once the stream is idle, an error of its work has happened.
        let idle = stream.is_idle();
        stream.device.check()?;
        if idle { Ok(()) } else { Err(cudaError::cudaErrorNotReady) }
    }

    Enqueues fn cudaStreamWaitEvent(handle: cudaStream_t, event: cudaEvent_t, flags: c_uint) {
        if flags != 0 {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        let (stream, event) = (stream::find(handle)?, event::find(event)?);
        device::pass_driver(event.device);
        let _shared = device::share_driver(stream.device);
        event.hold(&stream)
    }

    Free fn cudaThreadExchangeStreamCaptureMode(mode: *mut cudaStreamCaptureMode) {
        if mode.is_null() {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        // SAFETY: as C declares it: a mode to read, and to write the one before to.
        unsafe { *mode = capture::exchange(*mode)? };
        Ok(())
    }

    Any fn cudaStreamBeginCapture(handle: cudaStream_t, mode: cudaStreamCaptureMode) {
        let stream = stream::find(handle)?;
        stream.device.check()?;
        capture::begin(&stream.line, mode)
    }

    Any fn cudaStreamEndCapture(handle: cudaStream_t, made: Out<cudaGraph_t>) {
        let ended = capture::end(&stream::find(handle)?.line).and_then(graph::add);
        made.set(*ended.as_ref().unwrap_or(&std::ptr::null_mut()));
        ended.map(drop)
    }

    Any fn cudaStreamIsCapturing(handle: cudaStream_t, status: Out<cudaStreamCaptureStatus>) {
        status.set(capture::status(&stream::find(handle)?.line)?);
        Ok(())
    }

    Enqueues fn cudaLaunchHostFunc(on: OnStream, function: cudaHostFn_t, data: *mut c_void) {
        host::launch(&on.stream, function, data)
    }

    Any fn cudaEventCreateWithFlags(handle: Out<cudaEvent_t>, flags: c_uint) {
        if flags & !(cudaEventBlockingSync | cudaEventDisableTiming) != 0 {
            report::line(format!("cudaEventCreateWithFlags: flags {flags:#x} are not emulated"));
            return Err(cudaError::cudaErrorInvalidValue);
        }
        let device = current()?;
        let _shared = device::share_driver(device);
        device.check()?;
        let event = Arc::new(Event::new(device, flags & cudaEventDisableTiming == 0));
        handle.set(EVENTS.insert(event).ok_or(cudaError::cudaErrorMemoryAllocation)?);
        Ok(())
    }

    Any fn cudaEventDestroy(handle: cudaEvent_t) {
        let event = EVENTS.remove(handle).ok_or_else(|| {
            report::violation(format!("cudaEventDestroy: {handle:p} is no event: destroyed before, or never made"));
            cudaError::cudaErrorInvalidResourceHandle
        })?;
        device::pass_driver(event.device);
        Ok(())
    }

    Enqueues fn cudaEventRecord(event: cudaEvent_t, on: OnStream) { event::find(event)?.record(&on.stream) }

    Asks fn cudaEventQuery(event: cudaEvent_t) { event::find(event)?.query() }

    Any fn cudaEventElapsedTime(ms: Out<f32>, start: cudaEvent_t, end: cudaEvent_t) {
        ms.set(event::find(end)?.since(&*event::find(start)?)?);
        Ok(())
    }
}

exports! { GRAPHS: abi;
    Any fn cudaGraphGetNodes(graph: cudaGraph_t, nodes: *mut cudaGraphNode_t, count: Out<usize>) {
        let number = graph::nodes(graph)?;
        if !nodes.is_null() {
            report::line("cudaGraphGetNodes: the emulator tells how many nodes there are, and not which");
            return Err(cudaError::cudaErrorNotSupported);
        }
        count.set(number);
        Ok(())
    }

    Any fn cudaGraphDestroy(graph: cudaGraph_t) { graph::destroy(graph) }

    Unsafe fn cudaGraphInstantiate(exec: Out<cudaGraphExec_t>, graph: cudaGraph_t, flags: c_ulonglong) {
        exec.set(graph::instantiate(graph, flags)?);
        Ok(())
    }

    Unsafe fn cudaGraphExecUpdate(
        exec: cudaGraphExec_t,
        graph: cudaGraph_t,
        info: Out<cudaGraphExecUpdateResultInfo>,
    ) {
        let done = graph::update(exec, graph);
        let result = match done {
            Err(_) => cudaGraphExecUpdateResult::cudaGraphExecUpdateError,
            Ok(None) => cudaGraphExecUpdateResult::cudaGraphExecUpdateSuccess,
            Ok(Some(Change::Topology)) => cudaGraphExecUpdateResult::cudaGraphExecUpdateErrorTopologyChanged,
            Ok(Some(Change::Kind)) => cudaGraphExecUpdateResult::cudaGraphExecUpdateErrorNodeTypeChanged,
            Ok(Some(Change::Parameters)) => cudaGraphExecUpdateResult::cudaGraphExecUpdateErrorParametersChanged,
        };
        let none = std::ptr::null_mut();
        info.set(cudaGraphExecUpdateResultInfo { result, errorNode: none, errorFromNode: none });
        done?.map_or(Ok(()), |_| Err(cudaError::cudaErrorGraphExecUpdateFailure))
    }

    Enqueues fn cudaGraphUpload(exec: cudaGraphExec_t, on: OnStream) { graph::upload(exec, &on.stream) }

    Enqueues fn cudaGraphLaunch(exec: cudaGraphExec_t, on: OnStream) { graph::launch(exec, &on.stream) }

    Any fn cudaGraphExecDestroy(exec: cudaGraphExec_t) { graph::destroy_exec(exec) }
}
