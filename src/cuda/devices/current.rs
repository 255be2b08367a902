//! Which device is current on a thread.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::check::{check, check_on};
use super::device::Device;
use super::driver;
use super::thread::{THREAD, Thread, outside_host_functions};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::sys;

/// The contexts that `cudaSetDevice` has bound, of devices with these ordinals: 0 where it has not been seen. A thread that has one of them needs no call
/// that takes longer than to see that.
static CONTEXTS: [AtomicUsize; 32] = [const { AtomicUsize::new(0) }; 32];

impl Device {
    /// Wraps `cudaGetDevice`: the current device of this thread.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = Device::new(0)?;
    /// let _current = device.set_current()?;
    /// assert_eq!(Device::current()?, device);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Device::count`].
    #[doc(alias = "cudaGetDevice")]
    pub fn current() -> Result<Self> {
        Self::count_for("Device::current")?;
        current()
    }

    /// Wraps `cudaSetDevice`: makes this the current device of the thread until the guard is dropped.
    ///
    /// Nothing in this crate needs it; other libraries may. The guard restores the previous device, except one that
    /// the process has never used: restoring it would set up a context there, of some hundred megabytes.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = *Device::all()?.last().expect("at least one");
    /// let current = device.set_current()?;
    /// // A library that asks for the current device is called here.
    /// assert_eq!(Device::current()?, current.device());
    /// drop(current);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says; [`Error::InvalidUsage`] within a host function of a stream.
    #[doc(alias = "cudaSetDevice")]
    pub fn set_current(self) -> Result<CurrentDevice> {
        self.make_current("Device::set_current")
    }

    /// [`Device::set_current`], as a part of `operation`.
    pub(crate) fn make_current(self, operation: &'static str) -> Result<CurrentDevice> {
        outside_host_functions(operation)?;
        let previous = if self.is_bound() { self } else { current()? };
        if previous != self {
            set(self)?;
            THREAD.set(Thread::Ready);
        }
        Ok(CurrentDevice { device: self, previous, _thread: PhantomData })
    }

    /// Wraps `cudaSetDevice`: as [`Device::set_current`], but calls it wherever the thread has not got the device's context. For driver
    /// functions, which need the context that only this call binds to a thread.
    pub(crate) fn bind(self, operation: &'static str) -> Result<CurrentDevice> {
        outside_host_functions(operation)?;
        let mut previous = self;
        if !self.is_bound() {
            previous = current()?;
            set(self)?;
            if let Some(context) = self.context() {
                context.store(driver::context(), Ordering::Relaxed);
            }
        }
        THREAD.set(Thread::Ready);
        Ok(CurrentDevice { device: self, previous, _thread: PhantomData })
    }

    fn context(self) -> Option<&'static AtomicUsize> {
        CONTEXTS.get(usize::try_from(self.0).ok()?)
    }

    /// Whether this thread has the context that `cudaSetDevice` binds for the device, as far as that was seen: it is the current one then.
    #[inline]
    fn is_bound(self) -> bool {
        let bound = self.context().map_or(0, |context| context.load(Ordering::Relaxed));
        bound != 0 && bound == driver::context()
    }

    /// To be called before calls of `operation` that work whatever the current device is. Costs a comparison, except the first time on
    /// each thread.
    ///
    /// CUDA sets up the current device of a thread at its first call, even if the call concerns another one; a thread
    /// that never chose has device 0, so every process of a node would keep a context there. Hence a thread that has
    /// an unused device moves here.
    #[inline]
    pub(crate) fn ready(self, operation: &'static str) -> Result<()> {
        if THREAD.get() == Thread::Ready { Ok(()) } else { self.make_ready(operation) }
    }

    #[cold]
    fn make_ready(self, operation: &'static str) -> Result<()> {
        outside_host_functions(operation)?;
        let now = current()?;
        if now != self && !driver::in_use(now.0) {
            set(self)?;
        }
        THREAD.set(Thread::Ready);
        Ok(())
    }
}

/// Runs `calls` of a library that leaves another device current where it fails, and restores that of this thread then.
pub(crate) fn restoring<R, E>(calls: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    let before = current();
    calls().inspect_err(|_| {
        let _ = before.map(|device| driver::in_use(device.0).then(|| set(device)));
    })
}

/// To be called before calls that concern no device; see [`Device::ready`].
pub(crate) fn any_ready(operation: &'static str) -> Result<()> {
    if THREAD.get() == Thread::Ready {
        return Ok(());
    }
    match all_in_use()?.first() {
        Some(device) => device.ready(operation),
        None => Ok(()),
    }
}

/// The devices that this process uses.
pub(crate) fn all_in_use() -> Result<Vec<Device>> {
    let mut all = Device::all()?;
    all.retain(|device| driver::in_use(device.0));
    Ok(all)
}

fn current() -> Result<Device> {
    let mut device = 0;
    // SAFETY: writes one integer to the address given.
    check("cudaGetDevice", unsafe { sys::cudaGetDevice(&raw mut device) })?;
    Ok(Device(device))
}

fn set(device: Device) -> Result<()> {
    // SAFETY: takes an integer.
    check_on(device.0, "cudaSetDevice", unsafe { sys::cudaSetDevice(device.0) })
}

/// Restores the device that was current before, when dropped. Belongs to its thread.
#[derive(Debug)]
#[must_use = "the previous device is current again as soon as this is dropped"]
pub struct CurrentDevice {
    device: Device,
    previous: Device,
    _thread: PhantomData<*const ()>,
}

impl CurrentDevice {
    /// The device that is current as long as this lives.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// let current = Device::new(0)?.set_current()?;
    /// assert_eq!(current.device(), Device::new(0)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn device(&self) -> Device {
        self.device
    }
}

impl Drop for CurrentDevice {
    fn drop(&mut self) {
        if self.previous != self.device && driver::in_use(self.previous.0) {
            let _ = set(self.previous);
        }
    }
}
