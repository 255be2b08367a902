//! Devices, and which of them is current.

use std::cell::Cell;
use std::ffi::CString;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::attribute::P2pAttribute;
use super::check::{check, check_on};
use super::driver;
use crate::error::{Error, Result};
use crate::sys;

/// A GPU that this process can use, by its ordinal.
///
/// ```
/// # use gpucomm::Device;
/// # fn main() -> gpucomm::Result<()> {
/// for device in Device::all()? {
///     let (major, minor) = device.compute_capability()?;
///     println!("{device}: {}, compute capability {major}.{minor}, {} bytes", device.name()?, device.total_memory()?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device(i32);

/// Memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free.
    pub free: usize,
    /// In all.
    pub total: usize,
}

/// What is known about the calling thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    /// Nothing yet: its current device may be one that nobody asked for.
    Fresh,
    /// Its current device is one that this process uses.
    Ready,
    /// It runs a host function of a stream, where CUDA calls are not allowed.
    InHostFunction,
}

thread_local! {
    static THREAD: Cell<Thread> = const { Cell::new(Thread::Fresh) };
}

impl Device {
    /// Wraps `cudaGetDeviceCount`: how many GPUs this process can use.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// println!("the last one is {}", Device::new(Device::count()? - 1)?);
    /// assert!(Device::new(Device::count()?).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoDevice`] where there is none, or no driver; [`Error::DriverTooOld`]; [`Error::InvalidArgument`] where
    /// `GPUCOMM_TIMEOUT` holds no time, see [`default_timeout`](crate::default_timeout).
    pub fn count() -> Result<usize> {
        Self::count_for("Device::count")
    }

    /// [`Device::count`], asked by `operation`.
    pub(crate) fn count_for(operation: &'static str) -> Result<usize> {
        outside_host_functions(operation)?;
        static COUNT: OnceLock<usize> = OnceLock::new();
        if let Some(count) = COUNT.get() {
            return Ok(*count);
        }
        crate::deadline::check_environment(operation)?;
        crate::version::check_cuda()?;
        crate::backend::announce();
        let mut count = 0;
        // SAFETY: writes one integer to the address given.
        check("cudaGetDeviceCount", unsafe { sys::cudaGetDeviceCount(&raw mut count) })?;
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Err(Error::NoDevice {
                operation: "cudaGetDeviceCount",
                reason: String::from("there are 0 devices"),
            });
        }
        // It cannot change while the process lives.
        Ok(*COUNT.get_or_init(|| count))
    }

    /// Every GPU that this process can use, at least one.
    ///
    /// # Errors
    /// As [`Device::count`].
    pub fn all() -> Result<Vec<Self>> {
        let count = i32::try_from(Self::count_for("Device::all")?).unwrap_or(i32::MAX);
        Ok((0..count).map(Self).collect())
    }

    /// The device with this ordinal.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there are fewer; and as [`Device::count`].
    pub fn new(ordinal: usize) -> Result<Self> {
        const OPERATION: &str = "Device::new";
        let count = Self::count_for(OPERATION)?;
        match i32::try_from(ordinal) {
            Ok(device) if ordinal < count => Ok(Self(device)),
            _ => Err(Error::argument(OPERATION, "ordinal", format_args!("0 to {}", count - 1), ordinal)),
        }
    }

    /// Wraps `cudaDeviceGetByPCIBusId`: the device that is plugged in there, as [`Device::pci_bus_id`] writes it; the domain and the
    /// function may be left out.
    ///
    /// Processes that see different devices, or see them in another order, know one device by other ordinals and by the same bus id.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// let last = *gpucomm::Device::all()?.last().expect("at least one");
    /// assert_eq!(gpucomm::Device::at_pci_bus(&last.pci_bus_id()?)?, last);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says, where no device that this process sees is there among others; [`Error::InvalidArgument`] for a text with a zero
    /// byte; and as [`Device::count`].
    pub fn at_pci_bus(id: &str) -> Result<Self> {
        const OPERATION: &str = "Device::at_pci_bus";
        Self::count_for(OPERATION)?;
        let Ok(text) = CString::new(id) else {
            return Err(Error::argument(OPERATION, "id", "a bus id such as 0000:0a:00.0", format_args!("{id:?}")));
        };
        let mut ordinal = 0;
        // SAFETY: reads a C string, and writes one integer to the address given.
        check("cudaDeviceGetByPCIBusId", unsafe { sys::cudaDeviceGetByPCIBusId(&raw mut ordinal, text.as_ptr()) })?;
        Ok(Self(ordinal))
    }

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
    pub fn current() -> Result<Self> {
        Self::count_for("Device::current")?;
        current()
    }

    /// The number of the device, from 0, as CUDA counts in this process.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// assert_eq!(Device::new(0)?.ordinal(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn ordinal(self) -> i32 {
        self.0
    }

    pub(crate) fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Wraps `cudaMemGetInfo`: free and total memory, in bytes.
    ///
    /// Memory that this crate keeps for reuse counts as used.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// let memory = Device::new(0)?.memory_info()?;
    /// assert!(memory.free <= memory.total);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    pub fn memory_info(self) -> Result<MemoryInfo> {
        let _current = self.make_current("Device::memory_info")?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers to the addresses given.
        check("cudaMemGetInfo", unsafe { sys::cudaMemGetInfo(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo { free, total })
    }

    /// Wraps `cudaDeviceCanAccessPeer`: whether kernels on this device could read and write the memory of `peer`.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// let all = Device::all()?;
    /// for (a, b) in all.iter().zip(&all[1..]) {
    ///     if !a.can_access_peer(*b)? {
    ///         println!("copies between {a} and {b} go through the host");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    pub fn can_access_peer(self, peer: Self) -> Result<bool> {
        outside_host_functions("Device::can_access_peer")?;
        let mut can = 0;
        // SAFETY: writes one integer to the address given.
        check_on(self.0, "cudaDeviceCanAccessPeer", unsafe {
            sys::cudaDeviceCanAccessPeer(&raw mut can, self.0, peer.0)
        })?;
        Ok(can != 0)
    }

    /// Wraps `cudaDeviceEnablePeerAccess`: lets kernels on this device read and write memory of `peer` that was
    /// allocated without a pool. No error if it was enabled before.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// let all = Device::all()?;
    /// if let [a, b, ..] = all[..]
    ///     && a.can_access_peer(b)?
    /// {
    ///     // Kernels on `a` may use memory of `b` now, whoever launches them.
    ///     a.enable_peer_access(b)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says, for devices that cannot reach each other among others.
    pub fn enable_peer_access(self, peer: Self) -> Result<()> {
        let _current = self.make_current("Device::enable_peer_access")?;
        // SAFETY: takes two integers; the flags must be 0.
        let code = unsafe { sys::cudaDeviceEnablePeerAccess(peer.0, 0) };
        match check("cudaDeviceEnablePeerAccess", code) {
            Err(_) if code == sys::cudaError::cudaErrorPeerAccessAlreadyEnabled => Ok(()),
            other => other,
        }
    }

    /// Wraps `cudaDeviceGetP2PAttribute`: one property of the way from this device to `peer`.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::P2pAttribute;
    /// # fn main() -> gpucomm::Result<()> {
    /// let all = Device::all()?;
    /// if let [a, b, ..] = all[..] {
    ///     println!("{a} to {b}: rank {} of the ways", a.p2p_attribute(b, P2pAttribute::PERFORMANCE_RANK)?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    pub fn p2p_attribute(self, peer: Self, attribute: P2pAttribute) -> Result<i32> {
        outside_host_functions("Device::p2p_attribute")?;
        let mut value = 0;
        // SAFETY: writes one integer to the address given; an unknown attribute is refused.
        let code = unsafe {
            let attribute = sys::cudaDeviceP2PAttr(attribute.0 as _);
            sys::cudaDeviceGetP2PAttribute(&raw mut value, attribute, self.0, peer.0)
        };
        check_on(self.0, "cudaDeviceGetP2PAttribute", code)?;
        Ok(value)
    }

    /// Wraps `cudaDeviceGetStreamPriorityRange`: the least and the greatest priority of streams. Greater ones are
    /// lower numbers.
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # use gpucomm::cuda::StreamOptions;
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = Device::new(0)?;
    /// let (_least, greatest) = device.stream_priority_range()?;
    /// let urgent = Stream::with_options(device, StreamOptions { priority: greatest, ..StreamOptions::default() })?;
    /// assert_eq!(urgent.priority()?, greatest);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    pub fn stream_priority_range(self) -> Result<(i32, i32)> {
        let _current = self.make_current("Device::stream_priority_range")?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two integers to the addresses given.
        let code = unsafe { sys::cudaDeviceGetStreamPriorityRange(&raw mut least, &raw mut greatest) };
        check("cudaDeviceGetStreamPriorityRange", code)?;
        Ok((least, greatest))
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
    pub fn set_current(self) -> Result<CurrentDevice> {
        self.make_current("Device::set_current")
    }

    /// [`Device::set_current`], as a part of `operation`.
    pub(crate) fn make_current(self, operation: &'static str) -> Result<CurrentDevice> {
        outside_host_functions(operation)?;
        let previous = current()?;
        if previous != self {
            set(self)?;
            THREAD.set(Thread::Ready);
        }
        Ok(CurrentDevice { device: self, previous, _thread: PhantomData })
    }

    /// Wraps `cudaSetDevice`: as [`Device::set_current`], but calls it in any case. For driver functions, which need
    /// the context that only this call binds to a thread.
    pub(crate) fn bind(self, operation: &'static str) -> Result<CurrentDevice> {
        outside_host_functions(operation)?;
        let previous = current()?;
        set(self)?;
        THREAD.set(Thread::Ready);
        Ok(CurrentDevice { device: self, previous, _thread: PhantomData })
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
pub(crate) fn restoring<R>(calls: impl FnOnce() -> Result<R>) -> Result<R> {
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

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "device {}", self.0)
    }
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

/// Refuses `operation`, which calls CUDA or may, within a host function of a stream.
pub(crate) fn outside_host_functions(operation: &'static str) -> Result<()> {
    if in_host_function() {
        return Err(Error::InvalidUsage {
            operation,
            reason: String::from("a host function of a stream must not call CUDA"),
        });
    }
    Ok(())
}

/// Whether this thread is running a host function of a stream, where CUDA must not be called.
pub(crate) fn in_host_function() -> bool {
    THREAD.get() == Thread::InHostFunction
}

/// Runs `f` as a host function of a stream. It must not unwind.
pub(crate) fn as_host_function(f: impl FnOnce()) {
    let before = THREAD.replace(Thread::InHostFunction);
    f();
    THREAD.set(before);
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
