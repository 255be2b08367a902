//! Host functions: code of the host that a stream runs between other work.

use std::ffi::c_void;
use std::sync::Arc;

use super::gate;
use super::in_flight::ENTRY;
use super::panics::Panics;
use super::stream::Stream;
use crate::cuda::devices::check::check;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::thread::as_host_function;
use crate::deadline::default_timeout;
use crate::error::Result;
use crate::lock::Mutex;
use crate::sys;

impl Stream {
    /// Wraps `cudaLaunchHostFunc`: runs `f` on a thread of the runtime when the work before it is done. Work behind it
    /// waits for it.
    ///
    /// `f` must not use this crate: methods that would call CUDA return [`InvalidUsage`](crate::Error::InvalidUsage). Memory that
    /// is dropped there is freed by a thread of this crate, unless a stream of others ([`Stream::from_raw`]) may still use it, which may be gone by then: such
    /// memory is leaked, as are streams, events and the like. A panic is caught, and the next wait
    /// for this stream returns it. If the device fails before it comes to `f`, `f` is leaked.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # use std::sync::mpsc;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let (sender, receiver) = mpsc::channel();
    /// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    /// x.fill(&stream, 1.0)?;
    /// stream.launch_host(move || sender.send("filled").expect("somebody listens"))?;
    /// assert_eq!(receiver.recv(), Ok("filled"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout) where too much is on its way; what CUDA says.
    #[doc(alias = "cudaLaunchHostFunc")]
    pub fn launch_host(&self, f: impl FnOnce() + Send + 'static) -> Result<()> {
        const OPERATION: &str = "Stream::launch_host";
        let _current = self.device().make_current(OPERATION)?;
        self.room_for_one(OPERATION, default_timeout)?;
        let _entered = gate::enter(OPERATION, self.device(), default_timeout())?;
        let task: *mut Task = Box::into_raw(Box::new(Task {
            run: Box::new(f),
            panics: Arc::clone(self.panics()),
            device: self.device(),
        }));
        // SAFETY: the handle is alive; `run_task` is called at most once with `task`, which it owns then.
        let code = unsafe { sys::cudaLaunchHostFunc(self.raw(), Some(run_task), task.cast()) };
        self.count(ENTRY);
        self.in_flight().note_other_work();
        check("cudaLaunchHostFunc", code).inspect_err(|_| {
            // SAFETY: from `Box::into_raw` above; the call failed, so nobody else has it.
            drop(unsafe { Box::from_raw(task) });
        })
    }
}

/// The devices whose streams wait for such a function that runs now, each as often as there are such streams.
static RUNNING: Mutex<Vec<Device>> = Mutex::new(Vec::new());

/// Whether a stream of `device` waits for such a function that runs now.
#[cfg(feature = "nccl")]
pub(crate) fn is_running_on(device: Device) -> bool {
    RUNNING.lock().contains(&device)
}

struct Task {
    run: Box<dyn FnOnce() + Send>,
    panics: Arc<Panics>,
    device: Device,
}

/// The host function that CUDA calls.
///
/// # Safety
/// `data` is a `Task` from `Box::into_raw`, given up by the caller.
unsafe extern "C" fn run_task(data: *mut c_void) {
    // SAFETY: as the caller promises.
    let task = unsafe { Box::from_raw(data.cast::<Task>()) };
    let Task { run, panics, device } = *task;
    RUNNING.lock().push(device);
    as_host_function(|| panics.catch(run));
    let mut running = RUNNING.lock();
    if let Some(at) = running.iter().position(|one| *one == device) {
        running.swap_remove(at);
    }
}
