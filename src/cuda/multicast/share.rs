//! Multicast objects that several processes have: exported by one, imported by others.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::functions::{check, functions};
use super::object::Object;
use super::properties::ObjectProperties;
use super::state::{Building, Multicast};
use super::support::check_properties;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::thread::outside_host_functions;
use crate::cuda::vmm::functions as memory;
use crate::cuda::vmm::{FabricHandle, HandleTypes};
use crate::error::{Error, Result};
use crate::sys;

impl Multicast<Building> {
    /// Wraps `cuMemExportToShareableHandle`: a descriptor by which another process of this host [imports](Multicast::import_fd) the object.
    /// This one keeps its own until all have: who imports a descriptor of an object that nobody has any more gets one of its own. [`Multicast::join`]
    /// sees to that.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, ObjectProperties};
    /// # use gpucomm::cuda::vmm::HandleTypes;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let properties = ObjectProperties::new(2, 1 << 20).with_handle_types(HandleTypes::FD).rounded()?;
    /// let building = Multicast::create(&properties)?;
    /// let fd: std::os::fd::OwnedFd = building.export_fd()?;
    /// // The descriptor has come over a socket, and the properties with it.
    /// // SAFETY: it is one of a multicast object, which was made with these.
    /// let theirs = unsafe { Multicast::import_fd(&fd, &properties)? };
    /// # drop(theirs);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for an object that was not [made](ObjectProperties::handle_types) for [`HandleTypes::FD`]; what
    /// CUDA says.
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export_fd(&self) -> Result<OwnedFd> {
        let mut fd: c_int = -1;
        // SAFETY: a handle of this kind is an integer, for which there is a place.
        unsafe { self.export("Multicast::export_fd", HandleTypes::FD, (&raw mut fd).cast()) }?;
        // SAFETY: the driver has given us this descriptor, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Wraps `cuMemExportToShareableHandle`: a handle by which processes on other hosts of the fabric [import](Multicast::import_fabric) the
    /// object, sent by any means. As [`Multicast::export_fd`].
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, ObjectProperties};
    /// # use gpucomm::cuda::vmm::HandleTypes;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let properties = ObjectProperties::new(2, 1 << 20).with_handle_types(HandleTypes::FABRIC).rounded()?;
    /// match Multicast::create(&properties) {
    ///     Ok(building) => println!("{:?}", building.export_fabric()?),
    ///     Err(error) => println!("there is no fabric here: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there, for [`HandleTypes::FABRIC`].
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export_fabric(&self) -> Result<FabricHandle> {
        let mut handle = FabricHandle([0; 64]);
        // SAFETY: a handle of this kind is 64 bytes, for which there is a place.
        unsafe { self.export("Multicast::export_fabric", HandleTypes::FABRIC, handle.0.as_mut_ptr().cast()) }?;
        Ok(handle)
    }

    /// # Safety
    /// There is a place for a handle of this kind at `place`.
    unsafe fn export(&self, operation: &'static str, kind: HandleTypes, place: *mut c_void) -> Result<()> {
        const FUNCTION: &str = "cuMemExportToShareableHandle";
        outside_host_functions(operation)?;
        let has = self.properties().handle_types();
        if !has.contains(kind) {
            let expected = format!("an object that was made for {kind}");
            return Err(Error::argument(operation, "multicast", expected, format_args!("one that has {has}")));
        }
        let export = memory::export(operation)?;
        // SAFETY: the handle is live, and there is a place, as the caller promises.
        let result = unsafe { export(place, self.as_raw(), sys::CUmemAllocationHandleType(kind.bits()), 0) };
        check(FUNCTION, Device::current()?, result, || self.properties().to_string())
    }

    /// Wraps `cuMemImportFromShareableHandle`: the object that another process has exported as this descriptor, which stays open.
    ///
    /// # Safety
    /// The descriptor is one of a multicast object that was made with these properties.
    ///
    /// # Errors
    /// As [`Multicast::create`]; what CUDA says.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub unsafe fn import_fd(fd: impl AsFd, properties: &ObjectProperties) -> Result<Self> {
        let fd = std::ptr::without_provenance_mut(fd.as_fd().as_raw_fd() as usize);
        // SAFETY: a handle of this kind is the descriptor itself, which stays open during the call.
        unsafe { import("Multicast::import_fd", HandleTypes::FD, fd, properties) }
    }

    /// Wraps `cuMemImportFromShareableHandle`: the object that another process has exported as this handle.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Building, Multicast, ObjectProperties};
    /// # use gpucomm::cuda::vmm::FabricHandle;
    /// # use gpucomm::Result;
    /// fn import(bytes: [u8; 64], properties: &ObjectProperties) -> Result<Multicast<Building>> {
    ///     // SAFETY: the process that has sent these bytes has made the object with these properties.
    ///     unsafe { Multicast::import_fabric(&FabricHandle(bytes), properties) }
    /// }
    /// # if gpucomm::backend() == gpucomm::Backend::Emulator {
    /// #     assert!(import([0; 64], &ObjectProperties::new(2, 2 << 20)).is_err());
    /// # }
    /// ```
    ///
    /// # Safety
    /// As [`Multicast::import_fd`].
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub unsafe fn import_fabric(handle: &FabricHandle, properties: &ObjectProperties) -> Result<Self> {
        let place = handle.0.as_ptr().cast_mut().cast();
        // SAFETY: a handle of this kind is 64 bytes, which are there.
        unsafe { import("Multicast::import_fabric", HandleTypes::FABRIC, place, properties) }
    }
}

/// # Safety
/// As the handle's kind demands of `place`, and as of [`Multicast::import_fd`].
unsafe fn import(
    operation: &'static str,
    kind: HandleTypes,
    place: *mut c_void,
    properties: &ObjectProperties,
) -> Result<Multicast<Building>> {
    const FUNCTION: &str = "cuMemImportFromShareableHandle";
    outside_host_functions(operation)?;
    functions(operation)?;
    check_properties(operation, properties)?;
    let (steps, import) = (properties.granularity()?, memory::import(operation)?);
    let mut raw = 0;
    // SAFETY: writes a handle to the place given; what it reads is there, as the caller promises.
    let result = unsafe { import(&raw mut raw, place, sys::CUmemAllocationHandleType(kind.bits())) };
    check(FUNCTION, Device::current()?, result, || properties.to_string())?;
    Ok(Multicast::of(Object::new(raw, *properties, steps)))
}
