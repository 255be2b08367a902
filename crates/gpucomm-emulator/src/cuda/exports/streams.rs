//! Streams and events.

use super::{Out, launch, runtime};
use crate::cuda::core::device::current;
use crate::cuda::core::event::{self, EVENTS, Event};
use crate::cuda::core::safety::functions;
use crate::cuda::core::stream::{self, STREAMS, Stream};
use crate::cuda::core::{capture, driver_lock, graph};
use crate::cuda::tasks::host;
use crate::report;
use crate::sys::*;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

/// Lower numbers are more urgent. The emulator keeps a priority and does nothing with it: threads share the CPU alike.
const PRIORITIES: std::ops::RangeInclusive<i32> = -5..=0;

pub unsafe extern "C" fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> cudaError_t {
    runtime(functions::cudaDeviceGetStreamPriorityRange, || {
        current()?;
        for (place, value) in [(least, *PRIORITIES.end()), (greatest, *PRIORITIES.start())] {
            // SAFETY: as C declares it: an `int` to write to, or null, which means that nobody asks for it.
            let out = unsafe { Out::new(place) };
            if let Ok(out) = out {
                out.set(value);
            }
        }
        Ok(())
    })
}

pub unsafe extern "C" fn cudaStreamCreateWithPriority(
    handle: *mut cudaStream_t,
    flags: c_uint,
    priority: c_int,
) -> cudaError_t {
    runtime(functions::cudaStreamCreateWithPriority, || {
        // SAFETY: as C declares it: a handle to write to, or null.
        let out = unsafe { Out::new(handle)? };
        if flags & !cudaStreamNonBlocking != 0 {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        let device = current()?;
        let _shared = driver_lock::shared(device);
        device.check()?;
        let stream = Stream::new(device, flags, priority.clamp(*PRIORITIES.start(), *PRIORITIES.end()));
        out.set(STREAMS.insert(stream).ok_or(cudaError::cudaErrorMemoryAllocation)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaStreamDestroy(handle: cudaStream_t) -> cudaError_t {
    runtime(functions::cudaStreamDestroy, || {
        let stream = STREAMS.remove(handle).ok_or_else(|| {
            report::violation(format!("cudaStreamDestroy: {handle:p} is no stream: destroyed before, or never made"));
            cudaError::cudaErrorInvalidResourceHandle
        })?;
        capture::forget(&stream.line);
        stream.close();
        stream.device.check()
    })
}

pub unsafe extern "C" fn cudaStreamGetPriority(handle: cudaStream_t, priority: *mut c_int) -> cudaError_t {
    runtime(functions::cudaStreamGetPriority, || {
        // SAFETY: as C declares it: an `int` to write to, or null.
        let out = unsafe { Out::new(priority)? };
        let stream = stream::find(handle)?;
        stream.device.check()?;
        out.set(stream.priority);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaStreamGetFlags(handle: cudaStream_t, flags: *mut c_uint) -> cudaError_t {
    runtime(functions::cudaStreamGetFlags, || {
        // SAFETY: as C declares it: an `unsigned` to write to, or null.
        let out = unsafe { Out::new(flags)? };
        let stream = stream::find(handle)?;
        stream.device.check()?;
        out.set(stream.flags);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaStreamQuery(handle: cudaStream_t) -> cudaError_t {
    runtime(functions::cudaStreamQuery, || {
        let stream = stream::find(handle)?;
        capture::refuse(&stream.line)?;
        // Asked first: once the stream is idle, an error of its work has happened.
        let idle = stream.is_idle();
        stream.device.check()?;
        if idle { Ok(()) } else { Err(cudaError::cudaErrorNotReady) }
    })
}

pub unsafe extern "C" fn cudaStreamWaitEvent(handle: cudaStream_t, event: cudaEvent_t, flags: c_uint) -> cudaError_t {
    runtime(functions::cudaStreamWaitEvent, || {
        if flags != 0 {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        let (stream, event) = (stream::find(handle)?, event::find(event)?);
        driver_lock::pass(event.device);
        let _shared = driver_lock::shared(stream.device);
        event.hold(&stream)
    })
}

pub unsafe extern "C" fn cudaThreadExchangeStreamCaptureMode(mode: *mut cudaStreamCaptureMode) -> cudaError_t {
    runtime(functions::cudaThreadExchangeStreamCaptureMode, || {
        if mode.is_null() {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        // SAFETY: as C declares it: a mode to read, and to write the one before to.
        unsafe { *mode = capture::exchange(*mode)? };
        Ok(())
    })
}

pub unsafe extern "C" fn cudaStreamBeginCapture(handle: cudaStream_t, mode: cudaStreamCaptureMode) -> cudaError_t {
    runtime(functions::cudaStreamBeginCapture, || {
        let stream = stream::find(handle)?;
        stream.device.check()?;
        capture::begin(&stream.line, mode)
    })
}

pub unsafe extern "C" fn cudaStreamEndCapture(handle: cudaStream_t, made: *mut cudaGraph_t) -> cudaError_t {
    runtime(functions::cudaStreamEndCapture, || {
        // SAFETY: as C declares it: a handle to write to, or null.
        let out = unsafe { Out::new(made)? };
        let ended = capture::end(&stream::find(handle)?.line).and_then(graph::add);
        out.set(*ended.as_ref().unwrap_or(&std::ptr::null_mut()));
        ended.map(drop)
    })
}

pub unsafe extern "C" fn cudaStreamIsCapturing(
    handle: cudaStream_t,
    status: *mut cudaStreamCaptureStatus,
) -> cudaError_t {
    runtime(functions::cudaStreamIsCapturing, || {
        // SAFETY: as C declares it: a status to write to, or null.
        let out = unsafe { Out::new(status)? };
        out.set(capture::status(&stream::find(handle)?.line)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaLaunchHostFunc(
    handle: cudaStream_t,
    function: cudaHostFn_t,
    data: *mut c_void,
) -> cudaError_t {
    launch(functions::cudaLaunchHostFunc, handle, |stream| host::launch(stream, function, data))
}

pub unsafe extern "C" fn cudaEventCreateWithFlags(handle: *mut cudaEvent_t, flags: c_uint) -> cudaError_t {
    runtime(functions::cudaEventCreateWithFlags, || {
        // SAFETY: as C declares it: a handle to write to, or null.
        let out = unsafe { Out::new(handle)? };
        if flags & !(cudaEventBlockingSync | cudaEventDisableTiming) != 0 {
            report::line(format!("cudaEventCreateWithFlags: flags {flags:#x} are not emulated"));
            return Err(cudaError::cudaErrorInvalidValue);
        }
        let device = current()?;
        let _shared = driver_lock::shared(device);
        device.check()?;
        let event = Arc::new(Event::new(device, flags & cudaEventDisableTiming == 0));
        out.set(EVENTS.insert(event).ok_or(cudaError::cudaErrorMemoryAllocation)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaEventDestroy(handle: cudaEvent_t) -> cudaError_t {
    runtime(functions::cudaEventDestroy, || {
        let event = EVENTS.remove(handle).ok_or_else(|| {
            report::violation(format!("cudaEventDestroy: {handle:p} is no event: destroyed before, or never made"));
            cudaError::cudaErrorInvalidResourceHandle
        })?;
        driver_lock::pass(event.device);
        Ok(())
    })
}

pub unsafe extern "C" fn cudaEventRecord(event: cudaEvent_t, handle: cudaStream_t) -> cudaError_t {
    launch(functions::cudaEventRecord, handle, |stream| event::find(event)?.record(stream))
}

pub unsafe extern "C" fn cudaEventQuery(event: cudaEvent_t) -> cudaError_t {
    runtime(functions::cudaEventQuery, || event::find(event)?.query())
}

pub unsafe extern "C" fn cudaEventElapsedTime(ms: *mut f32, start: cudaEvent_t, end: cudaEvent_t) -> cudaError_t {
    runtime(functions::cudaEventElapsedTime, || {
        // SAFETY: as C declares it: a `float` to write to, or null.
        let out = unsafe { Out::new(ms)? };
        out.set(event::find(end)?.since(&*event::find(start)?)?);
        Ok(())
    })
}
