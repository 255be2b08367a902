//! Whether there is multicast.

use super::functions::{refused, why_not};
use super::properties::ObjectProperties;
use super::state::{Building, Multicast};
use crate::cuda::devices::device::Device;
use crate::cuda::vmm::PhysicalMemory;
use crate::error::{Error, Result};
use crate::refusal::Refusal;

impl Multicast<Building> {
    /// Whether driver and devices have multicast, as attributes say: see [`Multicast::why_not`].
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::Multicast;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// if !Multicast::supported(&Device::all()?)? {
    ///     println!("each device is written to in its turn");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    pub fn supported(devices: &[Device]) -> Result<bool> {
        Ok(Self::why_not(devices)?.is_none())
    }

    /// Wraps `cuDeviceGetAttribute`: why these devices cannot have a multicast object in common, as far as the driver tells without making
    /// one. That it names no reason is not enough: that the devices belong to one domain stands in no attribute, nor whether the fabric is in
    /// order; [`Multicast::probe`] tries it.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::Multicast;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// if let Some(why) = Multicast::why_not(&Device::all()?)? {
    ///     println!("{why}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "cuDeviceGetAttribute")]
    pub fn why_not(devices: &[Device]) -> Result<Option<Refusal>> {
        const OPERATION: &str = "Multicast::why_not";
        for (at, device) in devices.iter().enumerate() {
            if let Some(why) = why_not(OPERATION, *device)? {
                return Ok(Some(why));
            }
            if !are_connected(*device, &devices[..at])? {
                return Ok(Some(Refusal::NotConnected));
            }
        }
        Ok(None)
    }

    /// Makes an object for these devices, binds memory of each to it, and takes it down: the error is what stands in the way. It takes a step of
    /// memory of each device, and room in the switches, which other programs may be missing meanwhile: so nothing here does it unasked.
    ///
    /// ```
    /// # use gpucomm::{Device, Error};
    /// # use gpucomm::cuda::multicast::Multicast;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// match Multicast::probe(&Device::all()?) {
    ///     Ok(()) => println!("it works"),
    ///     Err(Error::Multicast { why, detail, .. }) => println!("{detail}: {}", why.advice()),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Multicast::single_process`], [`Multicast::bind`] and [`Multicast::close`].
    pub fn probe(devices: &[Device]) -> Result<()> {
        let complete = Multicast::single_process(devices, 1)?;
        let bytes = complete.properties().bytes();
        let memory: Vec<_> = devices.iter().map(|device| PhysicalMemory::new(*device, bytes)).collect::<Result<_>>()?;
        complete.bind_all(&memory)?.close()
    }
}

/// Whether a device reaches the others, and they reach it. Where not, they have no switch in common.
pub(super) fn are_connected(device: Device, others: &[Device]) -> Result<bool> {
    for other in others.iter().filter(|other| **other != device) {
        if !device.can_access_peer(*other)? || !other.can_access_peer(device)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Refuses a device that cannot be added beside others.
pub(super) fn check_device(operation: &'static str, device: Device, others: &[Device]) -> Result<()> {
    if others.contains(&device) {
        return Err(Error::argument(operation, "device", "each device once", format_args!("{device} twice")));
    }
    if let Some(why) = why_not(operation, device)? {
        return Err(refused(operation, why, device));
    }
    if !are_connected(device, others)? {
        return Err(refused(operation, Refusal::NotConnected, format_args!("{device} beside {others:?}")));
    }
    Ok(())
}

/// Refuses properties of which there can be no object.
pub(super) fn check_properties(operation: &'static str, properties: &ObjectProperties) -> Result<()> {
    if properties.devices() == 0 || u32::try_from(properties.devices()).is_err() {
        return Err(Error::argument(operation, "devices", format!("1 to {} devices", u32::MAX), properties.devices()));
    }
    let step = properties.granularity()?.minimum;
    if properties.bytes() == 0 || !properties.bytes().is_multiple_of(step) {
        let expected = format!("a multiple of {step}, as by ObjectProperties::rounded");
        return Err(Error::argument(operation, "bytes", expected, properties.bytes()));
    }
    Ok(())
}
