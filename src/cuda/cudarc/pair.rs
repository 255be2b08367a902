//! A stream as both libraries have it.

use std::sync::Arc;

use cudarc::driver::sys::CUstreamCaptureStatus;
use cudarc::driver::{CudaStream, DriverError};

use crate::cuda::devices::check::check_on;
use crate::cuda::devices::device::Device;
use crate::cuda::order::stream::Stream;
use crate::error::{Error, Result};
use crate::sys;

/// A stream as both libraries have it.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) ours: Stream,
    pub(super) theirs: Arc<CudaStream>,
}

impl Pair {
    /// Fails while the home of what is to be lent is being captured: who waits for that becomes part of the capture.
    pub(super) fn not_captured(&self, operation: &'static str, home: &CudaStream) -> Result<()> {
        let status = home.capture_status().map_err(|error| self.failed("cuStreamIsCapturing", error))?;
        if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Ok(());
        }
        let reason = "the stream of the memory is being captured into a graph: end the capture first".to_owned();
        Err(Error::InvalidUsage { operation, reason })
    }

    /// What cudarc could not say where it happened.
    pub(super) fn told(&self) -> Result<()> {
        self.theirs.context().check_err().map_err(|error| self.failed("cudarc", error))
    }

    /// Whether cudarc keeps events of what uses memory of `home`'s context, on this stream.
    pub(super) fn keeps_events(&self, home: &CudaStream) -> bool {
        // The context of a stream may be another object than that of a slice, for the same context of CUDA.
        let contexts = [home.context(), self.theirs.context()];
        contexts.iter().all(|context| context.is_managing_stream_synchronization())
    }

    /// An error of the driver, whose codes are those of the runtime.
    pub(super) fn failed(&self, operation: &'static str, error: DriverError) -> Error {
        let code = sys::cudaError(error.0 as u32);
        let unknown = || Error::InvalidUsage { operation, reason: format!("{error:?}") };
        check_on(self.ours.device().ordinal(), operation, code).err().unwrap_or_else(unknown)
    }
}

/// Whether it is `CU_STREAM_PER_THREAD`, another stream for each thread.
pub(super) fn is_of_thread(stream: &CudaStream) -> bool {
    stream.cu_stream().addr() == 2
}

/// The device of a stream, whose context is the one that all libraries share.
pub(super) fn device_of(operation: &'static str, stream: &CudaStream) -> Result<Device> {
    let context = stream.context();
    if !context.is_primary() {
        let expected = "one of the primary context of its device";
        return Err(Error::argument(operation, "stream", expected, "one of another context"));
    }
    Device::new(context.ordinal())
}
