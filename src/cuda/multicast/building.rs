//! Multicast objects from their making to the last device.

use super::functions::{check, functions, no_fabric};
use super::object::Object;
use super::patience::persist;
use super::properties::ObjectProperties;
use super::state::{Building, Complete, Multicast};
use super::support::{check_device, check_properties};
use crate::cuda::devices::device::Device;
use crate::cuda::vmm::HandleTypes;
use crate::error::{Error, Result};
use crate::sys;

impl Multicast<Building> {
    /// Wraps `cuMulticastCreate`: an object with no devices as yet.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, ObjectProperties};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let devices = Device::all()?;
    /// let mut building = Multicast::create(&ObjectProperties::new(devices.len(), 1 << 20).rounded()?)?;
    /// for device in devices {
    ///     building.add(device)?;
    /// }
    /// let complete = building.complete()?;
    /// # complete.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for no devices, or a size that is no multiple of the least step;
    /// [`Multicast`](Error::Multicast) where driver or devices have no multicast, or the switches have no room;
    /// [`Unsupported`](Error::Unsupported) for fabric handles where there is no fabric; what CUDA says.
    #[doc(alias = "cuMulticastCreate")]
    pub fn create(properties: &ObjectProperties) -> Result<Self> {
        const FUNCTION: &str = "cuMulticastCreate";
        check_properties(FUNCTION, properties)?;
        let (device, function, raw) = (Device::current()?, functions(FUNCTION)?.create, properties.raw());
        let steps = properties.granularity()?;
        let mut handle = 0;
        // Nobody has given it a timeout as yet.
        let deadline = Object::new(0, *properties, steps).deadline();
        persist(&deadline, || {
            // SAFETY: writes a handle to the place given, and reads the properties.
            let result = unsafe { function(&raw mut handle, &raw const raw) };
            check_create(device, result, properties)
        })?;
        Ok(Self::of(Object::new(handle, *properties, steps)))
    }

    /// Wraps `cuMulticastAddDevice`: adds a device, for good. Where the system is not ready, it is asked again for a while.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a device that was added before, and one too many; [`Multicast`](Error::Multicast)
    /// where the device has no multicast, is not connected with the others, where the fabric is in the wrong state, or the system not ready;
    /// what CUDA says.
    #[doc(alias = "cuMulticastAddDevice")]
    pub fn add(&mut self, device: Device) -> Result<()> {
        let object = self.object_mut();
        let deadline = object.deadline();
        persist(&deadline, || add(object, device))
    }

    /// All devices are devices of this process, and were added. Where other processes add some, [`Multicast::agree`] finds out.
    ///
    /// # Errors
    /// [`InvalidUsage`](Error::InvalidUsage) where some are missing: what is bound then would block. The object is gone.
    pub fn complete(self) -> Result<Multicast<Complete>> {
        let (added, wanted) = (self.devices().len(), self.properties().devices());
        if added != wanted {
            let reason = format!(
                "expected all {wanted} devices to be added, got {added}: whatever is bound would block until the others are"
            );
            return Err(Error::InvalidUsage { operation: "Multicast::complete", reason });
        }
        Ok(Multicast::of(self.into_object()))
    }
}

/// What cuMulticastCreate came to. There are multicast objects, and where this one is for fabric handles, these may be what is missing.
fn check_create(device: Device, result: sys::CUresult, properties: &ObjectProperties) -> Result<()> {
    const FUNCTION: &str = "cuMulticastCreate";
    if matches!(result.0, 800 | 801) && properties.handle_types().contains(HandleTypes::FABRIC) {
        return Err(no_fabric(FUNCTION));
    }
    check(FUNCTION, device, result, || properties.to_string())
}

/// Adds a device of this process.
pub(super) fn add(object: &mut Object, device: Device) -> Result<()> {
    const FUNCTION: &str = "cuMulticastAddDevice";
    let wanted = object.properties.devices();
    if object.devices.len() >= wanted {
        let expected = format!("no more than {wanted} devices");
        return Err(Error::argument(FUNCTION, "device", expected, format_args!("{device} as well")));
    }
    check_device(FUNCTION, device, &object.devices)?;
    let function = functions(FUNCTION)?.add;
    // SAFETY: a live object. The handle of a device in the driver is its ordinal.
    let result = unsafe { function(object.raw, device.ordinal()) };
    check(FUNCTION, device, result, || format!("device {} of {wanted}", object.devices.len() + 1))?;
    object.devices.push(device);
    Ok(())
}

impl Multicast<Complete> {
    /// Wraps `cuMulticastCreate` and `cuMulticastAddDevice`: an object of at least `bytes` bytes of each of these devices, all of this process,
    /// in [recommended steps](ObjectProperties::rounded).
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::Multicast;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let devices = Device::all()?;
    /// let multicast = Multicast::single_process(&devices, 1 << 20)?;
    /// assert_eq!(multicast.devices(), devices);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Multicast::create`] and [`Multicast::add`]; [`InvalidArgument`](Error::InvalidArgument) for no devices.
    #[doc(alias("cuMulticastCreate", "cuMulticastAddDevice"))]
    pub fn single_process(devices: &[Device], bytes: usize) -> Result<Self> {
        const OPERATION: &str = "Multicast::single_process";
        if devices.is_empty() {
            return Err(Error::argument(OPERATION, "devices", "at least one device", "none"));
        }
        for (at, device) in devices.iter().enumerate() {
            check_device(OPERATION, *device, &devices[..at])?;
        }
        let mut building = Multicast::create(&ObjectProperties::new(devices.len(), bytes).rounded()?)?;
        devices.iter().try_for_each(|device| building.add(*device))?;
        building.complete()
    }

    /// An object that somebody else has made, by its `CUmemGenericAllocationHandle`, of which `devices` are devices of this process. It belongs
    /// to this crate from now on, which releases it.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Complete, Multicast, ObjectProperties};
    /// # use gpucomm::{Device, Result};
    /// # fn main() -> Result<()> {
    /// fn take(theirs: u64, bytes: usize, devices: &[Device]) -> Result<Multicast<Complete>> {
    ///     let properties = ObjectProperties::new(devices.len(), bytes);
    ///     // SAFETY: their library has made it so, and added these devices; it neither uses nor releases it any more.
    ///     unsafe { Multicast::from_raw(theirs, &properties, devices) }
    /// }
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// # let devices = Device::all()?;
    /// # let theirs = Multicast::single_process(&devices, 1)?;
    /// # let (raw, bytes) = (theirs.as_raw(), theirs.properties().bytes());
    /// # std::mem::forget(theirs);
    /// # take(raw, bytes, &devices)?.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// - `raw` is the handle of a multicast object that was made with these properties, and nobody else releases it.
    /// - These devices were added to it, and nothing is bound for them.
    /// - Where other processes have it, none of them writes to it any more when it is closed or dropped here, or unbound: nobody asks them.
    ///
    /// That devices of other processes were not added is found at the first [bind](Multicast::bind), at its deadline.
    ///
    /// # Errors
    /// As [`Multicast::create`]. It still belongs to the caller then.
    pub unsafe fn from_raw(raw: u64, properties: &ObjectProperties, devices: &[Device]) -> Result<Self> {
        const OPERATION: &str = "Multicast::from_raw";
        check_properties(OPERATION, properties)?;
        for (at, device) in devices.iter().enumerate() {
            check_device(OPERATION, *device, &devices[..at])?;
        }
        let steps = properties.granularity()?;
        let mut object = Object::new(raw, *properties, steps);
        object.devices = devices.to_vec();
        Ok(Self::of(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;

    #[test]
    fn what_is_missing_is_the_fabric_or_multicast() {
        let Ok(device) = Device::new(0) else { return };
        let create = |code, handles| {
            let properties = ObjectProperties::new(2, 2 << 20).with_handle_types(handles);
            check_create(device, sys::CUresult(code), &properties).unwrap_err()
        };
        for code in [800, 801] {
            assert!(matches!(create(code, HandleTypes::FABRIC), Error::Unsupported { .. }), "{code}");
        }
        assert!(matches!(create(801, HandleTypes::FD), Error::Multicast { why: Refusal::NotSupported, .. }));
        assert!(matches!(create(800, HandleTypes::FD), Error::Cuda { code: crate::CudaCode(800), .. }));
    }
}
