//! Where memory lies, as C has it.

use std::ffi::{c_int, c_uint};

use crate::cuda::devices::device::Device;
use crate::sys;

/// A `CUmemLocation`: newer headers put the number into a union, which changes what it is called and not where it is.
#[repr(C)]
#[derive(Clone, Copy)]
struct Place {
    kind: c_uint,
    id: c_int,
}

const _: () = assert!(size_of::<Place>() == size_of::<sys::CUmemLocation_v1>());
const _: () = assert!(align_of::<Place>() == align_of::<sys::CUmemLocation_v1>());

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: c_uint = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0;

/// On `device`.
pub(super) fn on(device: Device) -> sys::CUmemLocation_v1 {
    let place = Place { kind: DEVICE, id: device.ordinal() };
    // SAFETY: two integers of the same size and alignment, which cuda.h declares in this order.
    unsafe { std::mem::transmute::<Place, sys::CUmemLocation_v1>(place) }
}

/// The ordinal of the device that is meant, if one is.
pub(super) fn ordinal(location: sys::CUmemLocation_v1) -> Option<c_int> {
    // SAFETY: as above; any bits are integers.
    let place = unsafe { std::mem::transmute::<sys::CUmemLocation_v1, Place>(location) };
    (place.kind == DEVICE).then_some(place.id)
}
