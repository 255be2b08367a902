//! What cannot be, and what must not be.

use super::*;
use crate::cuda::core::stream::come_to_the_end;
use crate::memory::usage::hold;
use crate::report::expected::reported;

#[test]
fn what_the_driver_refuses() {
    isolated!(&[], || {
        let (handle, at) = (memory(0, 2 * GRAIN), room(4 * GRAIN));
        let grain = GRAIN as u64;
        let (mut other, mut somewhere, plain) = (0, 0, prop(0, CUmemAllocationHandleType(0)));
        // Sizes, places and flags.
        for bytes in [0, 1, GRAIN + 1, GRAIN - 512] {
            assert_eq!(create(&mut other, bytes, &plain, 0), VALUE, "{bytes}");
            assert_eq!(reserve(&mut somewhere, bytes, 0, 0, 0), VALUE, "{bytes}");
            assert_eq!(map(at, bytes, 0, handle, 0), VALUE, "{bytes}");
        }
        assert_eq!(create(&mut other, GRAIN, &plain, 1), VALUE);
        assert_eq!(create(&mut other, GRAIN, std::ptr::null(), 0), VALUE);
        assert_eq!(create(null_mut(), GRAIN, &plain, 0), VALUE);
        assert_eq!(create(&mut other, GRAIN, &prop(9, FD), 0), cudaError::cudaErrorInvalidDevice.0);
        let unpinned = CUmemAllocationProp_v1 { type_: CUmemAllocationType(0), ..plain };
        assert_eq!(create(&mut other, GRAIN, &unpinned, 0), VALUE);
        assert_eq!(create(&mut other, 1 << 40, &plain, 0), cudaError::cudaErrorMemoryAllocation.0);
        assert_eq!(reserve(&mut somewhere, GRAIN, 3 << 20, 0, 0), VALUE, "no power of two");
        assert_eq!(reserve(&mut somewhere, GRAIN, 64 << 20, 0, 0), 0);
        assert!(somewhere.is_multiple_of(64 << 20));
        assert_eq!(free(somewhere, GRAIN), 0);
        // Mapping: aligned, within the object and the reservation, and where there is nothing.
        assert_eq!(map(at + 4096, GRAIN, 0, handle, 0), VALUE);
        for offset in [4096, GRAIN, 2 * GRAIN] {
            assert_eq!(map(at, GRAIN, offset, handle, 0), cudaError::cudaErrorNotSupported.0, "{offset}");
        }
        for bytes in [GRAIN, 3 * GRAIN, 4 * GRAIN] {
            assert_eq!(map(at, bytes, 0, handle, 0), PARTLY, "not as much as there is");
        }
        assert_eq!(map(at + 3 * grain, 2 * GRAIN, 0, handle, 0), VALUE, "beyond the reservation");
        assert_eq!(map(somewhere, 2 * GRAIN, 0, handle, 0), VALUE, "not reserved any more");
        assert_eq!(map(at, GRAIN, 0, handle + 16, 0), VALUE, "no handle");
        assert_eq!(map(at + grain, 2 * GRAIN, 0, handle, 0), 0);
        for place in [at, at + grain, at + 2 * grain] {
            assert_eq!(map(place, 2 * GRAIN, 0, handle, 0), VALUE, "mapped twice");
        }
        // Rights and the end of a mapping are for whole ones.
        assert_eq!((allow(at, 2 * GRAIN, 0, BOTH), allow(at + grain, 3 * GRAIN, 0, BOTH)), (VALUE, VALUE));
        assert_eq!((allow(at + grain, 2 * GRAIN, 9, BOTH), allow(at + grain, 2 * GRAIN, 0, 2)), (101, VALUE));
        assert_eq!(set_access(at + grain, 2 * GRAIN, std::ptr::null(), 1), VALUE);
        assert_eq!((allowed(at, 0), allowed(at + grain, 0)), (Err(VALUE), Ok(0)));
        assert_eq!(retain(&mut other, pointer(at)), VALUE);
        for (place, bytes) in [(at, 2 * GRAIN), (at, 5 * GRAIN), (at + grain, GRAIN), (at + 2 * grain, GRAIN)] {
            assert_eq!(unmap(place, bytes), VALUE, "{place:#x} {bytes}");
        }
        assert_eq!((unmap(at, GRAIN), unmap(at + 3 * grain, GRAIN)), (0, 0), "nothing there");
        // Reservations end whole and empty.
        assert_eq!((free(at, 4 * GRAIN), free(at, GRAIN), free(at + grain, GRAIN)), (VALUE, VALUE, VALUE));
        assert_eq!(unmap(at + grain, 2 * GRAIN), 0);
        assert_eq!((unmap(at, 4 * GRAIN), free(at, 4 * GRAIN), free(at, 4 * GRAIN)), (0, 0, VALUE));
        assert_eq!(unmap(at, 4 * GRAIN), VALUE);
        // Each import has a handle of its own, and each ends once.
        let fd = descriptor(handle);
        let all = [handle, imported(fd).unwrap(), imported(fd).unwrap()];
        assert!(all[0] != all[1] && all[1] != all[2]);
        assert_eq!((all.map(release), all.map(release)), ([0; 3], [VALUE; 3]));
        // Exports: of what was made for it, and as a descriptor only.
        assert_eq!(create(&mut other, GRAIN, &plain, 0), 0);
        let mut out = -1;
        assert_eq!(export((&raw mut out).cast(), other, FD, 0), VALUE);
        assert_eq!(release(other), 0);
        for kinds in [FABRIC, CUmemAllocationHandleType(FABRIC.0 | FD.0)] {
            assert_eq!(create(&mut other, GRAIN, &prop(0, kinds), 0), cudaError::cudaErrorNotPermitted.0);
        }
        assert_eq!(import(&mut other, (&raw mut out).cast(), FABRIC), cudaError::cudaErrorNotPermitted.0);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        use std::os::fd::AsRawFd;
        assert_eq!((imported(file.as_raw_fd()), imported(c_int::MAX)), (Err(VALUE), Err(VALUE)));
        close(fd);
        assert_eq!(report::count(), 0, "all of these are codes of CUDA");
    });
}

#[test]
fn addresses_where_nothing_is_mapped() {
    isolated!(&[], || {
        let stream = TestStream::new(0);
        let (handle, at) = (memory(0, GRAIN), room(2 * GRAIN));
        let fill = |at: u64, bytes| c!(cudaMemsetAsync(pointer(at), 0, bytes, stream.0));
        let copy = |at: u64, bytes| {
            let mut host = vec![0u8; bytes];
            let kind = cudaMemcpyKind::cudaMemcpyDefault;
            c!(cudaMemcpyAsync(host.as_mut_ptr().cast(), pointer(at), bytes, kind, stream.0))
        };
        reported("nothing is mapped", || assert_eq!(fill(at, 8), INVALID));
        reported("nothing is mapped", || assert_eq!(copy(at, 8), INVALID));
        assert_eq!((map(at, GRAIN, 0, handle, 0), allow(at, GRAIN, 0, BOTH)), (0, 0));
        assert_eq!((fill(at, GRAIN), copy(at, 8)), (SUCCESS, SUCCESS));
        reported("nothing is mapped", || assert_eq!(fill(at, GRAIN + 1), INVALID));
        assert_eq!(unmap(at, GRAIN), 0);
        reported("nothing is mapped", || assert_eq!(copy(at, 8), INVALID));
        assert_eq!((free(at, 2 * GRAIN), release(handle)), (0, 0));
        reported("is no device memory", || assert_eq!(fill(at, 8), INVALID));
    });
}

#[test]
fn what_is_in_use_must_not_be_unmapped() {
    isolated!(&[], || {
        let all = free_memory(1);
        let (stream, elsewhere) = (TestStream::new(1), TestStream::new(0));
        let (handle, at) = (memory(1, 2 * GRAIN), room(4 * GRAIN));
        assert_eq!((map(at, 2 * GRAIN, 0, handle, 0), allow(at, 2 * GRAIN, 1, BOTH), release(handle)), (0, 0, 0));
        let used = hold(pointer(at), 2 * GRAIN).unwrap();
        reported("cuMemUnmap takes 4194304 bytes", || assert_eq!(unmap(at, 2 * GRAIN), 0));
        assert_eq!(c!(cudaStreamQuery(stream.0)), cudaError::cudaErrorIllegalAddress, "the device is lost");
        // The pages are still in the way of the work, which nobody hears of any more.
        let other = memory(0, GRAIN);
        assert_eq!(map(at, GRAIN, 0, other, 0), VALUE);
        assert_eq!((map(at + 2 * GRAIN as u64, GRAIN, 0, other, 0), unmap(at + 2 * GRAIN as u64, GRAIN)), (0, 0));
        assert_eq!((free(at, 4 * GRAIN), release(other)), (0, 0));
        // The device tells nobody anything any more; its memory is looked at from inside.
        let device = crate::cuda::core::device::device(1).unwrap();
        assert_eq!(device.heap.room().0, (all - 2 * GRAIN) as u64);
        drop(used);
        assert_eq!(device.heap.room().0, all as u64);
        ok!(cudaStreamQuery(elsewhere.0));
    });
}

#[test]
fn faults_reach_it() {
    let environment = [("GPUCOMM_EMULATOR_MEMORY", "8M")];
    isolated!(&environment, || {
        let no_memory = cudaError::cudaErrorMemoryAllocation.0;
        let mut more = 0;
        let first = memory(0, 2 * GRAIN);
        ok!(cudaSetDevice(0));
        let second = malloc(GRAIN);
        assert_eq!(create(&mut more, 2 * GRAIN, &prop(0, FD), 0), no_memory);
        let mut third = null_mut();
        assert_eq!(c!(cudaMalloc(&mut third, 2 * GRAIN)), cudaError::cudaErrorMemoryAllocation);
        assert_eq!(release(first), 0);
        ok!(cudaMalloc(&mut third, 2 * GRAIN));
        for memory in [second, third] {
            ok!(cudaFree(memory));
        }
        assert_eq!(release(memory(0, 4 * GRAIN)), 0);
    });
}

#[test]
fn what_is_mapped_twice_is_one_memory() {
    isolated!(&[], || {
        let (a, b) = (TestStream::new(0), TestStream::new(0));
        let (handle, grain) = (memory(0, 2 * GRAIN), GRAIN as u64);
        let (whole, second) = (room(2 * GRAIN), room(2 * GRAIN));
        assert_eq!((map(whole, 2 * GRAIN, 0, handle, 0), allow(whole, 2 * GRAIN, 0, BOTH)), (0, 0));
        assert_eq!((map(second, 2 * GRAIN, 0, handle, 0), allow(second, 2 * GRAIN, 0, BOTH)), (0, 0));
        ok!(cudaMemsetAsync(pointer(whole + grain - 8), 1, 16, a.0));
        ok!(cudaMemsetAsync(pointer(second), 1, GRAIN - 8, b.0));
        reported("cudaMemsetAsync writes (bytes 2097144 to 2097145) what cudaMemsetAsync wrote", || {
            ok!(cudaMemsetAsync(pointer(second + grain - 8), 1, 1, b.0));
        });
        b.wait();
        assert_eq!(unmap(second, 2 * GRAIN), 0);
        come_to_the_end(a.0);
        reported("and nobody has seen that done", || unmap(whole, 2 * GRAIN));
    });
}
