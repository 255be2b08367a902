//! The functions of the CUDA driver that are looked up by name: contexts, fills, virtual memory and multicast objects.

use std::ffi::{CStr, c_int, c_uint, c_ulonglong, c_ushort, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};

use super::{Class, OnStream, guarded};
use crate::cuda::core::device::{self, current};
use crate::cuda::tasks::memset::{self, Shape};
use crate::cuda::tasks::{memory, multicast, vmm};
use crate::memory::access::Access;
use crate::memory::access::Fault;
use crate::memory::mapped;
use crate::memory::mapped::Nature;
use crate::memory::multicast::Shape as ObjectShape;
use crate::refusals::Step;
use crate::report;
use crate::settings::settings;
use crate::sys::multicast::*;
use crate::sys::*;
use crate::table::{self as exported, Function, In, OnNull, Out, exports};

type Error = Fault;
type Status = CUresult;

/// The kinds of handles, as bits of a set: a file descriptor, and a handle of a fabric.
const FD: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;
const FABRIC: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC.0;

/// The handle of all memory of ncclMemAlloc.
const OF_NCCL: CUmemGenericAllocationHandle_v1 = u64::MAX;

/// The versions of CUDA that introduced multicast, and the functions of it that name a device.
const FIRST: c_uint = 12010;
const SECOND: c_uint = 13010;

/// The attributes of virtual memory that H200s have: it as such, its descriptors, network cards, and fabric handles, which
/// are of no use without a fabric.
const HAS: [c_int; 4] = [102, 103, 110, 128];
const MULTICAST_SUPPORTED: c_int = CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED;

type AddressRange = Option<unsafe extern "C" fn(*mut CUdeviceptr_v2, *mut usize, CUdeviceptr_v2) -> CUresult>;

/// The address of a function of the driver of that version, or null if the emulator has none of that name.
pub(super) fn entry_point(symbol: &CStr, version: c_uint) -> *mut c_void {
    let name = symbol.to_str().unwrap_or_default();
    if let Some(found) = exported::address(&[GENERAL, MEMORY], name) {
        return found;
    }
    let has = &settings().multicast;
    // The driver refuses a version that is newer than itself.
    if has.old_driver || version < FIRST || version >= SECOND && !has.v2 {
        return std::ptr::null_mut();
    }
    let newest = (version >= SECOND).then(|| exported::address(&[of_devices::MULTICAST_OF_DEVICES], name)).flatten();
    newest.or_else(|| exported::address(&[MULTICAST], name)).unwrap_or(std::ptr::null_mut())
}

/// The frame of these functions. The driver returns codes only; the emulator gives the reason on stderr.
fn frame(function: Function<Class>, body: impl FnOnce() -> Result<(), Fault>) -> CUresult {
    let explained = || {
        body().map_err(|fault| {
            if !fault.text.is_empty() {
                report::line(format!("{}: {}", function.name, fault.text));
            }
            fault.cuda
        })
    };
    // The codes of both interfaces agree wherever both have one.
    CUresult(guarded(function, explained).map_or_else(|error| error.0, |()| 0))
}

impl OnNull for Fault {
    fn null() -> Self {
        Self::value("the place for the result is null")
    }
}

impl From<cudaError> for Fault {
    /// A failure that stderr does not explain.
    fn from(cuda: cudaError) -> Self {
        Self { cuda, text: String::new() }
    }
}

fn unsupported(text: impl Into<String>) -> Fault {
    Fault { cuda: cudaError::cudaErrorNotSupported, text: text.into() }
}

/// What machines answer whose GPUs no fabric connects, or whose administrator has opened none to this process.
fn no_fabric() -> Fault {
    Fault { cuda: cudaError::cudaErrorNotPermitted, text: "this machine has no fabric".into() }
}

fn no_flags(flags: c_ulonglong) -> Result<(), Fault> {
    if flags == 0 { Ok(()) } else { Err(Fault::value(format!("the flags are {flags:#x}, expected 0"))) }
}

fn pointer(address: CUdeviceptr_v2) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
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

/// The kind of memory that the properties ask for.
fn nature(prop: &In<CUmemAllocationProp_v1>) -> Result<Nature, Fault> {
    let prop = prop.get().ok_or_else(|| Fault::value("the properties are null"))?;
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

/// The multicast object that the properties ask for, and their flags.
fn shape(prop: &In<CUmulticastObjectProp>) -> Result<(ObjectShape, c_ulonglong), Fault> {
    let prop = prop.get().ok_or_else(|| Fault::value("the properties are null"))?;
    let handles = prop.handleTypes;
    if handles & !u64::from(FD | FABRIC) != 0 {
        return Err(unsupported(format!("handles {handles:#x}, expected {FD:#x}, {FABRIC:#x} or both")));
    }
    let shape = ObjectShape { devices: prop.numDevices, bytes: prop.size as u64, handles: handles as u32 };
    Ok((shape, prop.flags))
}

exports! { GENERAL: looked_up;
    /// A device has no context before its first use. The pointer is a name only: no caller reads from it.
    Free fn cuCtxGetCurrent(context: Out<*mut c_void>) {
        let device = current()?;
        context.set(if device.is_used() { std::ptr::from_ref(device).cast_mut().cast() } else { std::ptr::null_mut() });
        Ok(())
    }

    Free fn cuDevicePrimaryCtxGetState(ordinal: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let used = device::device(ordinal)?.is_used();
        flags.set(0);
        active.set(c_int::from(used));
        Ok(())
    }

    Free fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, ordinal: c_int) {
        if device::device(ordinal).is_err() {
            let text = format!("there is no device {ordinal}");
            return Err(Fault { cuda: cudaError::cudaErrorInvalidDevice, text });
        }
        value.set(match attribute {
            MULTICAST_SUPPORTED => c_int::from(multicast::is_supported()),
            _ if HAS.contains(&attribute) => 1,
            _ => {
                return Err(Fault::value(format!(
                    "attribute {attribute} is not emulated, expected {MULTICAST_SUPPORTED} or one of {HAS:?}"
                )));
            }
        });
        Ok(())
    }

    Enqueues fn cuMemsetD16Async(dst: CUdeviceptr_v2, value: c_ushort, count: usize, on: OnStream) |function| {
        Ok(memset::fill(function.name, pointer(dst), value, Shape::row(count), &on.stream)?)
    }

    Enqueues fn cuMemsetD32Async(dst: CUdeviceptr_v2, value: c_uint, count: usize, on: OnStream) |function| {
        Ok(memset::fill(function.name, pointer(dst), value, Shape::row(count), &on.stream)?)
    }

    Enqueues fn cuMemsetD2D32Async(
        dst: CUdeviceptr_v2,
        pitch: usize,
        value: c_uint,
        width: usize,
        height: usize,
        on: OnStream,
    ) |function| {
        Ok(memset::fill(function.name, pointer(dst), value, Shape { pitch, width, height }, &on.stream)?)
    }
}

exports! { MEMORY: looked_up;
    Free fn cuMemGetAllocationGranularity(
        granularity: Out<usize>,
        prop: In<CUmemAllocationProp_v1>,
        option: CUmemAllocationGranularity_flags,
    ): PFN_cuMemGetAllocationGranularity_v10020 {
        nature(&prop)?;
        if option.0 > CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED.0 {
            return Err(Fault::value(format!("{} is no granularity", option.0)));
        }
        granularity.set(mapped::GRANULARITY);
        Ok(())
    }

    Free fn cuMemCreate(
        handle: Out<CUmemGenericAllocationHandle_v1>,
        size: usize,
        prop: In<CUmemAllocationProp_v1>,
        flags: c_ulonglong,
    ): PFN_cuMemCreate_v10020 {
        let nature = nature(&prop)?;
        no_flags(flags)?;
        if nature.handles & FABRIC != 0 {
            return Err(no_fabric());
        }
        handle.set(vmm::create(size as u64, nature)?);
        Ok(())
    }

    Free fn cuMemRelease(handle: CUmemGenericAllocationHandle_v1): PFN_cuMemRelease_v10020 {
        if handle == OF_NCCL { Ok(()) } else { vmm::release(handle) }
    }

    Free fn cuMemRetainAllocationHandle(
        handle: Out<CUmemGenericAllocationHandle_v1>,
        address: *mut c_void,
    ): PFN_cuMemRetainAllocationHandle_v11000 {
        // Programs ask so whether memory was mapped at all: stderr explains nothing.
        let retained = || vmm::retain(address.addr()).map_err(|fault| fault.cuda);
        handle.set(if memory::of_nccl(address.addr()).is_some() { OF_NCCL } else { retained()? });
        Ok(())
    }

    Free fn cuMemGetAddressRange(
        base: Out<CUdeviceptr_v2>,
        bytes: Out<usize>,
        address: CUdeviceptr_v2,
    ): AddressRange {
        let address = address as usize;
        let mapped = || mapped::at(address).map(|mapped| mapped.span());
        let (begin, length) = memory::around(address).or_else(mapped).ok_or_else(|| vmm::nothing_at(address))?;
        base.set(begin as CUdeviceptr_v2);
        bytes.set(length);
        Ok(())
    }

    Free fn cuMemGetAllocationPropertiesFromHandle(
        prop: Out<CUmemAllocationProp_v1>,
        handle: CUmemGenericAllocationHandle_v1,
    ): PFN_cuMemGetAllocationPropertiesFromHandle_v10020 {
        let of_nccl = || Nature { ordinal: device::current_device(), handles: FD, rdma: true };
        let Nature { ordinal, handles, rdma } =
            if handle == OF_NCCL { of_nccl() } else { vmm::physical(handle)?.nature };
        prop.set(CUmemAllocationProp_v1 {
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
    }

    Free fn cuMemExportToShareableHandle(
        shareable: *mut c_void,
        handle: CUmemGenericAllocationHandle_v1,
        kind: CUmemAllocationHandleType,
        flags: c_ulonglong,
    ): PFN_cuMemExportToShareableHandle_v10020 {
        if shareable.is_null() {
            return Err(OnNull::null());
        }
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
            vmm::Thing::Multicast(object) => vmm::refuse(Step::Export).map(|()| object.export())?,
        };
        let fd = fd.map_err(|error| Fault {
            cuda: cudaError::cudaErrorMemoryAllocation,
            text: format!("a descriptor: {error}"),
        })?;
        // SAFETY: not null, and as C declares it for descriptors, an `int` to write to.
        unsafe { shareable.cast::<c_int>().write(fd.into_raw_fd()) };
        Ok(())
    }

    Free fn cuMemImportFromShareableHandle(
        handle: Out<CUmemGenericAllocationHandle_v1>,
        shareable: *mut c_void,
        kind: CUmemAllocationHandleType,
    ): PFN_cuMemImportFromShareableHandle_v10020 {
        if kind.0 == FABRIC {
            return Err(no_fabric());
        }
        let fd = c_int::try_from(shareable.addr()).ok().filter(|_| kind.0 == FD).ok_or_else(|| {
            Fault::value(format!("{:#x} is no descriptor, or {:#x} not the kind for one", shareable.addr(), kind.0))
        })?;
        // SAFETY: not negative. The caller keeps a descriptor of its own open during the call; if it is none, the copy fails.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
        handle.set(vmm::import(fd.map_err(|error| Fault::value(format!("the descriptor: {error}")))?)?);
        Ok(())
    }

    Free fn cuMemAddressReserve(
        address: Out<CUdeviceptr_v2>,
        size: usize,
        alignment: usize,
        _wish: CUdeviceptr_v2,
        flags: c_ulonglong,
    ): PFN_cuMemAddressReserve_v10020 {
        no_flags(flags)?;
        address.set(mapped::reserve(size, alignment)? as CUdeviceptr_v2);
        Ok(())
    }

    Free fn cuMemAddressFree(address: CUdeviceptr_v2, size: usize): PFN_cuMemAddressFree_v10020 {
        mapped::free(address as usize, size)
    }

    Free fn cuMemMap(
        address: CUdeviceptr_v2,
        size: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle_v1,
        flags: c_ulonglong,
    ): PFN_cuMemMap_v10020 {
        no_flags(flags)?;
        if offset != 0 {
            return Err(unsupported(format!("the offset is {offset}: the driver maps from the start only")));
        }
        match vmm::thing(handle)? {
            vmm::Thing::Physical(physical) => mapped::map(address as usize, size, &physical),
            vmm::Thing::Multicast(object) => multicast::map(&object, address as usize, size),
        }
    }

    Free fn cuMemUnmap(address: CUdeviceptr_v2, size: usize): PFN_cuMemUnmap_v10020 {
        vmm::unmap(address as usize, size)
    }

    Free fn cuMemSetAccess(
        address: CUdeviceptr_v2,
        size: usize,
        rights: *const CUmemAccessDesc_v1,
        count: usize,
    ): PFN_cuMemSetAccess_v10020 {
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
        mapped::set_access(address as usize, size, &rights)
    }

    Free fn cuMemGetAccess(
        flags: Out<c_ulonglong>,
        location: In<CUmemLocation_v1>,
        address: CUdeviceptr_v2,
    ): PFN_cuMemGetAccess_v10020 {
        let device = device_at(location.get().ok_or_else(|| Fault::value("the location is null"))?)?;
        let mapped = mapped::at(address as usize).ok_or_else(|| vmm::nothing_at(address as usize))?;
        flags.set(mapped.rights.of(device) as c_ulonglong);
        Ok(())
    }
}

fn bind(
    handle: CUmemGenericAllocationHandle_v1,
    device: Option<c_int>,
    at: usize,
    source: multicast::Source,
    size: usize,
    flags: u64,
) -> Result<(), Fault> {
    no_flags(flags)?;
    multicast::bind(handle, device, at as u64, source, size as u64)
}

exports! { MULTICAST: looked_up;
    Free fn cuMulticastGetGranularity(
        granularity: Out<usize>,
        prop: In<CUmulticastObjectProp>,
        option: c_uint,
    ): Option<PFN_cuMulticastGetGranularity> {
        let (minimum, recommended) = multicast::granularity(shape(&prop)?.0.bytes)?;
        match option {
            CU_MULTICAST_GRANULARITY_MINIMUM => granularity.set(minimum),
            CU_MULTICAST_GRANULARITY_RECOMMENDED => granularity.set(recommended),
            other => return Err(Fault::value(format!("{other} is no granularity"))),
        }
        Ok(())
    }

    Free fn cuMulticastCreate(
        handle: Out<CUmemGenericAllocationHandle_v1>,
        prop: In<CUmulticastObjectProp>,
    ): Option<PFN_cuMulticastCreate> {
        let (shape, flags) = shape(&prop)?;
        no_flags(flags)?;
        if shape.handles & FABRIC != 0 {
            return Err(no_fabric());
        }
        handle.set(multicast::create(shape)?);
        Ok(())
    }

    Free fn cuMulticastAddDevice(
        handle: CUmemGenericAllocationHandle_v1,
        device: c_int,
    ): Option<PFN_cuMulticastAddDevice> {
        multicast::add(handle, device)
    }

    Free fn cuMulticastBindMem(
        handle: CUmemGenericAllocationHandle_v1,
        at: usize,
        memory: CUmemGenericAllocationHandle_v1,
        from: usize,
        size: usize,
        flags: u64,
    ): Option<PFN_cuMulticastBindMem> {
        bind(handle, None, at, multicast::Source::Memory(memory, from as u64), size, flags)
    }

    Free fn cuMulticastBindAddr(
        handle: CUmemGenericAllocationHandle_v1,
        at: usize,
        address: u64,
        size: usize,
        flags: u64,
    ): Option<PFN_cuMulticastBindAddr> {
        bind(handle, None, at, multicast::Source::Address(address as usize), size, flags)
    }

    Free fn cuMulticastUnbind(
        handle: CUmemGenericAllocationHandle_v1,
        device: c_int,
        at: usize,
        size: usize,
    ): Option<PFN_cuMulticastUnbind> {
        multicast::unbind(handle, device, at as u64, size as u64)
    }
}

/// The functions that take the place of those of the same name from CUDA 13.1 on.
pub mod of_devices {
    use super::*;

    exports! { MULTICAST_OF_DEVICES: looked_up;
        Free fn cuMulticastBindMem(
            handle: CUmemGenericAllocationHandle_v1,
            device: c_int,
            at: usize,
            memory: CUmemGenericAllocationHandle_v1,
            from: usize,
            size: usize,
            flags: u64,
        ): Option<PFN_cuMulticastBindMem_v2> {
            bind(handle, Some(device), at, multicast::Source::Memory(memory, from as u64), size, flags)
        }

        Free fn cuMulticastBindAddr(
            handle: CUmemGenericAllocationHandle_v1,
            device: c_int,
            at: usize,
            address: u64,
            size: usize,
            flags: u64,
        ): Option<PFN_cuMulticastBindAddr_v2> {
            bind(handle, Some(device), at, multicast::Source::Address(address as usize), size, flags)
        }
    }
}
