//! What a multicast object is to be like.

use super::functions::{check, functions};
use crate::cuda::devices::device::Device;
use crate::cuda::vmm::{Granularity, HandleTypes};
use crate::error::{Error, Result};
use crate::sys::multicast as c;

/// What a multicast object is to be like: a `CUmulticastObjectProp`.
///
/// ```
/// # use gpucomm::cuda::multicast::{Multicast, ObjectProperties};
/// # use gpucomm::cuda::vmm::HandleTypes;
/// # use gpucomm::Device;
/// # fn main() -> gpucomm::Result<()> {
/// let devices = Device::all()?;
/// if Multicast::supported(&devices)? {
///     let properties = ObjectProperties::new(devices.len(), 1 << 20).with_handle_types(HandleTypes::FD).rounded()?;
///     assert!(properties.bytes() >= 1 << 20);
///     assert_eq!((properties.devices(), properties.handle_types()), (devices.len(), HandleTypes::FD));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectProperties {
    devices: usize,
    bytes: usize,
    handle_types: HandleTypes,
}

impl ObjectProperties {
    /// For so many devices, of all processes together, and so many bytes of each.
    pub fn new(devices: usize, bytes: usize) -> Self {
        Self { devices, bytes, handle_types: HandleTypes::NONE }
    }

    /// By which handles the object can be shared with other processes. Memory that is bound to it must be of that kind, too.
    #[must_use]
    pub fn with_handle_types(mut self, handle_types: HandleTypes) -> Self {
        self.handle_types = handle_types;
        self
    }

    /// For how many devices.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// How many bytes of each.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// By which handles it can be shared.
    pub fn handle_types(&self) -> HandleTypes {
        self.handle_types
    }

    /// Wraps `cuMulticastGetGranularity`: the least step of sizes, offsets and addresses, and the recommended one, which depends on
    /// [`ObjectProperties::bytes`]: on H200s with driver 580 2 MiB, and 512 MiB for objects of 512 MiB and more.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, ObjectProperties};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let devices = Device::all()?;
    /// if Multicast::supported(&devices)? {
    ///     let steps = ObjectProperties::new(devices.len(), 1 << 30).granularity()?;
    ///     assert_eq!(steps.recommended % steps.minimum, 0);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Multicast`](Error::Multicast) where driver or devices have no multicast; what CUDA says.
    #[doc(alias = "cuMulticastGetGranularity")]
    pub fn granularity(&self) -> Result<Granularity> {
        const FUNCTION: &str = "cuMulticastGetGranularity";
        let device = Device::current()?;
        device.ready(FUNCTION)?;
        let (function, raw) = (functions(FUNCTION)?.granularity, self.raw());
        let ask = |which| {
            let mut bytes = 0;
            // SAFETY: writes one number to the place given, and reads the properties.
            let result = unsafe { function(&raw mut bytes, &raw const raw, which) };
            check(FUNCTION, device, result, || self.to_string()).map(|()| bytes)
        };
        Ok(Granularity {
            minimum: ask(c::CU_MULTICAST_GRANULARITY_MINIMUM)?,
            recommended: ask(c::CU_MULTICAST_GRANULARITY_RECOMMENDED)?,
        })
    }

    /// The same for the next size that is a multiple of the recommended step, and at least one step.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, ObjectProperties};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let devices = Device::all()?;
    /// if Multicast::supported(&devices)? {
    ///     let properties = ObjectProperties::new(devices.len(), 1000).rounded()?;
    ///     assert_eq!(properties.bytes() % properties.granularity()?.minimum, 0);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`ObjectProperties::granularity`]; [`InvalidArgument`](Error::InvalidArgument) where there is no such size.
    pub fn rounded(self) -> Result<Self> {
        let step = self.granularity()?.recommended;
        let bytes = self.bytes.max(1).checked_next_multiple_of(step).ok_or_else(|| {
            let expected = format!("at most {}", usize::MAX / step * step);
            Error::argument("ObjectProperties::rounded", "bytes", expected, self.bytes)
        })?;
        Ok(Self { bytes, ..self })
    }

    /// As C has it.
    pub(super) fn raw(&self) -> c::CUmulticastObjectProp {
        c::CUmulticastObjectProp {
            numDevices: u32::try_from(self.devices).unwrap_or(u32::MAX),
            size: self.bytes,
            handleTypes: u64::from(self.handle_types.bits()),
            flags: 0,
        }
    }
}

impl std::fmt::Display for ObjectProperties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a multicast object of {} devices and {} bytes, with {}", self.devices, self.bytes, self.handle_types)
    }
}
