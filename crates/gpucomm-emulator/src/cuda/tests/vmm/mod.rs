//! Memory that programs map themselves.

mod access;
mod checks;
mod processes;
mod random;

use super::copies::entry;
use super::*;
use crate::report;
use std::ffi::{c_int, c_ulonglong};

const GRAIN: usize = 2 << 20;
const VALUE: u32 = INVALID.0;
/// Where a part of some memory was to be mapped.
const PARTLY: u32 = cudaError::cudaErrorNotSupported.0;
const FD: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
const FABRIC: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
const NONE: u32 = 0;
const READ: u32 = 1;
const BOTH: u32 = 3;

/// Functions of the driver, looked up under their names as C declares them, which answer with a code.
macro_rules! driver {
    ($($name:ident: $symbol:literal $pointer:ident($($argument:ident: $type:ty),*);)*) => {
        $(fn $name($($argument: $type),*) -> u32 {
            let function = c!(std::mem::transmute::<*mut c_void, $pointer>(entry($symbol)));
            c!(function.unwrap()($($argument),*)).0
        })*
    };
}

driver! {
    granularity: c"cuMemGetAllocationGranularity" PFN_cuMemGetAllocationGranularity_v10020(
        bytes: *mut usize, prop: *const CUmemAllocationProp_v1, option: CUmemAllocationGranularity_flags
    );
    create: c"cuMemCreate" PFN_cuMemCreate_v10020(
        handle: *mut u64, bytes: usize, prop: *const CUmemAllocationProp_v1, flags: c_ulonglong
    );
    release: c"cuMemRelease" PFN_cuMemRelease_v10020(handle: u64);
    retain: c"cuMemRetainAllocationHandle" PFN_cuMemRetainAllocationHandle_v11000(handle: *mut u64, at: *mut c_void);
    properties: c"cuMemGetAllocationPropertiesFromHandle" PFN_cuMemGetAllocationPropertiesFromHandle_v10020(
        prop: *mut CUmemAllocationProp_v1, handle: u64
    );
    export: c"cuMemExportToShareableHandle" PFN_cuMemExportToShareableHandle_v10020(
        out: *mut c_void, handle: u64, kind: CUmemAllocationHandleType, flags: c_ulonglong
    );
    import: c"cuMemImportFromShareableHandle" PFN_cuMemImportFromShareableHandle_v10020(
        handle: *mut u64, shared: *mut c_void, kind: CUmemAllocationHandleType
    );
    reserve: c"cuMemAddressReserve" PFN_cuMemAddressReserve_v10020(
        at: *mut u64, bytes: usize, align: usize, wish: u64, flags: c_ulonglong
    );
    free: c"cuMemAddressFree" PFN_cuMemAddressFree_v10020(at: u64, bytes: usize);
    map: c"cuMemMap" PFN_cuMemMap_v10020(at: u64, bytes: usize, offset: usize, handle: u64, flags: c_ulonglong);
    unmap: c"cuMemUnmap" PFN_cuMemUnmap_v10020(at: u64, bytes: usize);
    set_access: c"cuMemSetAccess" PFN_cuMemSetAccess_v10020(
        at: u64, bytes: usize, rights: *const CUmemAccessDesc_v1, count: usize
    );
    get_access: c"cuMemGetAccess" PFN_cuMemGetAccess_v10020(
        flags: *mut c_ulonglong, location: *const CUmemLocation_v1, at: u64
    );
}

fn on(device: i32) -> CUmemLocation_v1 {
    CUmemLocation_v1 { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

fn prop(device: i32, handles: CUmemAllocationHandleType) -> CUmemAllocationProp_v1 {
    CUmemAllocationProp_v1 {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handles,
        location: on(device),
        win32HandleMetaData: null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// New memory of a device that can be exported.
fn memory(device: i32, bytes: usize) -> u64 {
    let mut handle = 0;
    assert_eq!(create(&mut handle, bytes, &prop(device, FD), 0), 0);
    handle
}

fn room(bytes: usize) -> u64 {
    let mut at = 0;
    assert_eq!(reserve(&mut at, bytes, 0, 0, 0), 0);
    assert!(at != 0 && at.is_multiple_of(GRAIN as u64));
    at
}

fn allow(at: u64, bytes: usize, device: i32, flags: u32) -> u32 {
    let right = CUmemAccessDesc_v1 { location: on(device), flags: CUmemAccess_flags(flags) };
    set_access(at, bytes, &right, 1)
}

/// What a device may do at an address.
fn allowed(at: u64, device: i32) -> Result<u64, u32> {
    let mut flags = 9;
    match get_access(&mut flags, &on(device), at) {
        0 => Ok(flags),
        code => Err(code),
    }
}

fn pointer(at: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(at as usize)
}

/// A descriptor of memory.
fn descriptor(handle: u64) -> c_int {
    let mut fd = -1;
    assert_eq!(export((&raw mut fd).cast(), handle, FD, 0), 0);
    fd
}

fn imported(fd: c_int) -> Result<u64, u32> {
    let mut handle = 0;
    match import(&mut handle, std::ptr::without_provenance_mut(fd as usize), FD) {
        0 => Ok(handle),
        code => Err(code),
    }
}

fn close(fd: c_int) {
    // SAFETY: the descriptor is this test's own, and nothing else knows it.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

/// How much of a device is free.
fn free_memory(device: i32) -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cudaSetDevice(device));
    ok!(cudaMemGetInfo(&mut free, &mut total));
    free
}

#[test]
fn memory_is_made_mapped_used_and_taken_away() {
    isolated!(&[], || {
        let all = free_memory(1);
        let stream = TestStream::new(1);
        for option in [0, 1] {
            let mut bytes = 0;
            assert_eq!(granularity(&mut bytes, &prop(1, FD), CUmemAllocationGranularity_flags(option)), 0);
            assert_eq!(bytes, GRAIN);
        }
        let (handle, second) = (memory(1, 2 * GRAIN), memory(1, GRAIN));
        assert_eq!(free_memory(1), all - 3 * GRAIN);
        let (at, grain) = (room(4 * GRAIN), GRAIN as u64);
        // One behind another.
        assert_eq!(map(at, GRAIN, 0, second, 0), 0);
        assert_eq!(map(at + grain, 2 * GRAIN, 0, handle, 0), 0);
        assert_eq!(allow(at, 3 * GRAIN, 1, BOTH), 0);
        assert_eq!((allowed(at, 1), allowed(at, 0)), (Ok(3), Ok(0)));
        let seam = pointer(at + grain - 8);
        upload(seam, &[1u32, 2, 3, 4], stream.0);
        assert_eq!(download::<u32>(seam, 4, stream.0), [1, 2, 3, 4], "across two mappings");
        let twice = room(2 * GRAIN);
        assert_eq!((map(twice, 2 * GRAIN, 0, handle, 0), allow(twice, 2 * GRAIN, 1, BOTH)), (0, 0));
        assert_eq!(download::<u32>(pointer(twice), 2, stream.0), [3, 4], "the same memory elsewhere");
        let mut info = gpucommPointerInfo_t { kind: 0, device: 0 };
        ok!(gpucommPointerInfo(&mut info, pointer(twice + 5)));
        assert_eq!((info.kind, info.device), (2, 1));
        ok!(gpucommPointerInfo(&mut info, pointer(at + 3 * GRAIN as u64)));
        assert_eq!(info.kind, 0, "reserved, and nothing there");
        // The mappings keep what has no handle any more.
        let mut known = CUmemAllocationProp_v1 { requestedHandleTypes: FABRIC, ..prop(0, FABRIC) };
        assert_eq!(properties(&mut known, handle), 0);
        assert_eq!((known.location.id, known.requestedHandleTypes), (1, FD));
        assert_eq!((release(handle), release(second)), (0, 0));
        assert_eq!(properties(&mut known, handle), VALUE);
        ok!(cudaMemsetAsync(pointer(twice), 7, 2 * GRAIN, stream.0));
        assert_eq!(download::<u8>(pointer(at + grain), 1, stream.0), [7]);
        assert_eq!(unmap(twice, 2 * GRAIN), 0);
        assert_eq!(free_memory(1), all - 3 * GRAIN);
        // A handle by way of the address, for a mapping elsewhere. Each retain needs a release of its own.
        let (mut handle, mut again) = (0, 0);
        assert_eq!(retain(&mut handle, pointer(at + grain + 5)), 0);
        assert_eq!(retain(&mut again, pointer(at + grain)), 0);
        assert_eq!((again, release(again)), (handle, 0));
        assert_eq!(properties(&mut known, handle), 0);
        assert_eq!(unmap(at, 3 * GRAIN), 0, "both at once");
        assert_eq!(free_memory(1), all - 2 * GRAIN);
        assert_eq!((map(twice, 2 * GRAIN, 0, handle, 0), allow(twice, 2 * GRAIN, 1, READ)), (0, 0));
        assert_eq!(download::<u8>(pointer(twice), 1, stream.0), [7]);
        assert_eq!((release(handle), unmap(twice, 2 * GRAIN)), (0, 0));
        assert_eq!(free_memory(1), all);
        assert_eq!((free(at, 4 * GRAIN), free(twice, 2 * GRAIN)), (0, 0));
        assert_eq!(report::count(), 0);
    });
}

#[test]
fn fresh_memory_is_no_zeros() {
    isolated!(&[("GPUCOMM_EMULATOR_STRICT", "1")], || {
        let stream = TestStream::new(2);
        let (handle, at) = (memory(2, GRAIN), room(GRAIN));
        assert_eq!((map(at, GRAIN, 0, handle, 0), allow(at, GRAIN, 2, BOTH)), (0, 0));
        assert_eq!(download::<u8>(pointer(at + GRAIN as u64 - 1), 1, stream.0), [crate::memory::object::POISON]);
        assert_eq!((release(handle), unmap(at, GRAIN), free(at, GRAIN)), (0, 0, 0));
    });
}
