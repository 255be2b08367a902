//! What CUDA launches: an executable graph, and the calls that make and end it.

use std::mem::MaybeUninit;

use crate::cuda::devices::check::{check, check_on, clear};
use crate::cuda::devices::device::Device;
use crate::cuda::devices::settle::undisturbing;
use crate::cuda::order::stream::Stream;
use crate::error::Result;
use crate::sys;

/// A `cudaGraphExec_t`, which is destroyed with this.
pub(crate) struct Executable {
    raw: sys::cudaGraphExec_t,
    device: Device,
    nodes: usize,
}

// SAFETY: the CUDA runtime allows executable graphs to be used from any thread, one at a time.
unsafe impl Send for Executable {}

impl Executable {
    /// Wraps `cudaGraphInstantiate`.
    pub(super) fn of(template: &Template, device: Device) -> Result<Self> {
        let _current = device.make_current("cudaGraphInstantiate")?;
        let nodes = template.nodes(device)?;
        let mut raw = std::ptr::null_mut();
        undisturbing(|| {
            // SAFETY: a live graph; writes a handle to the address given.
            let code = unsafe { sys::cudaGraphInstantiate(&raw mut raw, template.0, 0) };
            check_on(device.ordinal(), "cudaGraphInstantiate", code)
        })?;
        Ok(Self { raw, device, nodes })
    }

    /// Wraps `cudaGraphExecUpdate`: from now on it does what `template` says, where that has the same form; whether it has. What was launched
    /// before stays as it was.
    pub(super) fn update(&mut self, template: &Template) -> Result<bool> {
        const FUNCTION: &str = "cudaGraphExecUpdate";
        let _current = self.device.make_current(FUNCTION)?;
        let nodes = template.nodes(self.device)?;
        let mut told = MaybeUninit::<sys::cudaGraphExecUpdateResultInfo>::zeroed();
        let updated = undisturbing(|| {
            // SAFETY: both handles are alive, and nobody launches this one; writes one value to the address given.
            let code = unsafe { sys::cudaGraphExecUpdate(self.raw, template.0, told.as_mut_ptr()) };
            if code == sys::cudaError::cudaErrorGraphExecUpdateFailure {
                // An answer, not a failure of the thread's.
                clear();
                return Ok(false);
            }
            check_on(self.device.ordinal(), FUNCTION, code).map(|()| true)
        })?;
        if updated {
            self.nodes = nodes;
        }
        Ok(updated)
    }

    /// Wraps `cudaGraphLaunch`.
    ///
    /// # Safety
    /// The memory that it uses is there until the launch is done, and `stream` was ordered after conflicting uses; communicators whose
    /// operations it has are live, and their ranks agree.
    pub(super) unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        let _current = self.device.make_current("cudaGraphLaunch")?;
        // SAFETY: both handles are alive; the rest as the caller promises.
        check_on(self.device.ordinal(), "cudaGraphLaunch", unsafe { sys::cudaGraphLaunch(self.raw, stream.raw()) })
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: from cudaGraphInstantiate, and nobody launches it any more. Launches that are under way are still done.
        let _ = check("cudaGraphExecDestroy", unsafe { sys::cudaGraphExecDestroy(self.raw) });
    }
}

/// A `cudaGraph_t`, from which executable graphs are made.
pub(super) struct Template(sys::cudaGraph_t);

impl Template {
    /// Wraps `cudaStreamBeginCapture`: what is enqueued on `stream` from now on, by whatever thread, is not done but written down. No call
    /// of this thread spoils that, or is kept from anything.
    pub(super) fn begin(stream: &Stream) -> Result<()> {
        let _current = stream.device().make_current("cudaStreamBeginCapture")?;
        let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
        // SAFETY: the handle is alive; what is captured uses memory that the recording keeps alive.
        check("cudaStreamBeginCapture", unsafe { sys::cudaStreamBeginCapture(stream.raw(), mode) })
    }

    /// Wraps `cudaStreamEndCapture`: the capture ends whatever comes of it, and whatever state it is in.
    pub(super) fn end(stream: &Stream) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is alive; writes a handle to the address given.
        let code = unsafe { sys::cudaStreamEndCapture(stream.raw(), &raw mut raw) };
        // Where the capture was spoilt, there is none.
        let graph = (!raw.is_null()).then_some(Self(raw));
        check_on(stream.device().ordinal(), "cudaStreamEndCapture", code)?;
        Ok(graph.unwrap_or(Self(std::ptr::null_mut())))
    }

    /// Wraps `cudaGraphGetNodes`: how many it has.
    fn nodes(&self, device: Device) -> Result<usize> {
        let mut nodes = 0;
        // SAFETY: a live graph; asks for the number of its nodes alone.
        let code = unsafe { sys::cudaGraphGetNodes(self.0, std::ptr::null_mut(), &raw mut nodes) };
        check_on(device.ordinal(), "cudaGraphGetNodes", code)?;
        Ok(nodes)
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: from cudaStreamEndCapture; what was instantiated from it stays.
            let _ = check("cudaGraphDestroy", unsafe { sys::cudaGraphDestroy(self.0) });
        }
    }
}
