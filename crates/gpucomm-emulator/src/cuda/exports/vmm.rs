//! Physical memory, and mapping it: functions of the driver that are looked up by name.

use super::Out;
use crate::cuda::core::device;
use crate::cuda::core::safety::{Function, functions};
use crate::cuda::frame::guarded;
use crate::cuda::tasks::{memory, multicast, refuse, vmm};
use crate::memory::access::Access;
use crate::memory::fault::Fault;
use crate::memory::space::physical::Nature;
use crate::memory::space::table;
use crate::refusals::Step;
use crate::report;
use crate::sys::*;
use std::ffi::{CStr, c_int, c_ulonglong, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};

/// What handles of descriptors and of fabrics are in a set of kinds of handles.
pub(super) const FD: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;
pub(super) const FABRIC: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC.0;

/// The handle of all memory of ncclMemAlloc.
const OF_NCCL: CUmemGenericAllocationHandle_v1 = u64::MAX;

type AddressRange = Option<unsafe extern "C" fn(*mut CUdeviceptr_v2, *mut usize, CUdeviceptr_v2) -> CUresult>;

/// The address of a driver function of this file, or null where there is none of that name.
pub(super) fn entry_point(symbol: &CStr) -> *mut c_void {
    macro_rules! table {
        ($($name:literal: $type:ident = $function:ident,)*) => {
            match symbol.to_bytes() {
                $($name => {
                    // As C declares it, or this does not compile.
                    let function: $type = Some($function);
                    function.map_or(std::ptr::null_mut(), |function| function as *mut c_void)
                })*
                _ => std::ptr::null_mut(),
            }
        };
    }
    if symbol.to_bytes() == b"cuDeviceGetAttribute" {
        let function: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> CUresult = attribute;
        return function as *mut c_void;
    }
    table! {
        b"cuMemGetAllocationGranularity": PFN_cuMemGetAllocationGranularity_v10020 = granularity,
        b"cuMemCreate": PFN_cuMemCreate_v10020 = create,
        b"cuMemRelease": PFN_cuMemRelease_v10020 = release,
        b"cuMemRetainAllocationHandle": PFN_cuMemRetainAllocationHandle_v11000 = retain,
        b"cuMemGetAllocationPropertiesFromHandle": PFN_cuMemGetAllocationPropertiesFromHandle_v10020 = properties,
        b"cuMemExportToShareableHandle": PFN_cuMemExportToShareableHandle_v10020 = export,
        b"cuMemImportFromShareableHandle": PFN_cuMemImportFromShareableHandle_v10020 = import,
        b"cuMemAddressReserve": PFN_cuMemAddressReserve_v10020 = reserve,
        b"cuMemAddressFree": PFN_cuMemAddressFree_v10020 = free,
        b"cuMemMap": PFN_cuMemMap_v10020 = map,
        b"cuMemUnmap": PFN_cuMemUnmap_v10020 = unmap,
        b"cuMemSetAccess": PFN_cuMemSetAccess_v10020 = set_access,
        b"cuMemGetAccess": PFN_cuMemGetAccess_v10020 = get_access,
        b"cuMemGetAddressRange": AddressRange = address_range,
    }
}

/// The frame of these functions. The driver gives codes only; why stands on stderr.
pub(super) fn driver(function: Function, work: impl FnOnce() -> Result<(), Fault>) -> CUresult {
    let explained = || {
        work().map_err(|fault| {
            report::line(format!("{}: {}", function.name, fault.text));
            fault.cuda
        })
    };
    // The codes of both interfaces agree wherever both have one.
    CUresult(guarded(function, explained).map_or_else(|error| error.0, |()| 0))
}

/// # Safety
/// As for [`Out::new`].
pub(super) unsafe fn out<T>(ptr: *mut T) -> Result<Out<T>, Fault> {
    // SAFETY: the caller vouches for it.
    unsafe { Out::new(ptr) }.map_err(|_| Fault::value("the place for the result is null"))
}

pub(super) fn unsupported(text: impl Into<String>) -> Fault {
    Fault { cuda: cudaError::cudaErrorNotSupported, text: text.into() }
}

/// What machines answer whose GPUs no fabric connects, or whose administrator has opened none to this process.
pub(super) fn no_fabric() -> Fault {
    Fault { cuda: cudaError::cudaErrorNotPermitted, text: "this machine has no fabric".into() }
}

pub(super) fn no_flags(flags: c_ulonglong) -> Result<(), Fault> {
    if flags == 0 { Ok(()) } else { Err(Fault::value(format!("the flags are {flags:#x}, expected 0"))) }
}

/// The device that a location means.
fn device_at(location: &CUmemLocation_v1) -> Result<c_int, Fault> {
    if location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(Fault::value(format!(
            "{} is no kind of place that is emulated, expected a device",
            location.type_.0
        )));
    }
    match device::device(location.id) {
        Ok(device) => Ok(device.ordinal),
        Err(cuda) => Err(Fault { cuda, text: format!("there is no device {}", location.id) }),
    }
}

/// What the properties ask for, which the caller of the C function points to.
///
/// # Safety
/// `prop` is null or can be read.
unsafe fn nature(prop: *const CUmemAllocationProp_v1) -> Result<Nature, Fault> {
    // SAFETY: the caller vouches for it.
    let prop = unsafe { prop.as_ref() }.ok_or_else(|| Fault::value("the properties are null"))?;
    if prop.type_ != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED || !prop.win32HandleMetaData.is_null() {
        return Err(Fault::value("expected pinned memory, without a description for Windows"));
    }
    let ordinal = device_at(&prop.location)?;
    let handles = prop.requestedHandleTypes.0;
    if handles & !(FD | FABRIC) != 0 || prop.allocFlags.usage != 0 {
        let usage = prop.allocFlags.usage;
        return Err(unsupported(format!(
            "handles {handles:#x} and usage {usage:#x} were asked for, expected {FD:#x}, {FABRIC:#x} or both, and 0"
        )));
    }
    Ok(Nature { ordinal, handles, rdma: prop.allocFlags.gpuDirectRDMACapable != 0 })
}

/// Those of virtual memory that H200s have: it as such, its descriptors, network cards, and fabric handles, which are of no use without
/// a fabric.
const MULTICAST: c_int = crate::sys::multicast::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED;
const HAS: [c_int; 4] = [102, 103, 110, 128];

unsafe extern "C" fn attribute(value: *mut c_int, attribute: c_int, ordinal: c_int) -> CUresult {
    driver(functions::cuDeviceGetAttribute, || {
        // SAFETY: as C declares it: an `int` to write to, or null.
        let out = unsafe { out(value)? };
        if device::device(ordinal).is_err() {
            let text = format!("there is no device {ordinal}");
            return Err(Fault { cuda: cudaError::cudaErrorInvalidDevice, text });
        }
        let value = match attribute {
            MULTICAST => c_int::from(multicast::is_supported()),
            _ if HAS.contains(&attribute) => 1,
            _ => {
                let text = format!("attribute {attribute} is not emulated, expected {MULTICAST} or one of {HAS:?}");
                return Err(Fault::value(text));
            }
        };
        out.set(value);
        Ok(())
    })
}

unsafe extern "C" fn granularity(
    granularity: *mut usize,
    prop: *const CUmemAllocationProp_v1,
    option: CUmemAllocationGranularity_flags,
) -> CUresult {
    driver(functions::cuMemGetAllocationGranularity, || {
        // SAFETY: as C declares it: a `size_t` to write to, and a struct to read.
        let (out, _) = unsafe { (out(granularity)?, nature(prop)?) };
        if option.0 > CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED.0 {
            return Err(Fault::value(format!("{} is no granularity", option.0)));
        }
        out.set(table::GRANULARITY);
        Ok(())
    })
}

unsafe extern "C" fn create(
    handle: *mut CUmemGenericAllocationHandle_v1,
    size: usize,
    prop: *const CUmemAllocationProp_v1,
    flags: c_ulonglong,
) -> CUresult {
    driver(functions::cuMemCreate, || {
        // SAFETY: as C declares it: a handle to write to, and a struct to read.
        let (out, nature) = unsafe { (out(handle)?, nature(prop)?) };
        no_flags(flags)?;
        if nature.handles & FABRIC != 0 {
            return Err(no_fabric());
        }
        out.set(vmm::create(size as u64, nature)?);
        Ok(())
    })
}

unsafe extern "C" fn release(handle: CUmemGenericAllocationHandle_v1) -> CUresult {
    driver(functions::cuMemRelease, || if handle == OF_NCCL { Ok(()) } else { vmm::release(handle) })
}

unsafe extern "C" fn retain(handle: *mut CUmemGenericAllocationHandle_v1, address: *mut c_void) -> CUresult {
    let retain = || {
        // SAFETY: as C declares it: a handle to write to, or null.
        let out = unsafe { out(handle)? };
        out.set(if memory::of_nccl(address.addr()).is_some() { OF_NCCL } else { vmm::retain(address.addr())? });
        Ok(())
    };
    // Who asks whether memory was mapped at all is told without a word on stderr.
    let retain = || retain().map_err(|fault: Fault| fault.cuda);
    CUresult(guarded(functions::cuMemRetainAllocationHandle, retain).map_or_else(|error| error.0, |()| 0))
}

unsafe extern "C" fn address_range(base: *mut CUdeviceptr_v2, bytes: *mut usize, address: CUdeviceptr_v2) -> CUresult {
    driver(functions::cuMemGetAddressRange, || {
        // SAFETY: as C declares it: places to write to, or null.
        let (base, bytes) = unsafe { (out(base)?, out(bytes)?) };
        let address = address as usize;
        let mapped = || table::at(address).map(|mapped| mapped.span());
        let (begin, length) = memory::around(address).or_else(mapped).ok_or_else(|| vmm::nothing_at(address))?;
        base.set(begin as CUdeviceptr_v2);
        bytes.set(length);
        Ok(())
    })
}

unsafe extern "C" fn properties(
    prop: *mut CUmemAllocationProp_v1,
    handle: CUmemGenericAllocationHandle_v1,
) -> CUresult {
    driver(functions::cuMemGetAllocationPropertiesFromHandle, || {
        // SAFETY: as C declares it: a struct to write to, or null.
        let out = unsafe { out(prop)? };
        let of_nccl = || Nature { ordinal: device::current_device(), handles: FD, rdma: true };
        let Nature { ordinal, handles, rdma } =
            if handle == OF_NCCL { of_nccl() } else { vmm::physical(handle)?.nature };
        out.set(CUmemAllocationProp_v1 {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType(handles),
            location: CUmemLocation_v1 { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: ordinal },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: u8::from(rdma),
                usage: 0,
                reserved: [0; 4],
            },
        });
        Ok(())
    })
}

unsafe extern "C" fn export(
    shareable: *mut c_void,
    handle: CUmemGenericAllocationHandle_v1,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> CUresult {
    driver(functions::cuMemExportToShareableHandle, || {
        // SAFETY: as C declares it for descriptors: an `int` to write to, or null. For others nothing is written.
        let out = unsafe { out(shareable.cast::<c_int>())? };
        no_flags(flags)?;
        let thing = vmm::thing(handle)?;
        let can = match &thing {
            vmm::Thing::Physical(physical) => physical.nature.handles,
            vmm::Thing::Multicast(multicast) => multicast.shape().handles,
        };
        if kind.0 != FD || can & FD == 0 {
            return Err(Fault::value(format!("a handle of kind {:#x} of what was made for {can:#x}", kind.0)));
        }
        let fd = match thing {
            vmm::Thing::Physical(physical) => physical.export(),
            vmm::Thing::Multicast(object) => refuse::refuse(Step::Export).map(|()| object.export())?,
        };
        let fd = fd.map_err(|error| Fault {
            cuda: cudaError::cudaErrorMemoryAllocation,
            text: format!("a descriptor: {error}"),
        })?;
        out.set(fd.into_raw_fd());
        Ok(())
    })
}

unsafe extern "C" fn import(
    handle: *mut CUmemGenericAllocationHandle_v1,
    shareable: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> CUresult {
    driver(functions::cuMemImportFromShareableHandle, || {
        // SAFETY: as C declares it: a handle to write to, or null.
        let out = unsafe { out(handle)? };
        if kind.0 == FABRIC {
            return Err(no_fabric());
        }
        let fd = c_int::try_from(shareable.addr()).ok().filter(|_| kind.0 == FD).ok_or_else(|| {
            Fault::value(format!("{:#x} is no descriptor, or {:#x} not the kind for one", shareable.addr(), kind.0))
        })?;
        // SAFETY: not negative. The caller keeps a descriptor of its own open during the call; where it is none, the copy fails.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
        out.set(vmm::import(fd.map_err(|error| Fault::value(format!("the descriptor: {error}")))?)?);
        Ok(())
    })
}

unsafe extern "C" fn reserve(
    address: *mut CUdeviceptr_v2,
    size: usize,
    alignment: usize,
    _wish: CUdeviceptr_v2,
    flags: c_ulonglong,
) -> CUresult {
    driver(functions::cuMemAddressReserve, || {
        // SAFETY: as C declares it: an address to write to, or null.
        let out = unsafe { out(address)? };
        no_flags(flags)?;
        out.set(table::reserve(size, alignment)? as CUdeviceptr_v2);
        Ok(())
    })
}

unsafe extern "C" fn free(address: CUdeviceptr_v2, size: usize) -> CUresult {
    driver(functions::cuMemAddressFree, || table::free(address as usize, size))
}

unsafe extern "C" fn map(
    address: CUdeviceptr_v2,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle_v1,
    flags: c_ulonglong,
) -> CUresult {
    driver(functions::cuMemMap, || {
        no_flags(flags)?;
        if offset != 0 {
            return Err(unsupported(format!("the offset is {offset}: the driver maps from the start only")));
        }
        match vmm::thing(handle)? {
            vmm::Thing::Physical(physical) => table::map(address as usize, size, &physical),
            vmm::Thing::Multicast(object) => multicast::map(&object, address as usize, size),
        }
    })
}

unsafe extern "C" fn unmap(address: CUdeviceptr_v2, size: usize) -> CUresult {
    driver(functions::cuMemUnmap, || vmm::unmap(address as usize, size))
}

unsafe extern "C" fn set_access(
    address: CUdeviceptr_v2,
    size: usize,
    rights: *const CUmemAccessDesc_v1,
    count: usize,
) -> CUresult {
    driver(functions::cuMemSetAccess, || {
        if rights.is_null() || count == 0 {
            return Err(Fault::value("expected some rights"));
        }
        // SAFETY: not null, so `count` structs to read, as the function is declared.
        let rights = unsafe { std::slice::from_raw_parts(rights, count) };
        let one = |right: &CUmemAccessDesc_v1| {
            let access = match right.flags {
                CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE => Access::None,
                CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ => Access::Read,
                CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => Access::ReadWrite,
                other => return Err(Fault::value(format!("{} is no right", other.0))),
            };
            Ok((device_at(&right.location)?, access))
        };
        let rights: Vec<_> = rights.iter().map(one).collect::<Result<_, _>>()?;
        table::set_access(address as usize, size, &rights)
    })
}

unsafe extern "C" fn get_access(
    flags: *mut c_ulonglong,
    location: *const CUmemLocation_v1,
    address: CUdeviceptr_v2,
) -> CUresult {
    driver(functions::cuMemGetAccess, || {
        // SAFETY: as C declares it: a number to write to, or null.
        let out = unsafe { out(flags)? };
        // SAFETY: as C declares it: a struct to read, or null.
        let location = unsafe { location.as_ref() }.ok_or_else(|| Fault::value("the location is null"))?;
        let device = device_at(location)?;
        let mapped = table::at(address as usize).ok_or_else(|| vmm::nothing_at(address as usize))?;
        out.set(mapped.rights.of(device) as c_ulonglong);
        Ok(())
    })
}
