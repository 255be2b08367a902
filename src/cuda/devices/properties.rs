//! What a device is.

use std::ffi::{CStr, c_char};

use super::attribute::DeviceAttribute;
use super::check::check_on;
use super::device::Device;
#[cfg(feature = "nccl")]
use super::settle::undisturbing;
use super::thread::outside_host_functions;
use crate::error::Result;
use crate::sys;

impl Device {
    /// Wraps `cudaGetDeviceProperties`: the name, such as `NVIDIA H200`.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// println!("{}", Device::new(0)?.name()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaGetDeviceProperties")]
    pub fn name(self) -> Result<String> {
        let info = self.info("Device::name")?;
        // SAFETY: `name` is an array of `char`, as long as this slice of bytes, and the zero at its end is looked for
        // within.
        let bytes = unsafe { std::slice::from_raw_parts(info.name.as_ptr().cast::<u8>(), info.name.len()) };
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Wraps `cudaGetDeviceProperties`: the 16 bytes that name this GPU among all.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// let mut uuids = Device::all()?.into_iter().map(Device::uuid).collect::<gpucomm::Result<Vec<_>>>()?;
    /// println!("the first one is {:02x?}", uuids[0]);
    /// uuids.sort();
    /// uuids.dedup();
    /// assert_eq!(uuids.len(), Device::count()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaGetDeviceProperties")]
    pub fn uuid(self) -> Result<[u8; 16]> {
        Ok(self.info("Device::uuid")?.uuid)
    }

    /// Wraps `cudaGetDeviceProperties`: bytes of device memory.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = Device::new(0)?;
    /// assert!(device.total_memory()? >= device.memory_info()?.free);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaGetDeviceProperties")]
    pub fn total_memory(self) -> Result<usize> {
        Ok(self.info("Device::total_memory")?.totalMemory)
    }

    fn info(self, operation: &'static str) -> Result<sys::gpucommDeviceInfo_t> {
        outside_host_functions(operation)?;
        let mut info = sys::gpucommDeviceInfo_t { name: [0; 256], uuid: [0; 16], totalMemory: 0 };
        // SAFETY: writes one struct to the address given.
        check_on(self.ordinal(), "cudaGetDeviceProperties", unsafe {
            sys::gpucommDeviceInfo(&raw mut info, self.ordinal())
        })?;
        Ok(info)
    }

    /// Wraps `cudaDeviceGetPCIBusId`: domain, bus, device and function, such as `0000:0a:00.0`.
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaDeviceGetPCIBusId")]
    pub fn pci_bus_id(self) -> Result<String> {
        outside_host_functions("Device::pci_bus_id")?;
        let mut text: [c_char; 64] = [0; 64];
        // SAFETY: writes at most 63 characters and a zero to an array of 64.
        check_on(self.ordinal(), "cudaDeviceGetPCIBusId", unsafe {
            sys::cudaDeviceGetPCIBusId(text.as_mut_ptr(), 63, self.ordinal())
        })?;
        // SAFETY: the last of the 64 characters is still zero, so a C string ends within the array.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        Ok(text.to_string_lossy().into_owned())
    }

    /// Wraps `cudaDeviceGetAttribute`: one property as a number.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::DeviceAttribute;
    /// # fn main() -> gpucomm::Result<()> {
    /// let device = Device::new(0)?;
    /// let blocks = 2 * device.attribute(DeviceAttribute::MULTIPROCESSOR_COUNT)?;
    /// // The number of any `cudaDeviceAttr` will do.
    /// let threads = device.attribute(DeviceAttribute(1))?;
    /// assert_eq!(threads, device.attribute(DeviceAttribute::MAX_THREADS_PER_BLOCK)?);
    /// # assert!(blocks > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says, for an attribute that it does not know among others.
    #[doc(alias = "cudaDeviceGetAttribute")]
    pub fn attribute(self, attribute: DeviceAttribute) -> Result<i32> {
        self.attribute_for("Device::attribute", attribute)
    }

    fn attribute_for(self, operation: &'static str, attribute: DeviceAttribute) -> Result<i32> {
        outside_host_functions(operation)?;
        let mut value = 0;
        // SAFETY: writes one integer to the address given; an unknown attribute is refused.
        let code = unsafe {
            sys::cudaDeviceGetAttribute(&raw mut value, sys::cudaDeviceAttr(attribute.0 as _), self.ordinal())
        };
        check_on(self.ordinal(), "cudaDeviceGetAttribute", code)?;
        Ok(value)
    }

    /// Wraps `cudaDeviceGetLimit` and `cudaDeviceSetLimit`: `cudaLimitStackSize` is at least so many bytes afterwards, and CUDA has
    /// made the local memory for it. Waits for the device.
    #[cfg(feature = "nccl")]
    pub(crate) fn raise_stack_limit(self, operation: &'static str, bytes: usize) -> Result<()> {
        let limit = sys::cudaLimit::cudaLimitStackSize;
        let _current = self.make_current(operation)?;
        undisturbing(|| {
            let mut now = 0;
            // SAFETY: writes one number to the address given.
            let code = unsafe { sys::cudaDeviceGetLimit(&raw mut now, limit) };
            check_on(self.ordinal(), "cudaDeviceGetLimit", code)?;
            // SAFETY: the function takes two numbers.
            let code = unsafe { sys::cudaDeviceSetLimit(limit, now.max(bytes)) };
            check_on(self.ordinal(), "cudaDeviceSetLimit", code)
        })
    }

    /// Wraps `cudaDeviceGetAttribute`: the compute capability, major and minor.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// if Device::new(0)?.compute_capability()? < (9, 0) {
    ///     eprintln!("this is older than Hopper");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cudaDeviceGetAttribute")]
    pub fn compute_capability(self) -> Result<(i32, i32)> {
        self.compute_capability_for("Device::compute_capability")
    }

    pub(crate) fn compute_capability_for(self, operation: &'static str) -> Result<(i32, i32)> {
        let major = self.attribute_for(operation, DeviceAttribute::COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute_for(operation, DeviceAttribute::COMPUTE_CAPABILITY_MINOR)?;
        Ok((major, minor))
    }
}
