//! Copies and fills.

use super::*;
use crate::report::expected::reported;
use std::slice;

fn pinned(bytes: usize) -> *mut u8 {
    let mut ptr = null_mut();
    ok!(cudaHostAlloc(&mut ptr, bytes, cudaHostAllocPortable));
    ptr.cast()
}

#[test]
fn pageable_memory_is_read_at_once_and_written_before_the_return() {
    alone!();
    let stream = TestStream::new(0);
    let memory = malloc(8);
    let gate = stream.close_gate();
    let mut source = [1u32, 2];
    upload(memory, &source, stream.0);
    source.fill(9);
    assert_eq!(c!(cudaStreamQuery(stream.0)), NOT_READY);
    drop(gate);
    assert_eq!(download::<u32>(memory, 2, stream.0), [1, 2]);
    assert_eq!(source, [9, 9]);
    ok!(cudaFree(memory));
}

/// Where the driver may wait for the stream, and where it does: a program must not need the call to return.
#[test]
fn much_pageable_memory_and_copies_within_the_host_are_waited_for() {
    alone!();
    let stream = TestStream::new(0);
    let (much, memory) = (vec![1u8; (64 << 10) + 1], malloc(1 << 17));
    let (from, to) = (pinned(4), pinned(4));
    let (device, host) = (cudaMemcpyKind::cudaMemcpyHostToDevice, cudaMemcpyKind::cudaMemcpyHostToHost);
    let copies: [(*mut c_void, *const c_void, usize, cudaMemcpyKind); 2] =
        [(memory, much.as_ptr().cast(), much.len(), device), (to.cast(), from.cast(), 4, host)];
    for (dst, src, bytes, kind) in copies {
        waits::assert_waits(stream.close_gate(), true, || ok!(cudaMemcpyAsync(dst, src, bytes, kind, stream.0)));
    }
    assert!(download::<u8>(memory, much.len(), stream.0) == much);
    for ptr in [from, to] {
        ok!(cudaFreeHost(ptr.cast()));
    }
    ok!(cudaFree(memory));
}

#[test]
fn pinned_memory_is_used_in_stream_order() {
    alone!();
    let _expected = expect("is no pinned memory");
    let stream = TestStream::new(0);
    let (memory, from, to) = (malloc(4), pinned(4), pinned(4));
    let gate = stream.close_gate();
    c!(from.write_bytes(1, 4));
    c!(to.write_bytes(0, 4));
    ok!(cudaMemcpyAsync(memory, from.cast(), 4, cudaMemcpyKind::cudaMemcpyHostToDevice, stream.0));
    ok!(cudaMemcpyAsync(to.cast(), memory, 4, cudaMemcpyKind::cudaMemcpyDefault, stream.0));
    c!(from.write_bytes(7, 4));
    assert_eq!(c!(slice::from_raw_parts(to, 4)), [0; 4]);
    drop(gate);
    stream.wait();
    assert_eq!(c!(slice::from_raw_parts(to, 4)), [7; 4]);
    // Freeing pinned memory waits for the copies that use it.
    let gate = stream.close_gate();
    ok!(cudaMemcpyAsync(to.cast(), memory, 4, cudaMemcpyKind::cudaMemcpyDeviceToHost, stream.0));
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(gate);
    });
    let start = Instant::now();
    ok!(cudaFreeHost(to.cast()));
    assert!(start.elapsed() >= Duration::from_millis(20));
    late.join().unwrap();
    ok!(cudaFreeHost(from.cast()));
    assert_eq!(c!(cudaFreeHost(from.cast())), INVALID);
    ok!(cudaFreeHost(null_mut()));
    ok!(cudaFree(memory));
}

#[test]
fn every_direction_moves_the_bytes() {
    alone!();
    let _expected = expect("cudaMemcpyPeerAsync: ");
    let stream = TestStream::new(0);
    let near = malloc(3 << 20);
    ok!(cudaSetDevice(1));
    let far = malloc(3 << 20);
    let values: Vec<u32> = (0..3u32 << 18).map(|value| value.wrapping_mul(2_654_435_761)).collect();
    upload(near, &values, stream.0);
    ok!(cudaMemcpyAsync(far, near, 3 << 20, cudaMemcpyKind::cudaMemcpyDeviceToDevice, stream.0));
    assert!(download::<u32>(far, values.len(), stream.0) == values);
    let other = TestStream::new(1);
    ok!(cudaMemsetAsync(far, 0x1_05, 3 << 20, other.0));
    other.wait();
    assert!(download::<u8>(far, 3 << 20, stream.0).iter().all(|&byte| byte == 5));
    ok!(cudaMemcpyPeerAsync(far, 1, near, 0, 3 << 20, stream.0));
    assert!(download::<u32>(far, values.len(), stream.0) == values);
    let mut host = vec![0u32; values.len()];
    let kind = cudaMemcpyKind::cudaMemcpyHostToHost;
    ok!(cudaMemcpyAsync(host.as_mut_ptr().cast(), values.as_ptr().cast(), 3 << 20, kind, stream.0));
    assert!(host == values);
    // Parts of an allocation, which must not overlap.
    let (kind, half) = (cudaMemcpyKind::cudaMemcpyDefault, 3 << 19);
    reported("overlap, expected them apart", || {
        assert_eq!(c!(cudaMemcpyAsync(near.wrapping_byte_add(4), near, half, kind, stream.0)), INVALID);
    });
    ok!(cudaMemcpyAsync(near.wrapping_byte_add(half), near, half, kind, stream.0));
    assert!(download::<u32>(near.wrapping_byte_add(half), values.len() / 2, stream.0) == values[..values.len() / 2]);
    assert_eq!(c!(cudaMemcpyPeerAsync(far, 0, near, 0, 8, stream.0)), INVALID, "the device is another one");
    assert_eq!(c!(cudaMemcpyPeerAsync(far, 9, near, 0, 8, stream.0)), cudaError::cudaErrorInvalidDevice);
    ok!(cudaFree(near));
    ok!(cudaFree(far));
}

#[test]
fn directions_that_do_not_fit_the_memory_are_refused() {
    alone!();
    let _expected = ["no direction of a copy", "the direction is"].map(expect);
    let stream = TestStream::new(0);
    let memory = malloc(64);
    let mut host = [0u8; 64];
    let host = host.as_mut_ptr().cast::<c_void>();
    for (dst, src, kind) in [
        (memory, host, 2),
        (memory, host, 3),
        (host, memory, 1),
        (host, memory, 3),
        (memory, memory, 0),
        (memory, host, 5),
    ] {
        assert_eq!(c!(cudaMemcpyAsync(dst, src, 64, cudaMemcpyKind(kind), stream.0)), INVALID);
    }
    ok!(cudaMemcpyAsync(null_mut(), std::ptr::null(), 0, cudaMemcpyKind::cudaMemcpyDefault, stream.0));
    ok!(cudaFree(memory));
}

/// A copy must not begin inside pinned memory and run past its end.
#[test]
fn copies_past_the_end_of_pinned_memory_are_refused() {
    alone!();
    let stream = TestStream::new(0);
    let (memory, host) = (malloc(4096), pinned(4096));
    let last = host.wrapping_add(4095);
    let (to_device, to_host) = (cudaMemcpyKind::cudaMemcpyHostToDevice, cudaMemcpyKind::cudaMemcpyDeviceToHost);
    ok!(cudaMemcpyAsync(memory, last.cast(), 1, to_device, stream.0));
    let past = "run past the end of the pinned memory of 4096 bytes";
    let refused = reported(past, || c!(cudaMemcpyAsync(memory, last.cast(), 2, to_device, stream.0)));
    assert_eq!(refused, INVALID);
    let refused = reported(past, || c!(cudaMemcpyAsync(last.cast(), memory, 2, to_host, stream.0)));
    assert_eq!(refused, INVALID);
    stream.wait();
    ok!(cudaFreeHost(host.cast()));
    ok!(cudaFree(memory));
}

type D16 = unsafe extern "C" fn(u64, u16, usize, cudaStream_t) -> CUresult;
type D32 = unsafe extern "C" fn(u64, u32, usize, cudaStream_t) -> CUresult;
type D2D32 = unsafe extern "C" fn(u64, usize, u32, usize, usize, cudaStream_t) -> CUresult;

pub(super) fn entry(name: &std::ffi::CStr) -> *mut c_void {
    let mut function = null_mut();
    ok!(gpucommDriverEntryPoint(&mut function, name.as_ptr(), 12010));
    function
}

#[test]
fn fills_of_the_driver() {
    alone!();
    let _expected = expect("cuMemset");
    let stream = TestStream::new(0);
    let memory = malloc(4096);
    let address = memory.expose_provenance() as u64;
    let d16 = c!(std::mem::transmute::<*mut c_void, D16>(entry(c"cuMemsetD16Async")));
    let d32 = c!(std::mem::transmute::<*mut c_void, D32>(entry(c"cuMemsetD32Async")));
    let d2d32 = c!(std::mem::transmute::<*mut c_void, D2D32>(entry(c"cuMemsetD2D32Async")));
    assert!(entry(c"cuLogicalEndpointCreate").is_null());
    // Those that came later are there for versions that have them, and none that is newer than the driver.
    for (version, there) in [(12000, false), (12010, true), (13000, true), (13010, false)] {
        let mut function = null_mut();
        ok!(gpucommDriverEntryPoint(&mut function, c"cuMulticastBindMem".as_ptr(), version));
        assert_eq!(!function.is_null(), there, "{version}");
    }
    assert_eq!(c!(d32(address, 0, 1024, stream.0)).0, 0);
    assert_eq!(c!(d16(address + 2, 0xABCD, 3, stream.0)).0, 0);
    assert_eq!(download::<u16>(memory, 5, stream.0), [0, 0xABCD, 0xABCD, 0xABCD, 0]);
    assert_eq!(c!(d2d32(address + 512, 16, 7, 2, 3, stream.0)).0, 0);
    assert_eq!(download::<u32>(memory.wrapping_byte_add(512), 12, stream.0), [7, 7, 0, 0, 7, 7, 0, 0, 7, 7, 0, 0]);
    for result in [
        c!(d16(address + 1, 0, 1, stream.0)),
        c!(d32(address + 2, 0, 1, stream.0)),
        c!(d32(address, 0, 1025, stream.0)),
        c!(d32(address, 0, usize::MAX, stream.0)),
        c!(d2d32(address, 4, 0, 2, 2, stream.0)),
        c!(d2d32(address, usize::MAX / 4 * 4, 0, 1, 9, stream.0)),
    ] {
        assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    assert_eq!(c!(d32(address, 0, 0, stream.0)).0, 0);
    assert_eq!(c!(d32(address, 0, 1, std::ptr::without_provenance_mut(0x77))), CUresult::CUDA_ERROR_INVALID_HANDLE);
    ok!(cudaFree(memory));
}

#[test]
fn a_copy_runs_at_the_speed_of_memory() {
    alone!();
    let stream = TestStream::new(0);
    let bytes = 64 << 20;
    let (from, to) = (malloc(bytes), malloc(bytes));
    let copy = || {
        ok!(cudaMemcpyAsync(to, from, bytes, cudaMemcpyKind::cudaMemcpyDeviceToDevice, stream.0));
        stream.wait();
    };
    ok!(cudaMemsetAsync(from, 1, bytes, stream.0));
    copy();
    let start = Instant::now();
    copy();
    let ours = start.elapsed();
    let (source, mut sink) = (vec![1u8; bytes], vec![2u8; bytes]);
    let start = Instant::now();
    sink.copy_from_slice(&source);
    let plain = start.elapsed();
    println!("a device copy took {ours:?}, a plain one {plain:?}");
    assert!(ours < plain * 20 + Duration::from_millis(50), "{ours:?} against {plain:?}");
    assert_eq!(std::hint::black_box(sink)[bytes - 1], 1);
    ok!(cudaFree(from));
    ok!(cudaFree(to));
}
