//! Allocation, at once and in stream order.

use super::*;
use std::collections::HashSet;

fn pool(device: i32) -> cudaMemPool_t {
    let mut pool = null_mut();
    ok!(gpucommPoolCreate(&mut pool, device));
    pool
}

fn take(bytes: usize, pool: cudaMemPool_t, stream: cudaStream_t) -> *mut c_void {
    let mut ptr = null_mut();
    ok!(cudaMallocFromPoolAsync(&mut ptr, bytes, pool, stream));
    ptr
}

fn room() -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cudaMemGetInfo(&mut free, &mut total));
    assert!(free <= total);
    free
}

#[test]
fn allocations_are_apart_and_counted() {
    isolated!(&[], || {
        ok!(cudaSetDevice(2));
        let before = room();
        let mut ptrs = Vec::new();
        for bytes in [1, 511, 512, 513, 4096, 1 << 20, 5 << 20] {
            ptrs.push((malloc(bytes).addr(), bytes));
        }
        ptrs.sort_unstable();
        assert!(ptrs.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        assert!(ptrs.iter().all(|&(ptr, bytes)| bytes < 2 << 20 || ptr.is_multiple_of(2 << 20)));
        assert!(before - room() >= 6 << 20);
        for (ptr, _) in ptrs {
            ok!(cudaFree(std::ptr::with_exposed_provenance_mut(ptr)));
        }
        assert_eq!(room(), before);
        let mut none = std::ptr::without_provenance_mut(8);
        ok!(cudaMalloc(&mut none, 0));
        assert!(none.is_null());
        ok!(cudaFree(null_mut()));
    });
}

#[test]
fn memory_runs_out_and_comes_back() {
    isolated!(&[("GPUCOMM_EMULATOR_MEMORY", "8M")], || {
        let stream = TestStream::new(0);
        let mut ptr = null_mut();
        let full = cudaError::cudaErrorMemoryAllocation;
        assert_eq!(c!(cudaMalloc(&mut ptr, 9 << 20)), full);
        assert_eq!(c!(cudaMalloc(&mut ptr, usize::MAX)), full);
        let all = malloc(8 << 20);
        assert_eq!(c!(cudaMalloc(&mut ptr, 1)), full);
        assert_eq!(c!(cudaMallocFromPoolAsync(&mut ptr, 1, pool(0), stream.0)), full);
        assert_eq!(c!(cudaGetLastError()), full);
        ok!(cudaFree(all));
        // Small pieces on two streams that are freed but not there yet, then all of it.
        let other = TestStream::new(0);
        let pool = pool(0);
        let pieces: Vec<_> = (0..8).map(|_| take(1 << 20, pool, stream.0)).collect();
        let gate = stream.close_gate();
        for piece in pieces {
            ok!(cudaFreeAsync(piece, stream.0));
        }
        let stolen = take(1 << 20, pool, other.0);
        ok!(cudaMemsetAsync(stolen, 1, 1 << 20, other.0));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(c!(cudaStreamQuery(other.0)), NOT_READY, "it waits for the free of the other stream");
        ok!(cudaFreeAsync(stolen, other.0));
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            drop(gate);
        });
        let all = take(8 << 20, pool, other.0);
        late.join().unwrap();
        ok!(cudaFreeAsync(all, other.0));
        other.wait();
        assert_eq!(room(), 8 << 20);
    });
}

#[test]
fn freed_memory_goes_round_on_its_stream_and_waits_for_others() {
    let long = [("GPUCOMM_EMULATOR_QUEUE", "4000")];
    isolated!(&long, || {
        let _expected = expect("is no pool");
        let (stream, other) = (TestStream::new(0), TestStream::new(0));
        let pool = pool(0);
        let gate = stream.close_gate();
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let ptr = take(1 << 20, pool, stream.0);
            ok!(cudaMemsetAsync(ptr, 1, 1 << 20, stream.0));
            ok!(cudaFreeAsync(ptr, stream.0));
            seen.insert(ptr);
        }
        assert_eq!(seen.len(), 1, "a loop uses the same memory, though nothing was executed yet");
        let apart = take(1 << 20, pool, other.0);
        assert!(!seen.contains(&apart), "another stream must not get it before the free is executed");
        drop(gate);
        stream.wait();
        let again = take(1 << 20, pool, other.0);
        assert!(seen.contains(&again));
        ok!(cudaFreeAsync(apart, other.0));
        ok!(cudaFreeAsync(again, other.0));
        other.wait();
        let mut none = null_mut();
        assert_eq!(
            c!(cudaMallocFromPoolAsync(&mut none, 8, std::ptr::without_provenance_mut(0x50), stream.0)),
            INVALID
        );
    });
}

/// What lies at an address: its type and its device.
fn info(ptr: *const c_void) -> (i32, i32) {
    let mut info = gpucommPointerInfo_t { kind: 9, device: 9 };
    ok!(gpucommPointerInfo(&mut info, ptr));
    (info.kind, info.device)
}

#[test]
fn addresses_tell_what_lies_there() {
    alone!();
    const NOTHING: (i32, i32) = (0, -2);
    let stream = TestStream::new(1);
    let taken = take(100, pool(1), stream.0);
    let memory = malloc(1000);
    let mut host = null_mut();
    ok!(cudaHostAlloc(&mut host, 1000, 0));
    ok!(cudaSetDevice(0));
    assert_eq!((info(memory), info(memory.wrapping_byte_add(999)), info(taken)), ((2, 1), (2, 1), (2, 1)));
    assert_eq!((info(host), info(host.wrapping_byte_add(999))), ((1, 1), (1, 1)));
    let mine = [0u8; 8];
    for nothing in
        [std::ptr::null(), mine.as_ptr().cast(), memory.wrapping_byte_add(1000), host.wrapping_byte_add(1 << 20)]
    {
        assert_eq!(info(nothing), NOTHING, "{nothing:p}");
    }
    ok!(cudaFreeHost(host));
    ok!(cudaFree(memory));
    ok!(cudaFree(taken));
    assert_eq!(info(memory), NOTHING);
}

/// Devices are told by their ordinals in this process.
#[test]
fn addresses_tell_the_ordinals_of_devices() {
    isolated!(&[("CUDA_VISIBLE_DEVICES", "3,1")], || {
        for ordinal in [0, 1] {
            ok!(cudaSetDevice(ordinal));
            let memory = malloc(8);
            assert_eq!(info(memory), (2, ordinal));
            ok!(cudaFree(memory));
        }
    });
}

/// Whether fresh memory of any kind, also such as was used before, holds zeros.
fn fresh_memory_is_zero() -> bool {
    let stream = TestStream::new(0);
    let pool = pool(0);
    let mut zeros = Vec::new();
    for bytes in [1, 1000, 5 << 20] {
        for _ in 0..2 {
            let mut host = null_mut();
            ok!(cudaHostAlloc(&mut host, bytes, 0));
            let nccl = crate::cuda::tasks::memory::allocate(0, bytes, crate::memory::heap::Origin::Nccl).unwrap();
            for memory in [malloc(bytes), take(bytes, pool, stream.0), nccl, host] {
                // SAFETY: memory of the emulator's devices is memory of this process, just allocated with this size.
                let (first, last) = unsafe { (*memory.cast::<u8>(), *memory.cast::<u8>().add(bytes - 1)) };
                zeros.push(first == 0 && last == 0);
                ok!(if memory == host { cudaFreeHost(memory) } else { cudaFree(memory) });
            }
        }
    }
    zeros.contains(&true)
}

#[test]
fn fresh_memory_is_poisoned_in_strict_mode() {
    isolated!(&[("GPUCOMM_EMULATOR_STRICT", "1")], || {
        assert!(!fresh_memory_is_zero());
    });
}

#[test]
fn a_pool_keeps_its_pages_and_malloc_gives_them_back() {
    isolated!(&[], || {
        let stream = TestStream::new(0);
        let pool = pool(0);
        let bytes = 64 << 20;
        let ptr = malloc(bytes);
        ok!(cudaMemsetAsync(ptr, 1, bytes, stream.0));
        stream.wait();
        assert!(resident() >= bytes);
        ok!(cudaFree(ptr));
        assert!(resident() < bytes / 2);
        for _ in 0..3 {
            let ptr = take(bytes, pool, stream.0);
            ok!(cudaMemsetAsync(ptr, 1, bytes, stream.0));
            ok!(cudaFreeAsync(ptr, stream.0));
            stream.wait();
            assert!(resident() >= bytes);
        }
    });
}

/// Bytes of shared memory that this process holds.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssShmem:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// A limit on files is one on devices, whose memory lies in files: an error, and not the end of the process.
#[test]
fn a_limit_on_files_leaves_no_memory() {
    isolated!(&[], || {
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        assert_eq!(c!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit)), 0);
        assert_eq!(c!(cudaMalloc(&mut null_mut(), 64)), cudaError::cudaErrorMemoryAllocation);
    });
}
