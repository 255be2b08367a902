//! Devices.

use std::ffi::CString;
use std::sync::OnceLock;

use super::check::check;
use super::thread::{note_use, outside_host_functions};
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
pub struct Device(pub(super) i32);

/// Memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free.
    pub free: usize,
    /// In all.
    pub total: usize,
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
    #[doc(alias = "cudaGetDeviceCount")]
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
        note_use();
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
    #[doc(alias = "cudaDeviceGetByPCIBusId")]
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
    #[doc(alias = "cudaMemGetInfo")]
    pub fn memory_info(self) -> Result<MemoryInfo> {
        let _current = self.make_current("Device::memory_info")?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers to the addresses given.
        check("cudaMemGetInfo", unsafe { sys::cudaMemGetInfo(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo { free, total })
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
    /// let urgent = Stream::new_with(device, &StreamOptions::new().with_priority(greatest))?;
    /// assert_eq!(urgent.priority()?, greatest);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaDeviceGetStreamPriorityRange")]
    pub fn stream_priority_range(self) -> Result<(i32, i32)> {
        let _current = self.make_current("Device::stream_priority_range")?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two integers to the addresses given.
        let code = unsafe { sys::cudaDeviceGetStreamPriorityRange(&raw mut least, &raw mut greatest) };
        check("cudaDeviceGetStreamPriorityRange", code)?;
        Ok((least, greatest))
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "device {}", self.0)
    }
}
