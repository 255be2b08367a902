//! Devices, their properties, and errors that threads and devices remember.

use super::*;
use std::ffi::{CStr, c_char};

#[test]
fn four_devices_by_default_each_with_a_face() {
    isolated!(&[("GPUCOMM_EMULATOR_DEVICES", "")], || {
        let mut count = 0;
        ok!(cudaGetDeviceCount(&mut count));
        assert_eq!(count, 4);
        let mut seen = std::collections::HashSet::new();
        for device in 0..count {
            let mut info = gpucommDeviceInfo_t { name: [1; 256], uuid: [0; 16], totalMemory: 0 };
            ok!(gpucommDeviceInfo(&mut info, device));
            let name: &CStr = c!(CStr::from_ptr(info.name.as_ptr()));
            assert_eq!(name.to_str(), Ok(&*format!("gpucomm emulated GPU {device}")));
            assert_eq!(info.totalMemory, 16 << 30);
            assert!(seen.insert(info.uuid.to_vec()));
            let mut bus = [0 as c_char; 13];
            ok!(cudaDeviceGetPCIBusId(bus.as_mut_ptr(), 13, device));
            let bus: &CStr = c!(CStr::from_ptr(bus.as_ptr()));
            assert_eq!(bus.to_str(), Ok(&*format!("0000:{:02X}:00.0", device + 1)));
            assert_eq!(c!(cudaDeviceGetPCIBusId([0 as c_char; 12].as_mut_ptr(), 12, device)), INVALID);
            let mut value = -1;
            ok!(cudaDeviceGetAttribute(&mut value, cudaDeviceAttr::cudaDevAttrMemoryPoolsSupported, device));
            assert_eq!(value, 1);
            ok!(cudaDeviceGetAttribute(&mut value, cudaDeviceAttr::cudaDevAttrComputeCapabilityMajor, device));
            assert_eq!(value, 9);
            assert_eq!(c!(cudaDeviceGetAttribute(&mut value, cudaDeviceAttr(9999), device)), INVALID);
        }
        assert_eq!(c!(cudaSetDevice(4)), cudaError::cudaErrorInvalidDevice);
        assert_eq!(c!(cudaGetLastError()), cudaError::cudaErrorInvalidDevice);
        assert_eq!(c!(cudaGetLastError()), SUCCESS, "an error is told once");
    });
}

/// As many as there may be: each has a bus of its own, and may open its memory to each other one.
#[test]
fn as_many_as_there_may_be() {
    isolated!(&[("GPUCOMM_EMULATOR_DEVICES", "256")], || {
        let mut count = 0;
        ok!(cudaGetDeviceCount(&mut count));
        assert_eq!(count, 256);
        let mut seen = std::collections::HashSet::new();
        for device in 0..count {
            let mut bus = [0 as c_char; 13];
            ok!(cudaDeviceGetPCIBusId(bus.as_mut_ptr(), 13, device));
            let bus: &CStr = c!(CStr::from_ptr(bus.as_ptr()));
            assert!(bus.to_bytes().len() == 12 && seen.insert(bus.to_owned()), "{bus:?}");
        }
        ok!(cudaSetDevice(255));
        ok!(cudaDeviceEnablePeerAccess(64, 0));
        assert_eq!(c!(cudaDeviceEnablePeerAccess(64, 0)), cudaError::cudaErrorPeerAccessAlreadyEnabled);
        ok!(cudaDeviceEnablePeerAccess(0, 0));
    });
}

#[test]
fn no_device() {
    isolated!(&[("GPUCOMM_EMULATOR_DEVICES", "0")], || {
        let none = cudaError::cudaErrorNoDevice;
        let (mut count, mut ptr, mut stream) = (7, null_mut(), null_mut());
        assert_eq!(c!(cudaGetDeviceCount(&mut count)), none);
        assert_eq!(count, 0);
        assert_eq!(c!(cudaSetDevice(0)), none);
        assert_eq!(c!(cudaMalloc(&mut ptr, 8)), none);
        assert_eq!(c!(cudaStreamCreateWithPriority(&mut stream, 0, 0)), none);
        assert_eq!(c!(cudaStreamQuery(null_mut())), none);
        assert_eq!(c!(cudaGetLastError()), none);
    });
}

/// Two of four devices, in another order: ordinals are those of the process, what they stand for is not.
#[test]
fn some_devices_in_another_order() {
    isolated!(&[("CUDA_VISIBLE_DEVICES", "3,1,-1,0")], || {
        use crate::memory::usage::locate;
        let mut count = 0;
        ok!(cudaGetDeviceCount(&mut count));
        assert_eq!(count, 2);
        assert_eq!(c!(cudaSetDevice(2)), cudaError::cudaErrorInvalidDevice);
        for (ordinal, number, id) in [(0, 3, c"0000:04:00.0"), (1, 1, c"0000:02:00.0")] {
            let mut bus = [0 as c_char; 13];
            ok!(cudaDeviceGetPCIBusId(bus.as_mut_ptr(), 13, ordinal));
            assert_eq!(c!(CStr::from_ptr(bus.as_ptr())), id);
            let mut value = -1;
            ok!(cudaDeviceGetByPCIBusId(&mut value, id.as_ptr()));
            assert_eq!(value, ordinal);
            ok!(cudaDeviceGetAttribute(&mut value, cudaDeviceAttr::cudaDevAttrPciBusId, ordinal));
            assert_eq!(value, number + 1);
            let mut info = gpucommDeviceInfo_t { name: [1; 256], uuid: [0; 16], totalMemory: 0 };
            ok!(gpucommDeviceInfo(&mut info, ordinal));
            assert_eq!(info.uuid, crate::visible::uuid(number));
            // Its memory is that of the device of the machine, for other processes, and of the ordinal here.
            ok!(cudaSetDevice(ordinal));
            let memory = malloc(8);
            let (place, used) = locate(memory, 8).unwrap();
            assert_eq!((place.device, used.device()), (number, Some(ordinal)));
            drop(used);
            ok!(cudaFree(memory));
        }
        let mut value = -1;
        let hidden = c!(cudaDeviceGetByPCIBusId(&mut value, c"0000:01:00.0".as_ptr()));
        assert_eq!((hidden, value), (cudaError::cudaErrorInvalidDevice, -1));
    });
}

#[test]
fn hidden_devices_are_told_of() {
    isolated!(&[("CUDA_VISIBLE_DEVICES", "4")], || {
        let (none, mut count) = (cudaError::cudaErrorNoDevice, 7);
        assert_eq!((c!(cudaGetDeviceCount(&mut count)), count), (none, 0));
        let text: &CStr = c!(CStr::from_ptr(cudaGetErrorString(none)));
        assert!(text.to_str().unwrap().contains("CUDA_VISIBLE_DEVICES=4 hides all 4"), "{text:?}");
    });
}

/// A fault that names a device means that of the machine.
#[test]
fn a_fault_follows_the_device() {
    let environment = [("CUDA_VISIBLE_DEVICES", "2,0"), ("GPUCOMM_EMULATOR_FAULTS", "oom=device0@1")];
    isolated!(&environment, || {
        let mut ptr = null_mut();
        ok!(cudaSetDevice(0));
        ok!(cudaMalloc(&mut ptr, 8));
        ok!(cudaSetDevice(1));
        assert_eq!(c!(cudaMalloc(&mut ptr, 8)), cudaError::cudaErrorMemoryAllocation);
    });
}

#[test]
fn settings_that_cannot_be_understood_are_named_and_nothing_works() {
    let environment = [("GPUCOMM_EMULATOR_DEVICES", "257"), ("GPUCOMM_EMULATOR_MEMORY", "lots")];
    isolated!(&environment, || {
        let wrong = cudaError::cudaErrorInitializationError;
        let (mut count, mut ptr) = (7, null_mut());
        assert_eq!(c!(cudaGetDeviceCount(&mut count)), wrong);
        assert_eq!(count, 0);
        assert_eq!(c!(cudaSetDevice(0)), wrong);
        assert_eq!(c!(cudaHostAlloc(&mut ptr, 8, 0)), wrong);
        let text: &CStr = c!(CStr::from_ptr(cudaGetErrorString(wrong)));
        let text = text.to_str().unwrap();
        for part in ["GPUCOMM_EMULATOR_DEVICES=257: expected a number", "GPUCOMM_EMULATOR_MEMORY=lots: expected bytes"]
        {
            assert!(text.contains(part), "{text}");
        }
    });
}

#[test]
fn peers_reach_each_other() {
    isolated!(&[], || {
        let mut can = 0;
        ok!(cudaDeviceCanAccessPeer(&mut can, 0, 1));
        assert_eq!(can, 1);
        ok!(cudaDeviceCanAccessPeer(&mut can, 1, 1));
        assert_eq!(can, 0);
        ok!(cudaSetDevice(0));
        ok!(cudaDeviceEnablePeerAccess(1, 0));
        assert_eq!(c!(cudaDeviceEnablePeerAccess(1, 0)), cudaError::cudaErrorPeerAccessAlreadyEnabled);
        assert_eq!(c!(cudaDeviceEnablePeerAccess(0, 0)), cudaError::cudaErrorInvalidDevice);
        assert_eq!(c!(cudaDeviceEnablePeerAccess(2, 1)), INVALID);
        let mut value = -1;
        ok!(cudaDeviceGetP2PAttribute(&mut value, cudaDeviceP2PAttr::cudaDevP2PAttrAccessSupported, 0, 1));
        assert_eq!(value, 1);
    });
}

#[test]
fn null_places_are_refused_everywhere() {
    alone!();
    let _expected = ["null, where", "no device memory", "is no pool"].map(expect);
    ok!(cudaSetDevice(0));
    let (attr, p2p) = (cudaDeviceAttr::cudaDevAttrIntegrated, cudaDeviceP2PAttr::cudaDevP2PAttrAccessSupported);
    for (name, result) in [
        ("cudaDriverGetVersion", c!(cudaDriverGetVersion(null_mut()))),
        ("cudaRuntimeGetVersion", c!(cudaRuntimeGetVersion(null_mut()))),
        ("cudaGetDeviceCount", c!(cudaGetDeviceCount(null_mut()))),
        ("cudaGetDevice", c!(cudaGetDevice(null_mut()))),
        ("cudaDeviceGetAttribute", c!(cudaDeviceGetAttribute(null_mut(), attr, 0))),
        ("cudaDeviceGetLimit", c!(cudaDeviceGetLimit(null_mut(), cudaLimit::cudaLimitStackSize))),
        ("cudaDeviceGetPCIBusId", c!(cudaDeviceGetPCIBusId(null_mut(), 64, 0))),
        ("cudaDeviceGetByPCIBusId", c!(cudaDeviceGetByPCIBusId(null_mut(), c"0:1:0".as_ptr()))),
        ("cudaDeviceGetByPCIBusId", c!(cudaDeviceGetByPCIBusId(&mut 0, null_mut()))),
        ("cudaDeviceGetByPCIBusId", c!(cudaDeviceGetByPCIBusId(&mut 0, c"nowhere".as_ptr()))),
        ("cudaDeviceCanAccessPeer", c!(cudaDeviceCanAccessPeer(null_mut(), 0, 1))),
        ("cudaDeviceGetP2PAttribute", c!(cudaDeviceGetP2PAttribute(null_mut(), p2p, 0, 1))),
        ("cudaMemGetInfo", c!(cudaMemGetInfo(null_mut(), null_mut()))),
        ("cudaStreamCreateWithPriority", c!(cudaStreamCreateWithPriority(null_mut(), 0, 0))),
        ("cudaStreamGetPriority", c!(cudaStreamGetPriority(null_mut(), null_mut()))),
        ("cudaStreamGetFlags", c!(cudaStreamGetFlags(null_mut(), null_mut()))),
        ("cudaLaunchHostFunc", c!(cudaLaunchHostFunc(null_mut(), None, null_mut()))),
        ("cudaEventCreateWithFlags", c!(cudaEventCreateWithFlags(null_mut(), 0))),
        ("cudaEventElapsedTime", c!(cudaEventElapsedTime(null_mut(), null_mut(), null_mut()))),
        ("cudaMalloc", c!(cudaMalloc(null_mut(), 8))),
        ("cudaMallocFromPoolAsync", c!(cudaMallocFromPoolAsync(null_mut(), 8, null_mut(), null_mut()))),
        ("cudaHostAlloc", c!(cudaHostAlloc(null_mut(), 8, 0))),
        ("cudaMemcpyAsync", c!(cudaMemcpyAsync(null_mut(), null_mut(), 8, cudaMemcpyKind(4), null_mut()))),
        ("cudaMemsetAsync", c!(cudaMemsetAsync(null_mut(), 0, 8, null_mut()))),
        ("cudaFreeAsync", c!(cudaFreeAsync(null_mut(), null_mut()))),
        ("gpucommDeviceInfo", c!(gpucommDeviceInfo(null_mut(), 0))),
        ("gpucommPointerInfo", c!(gpucommPointerInfo(null_mut(), null_mut()))),
        ("gpucommPoolCreate", c!(gpucommPoolCreate(null_mut(), 0))),
        ("gpucommDriverEntryPoint", c!(gpucommDriverEntryPoint(null_mut(), c"cuInit".as_ptr(), 12010))),
        ("gpucommDriverEntryPoint", c!(gpucommDriverEntryPoint(&mut null_mut(), std::ptr::null(), 12010))),
    ] {
        assert_eq!(result, INVALID, "{name}");
    }
}
