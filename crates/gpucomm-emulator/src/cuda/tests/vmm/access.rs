//! Who may use memory: as on four H200s, row by row (docs/measurements/2026-11-22-h200-access.md).

use super::*;

/// What work on a stream of device 1 may do with memory of device 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct May {
    fill: bool,
    copy_in: bool,
    copy_out: bool,
    peer_in: bool,
    peer_out: bool,
}

const ALL: May = May { fill: true, copy_in: true, copy_out: true, peer_in: true, peer_out: true };

fn tried(memory: *mut c_void, stream: &TestStream, owner: i32) -> May {
    tried_from(1, memory, stream, owner)
}

/// Where this device is current.
fn tried_from(current: i32, memory: *mut c_void, stream: &TestStream, owner: i32) -> May {
    const BYTES: usize = 4096;
    ok!(cudaSetDevice(1));
    let own = malloc(BYTES);
    ok!(cudaSetDevice(current));
    let may = |code: cudaError| {
        assert!([SUCCESS, INVALID].contains(&code), "{code:?}");
        code == SUCCESS
    };
    let (any, mut host) = (cudaMemcpyKind::cudaMemcpyDefault, [0u8; 64]);
    let host = host.as_mut_ptr().cast::<c_void>();
    let may = May {
        fill: may(c!(cudaMemsetAsync(memory, 7, BYTES, stream.0))),
        copy_in: may(c!(cudaMemcpyAsync(memory, own, BYTES, any, stream.0))),
        copy_out: may(c!(cudaMemcpyAsync(own, memory, BYTES, any, stream.0))),
        peer_in: may(c!(cudaMemcpyPeerAsync(memory, owner, own, 1, BYTES, stream.0))),
        peer_out: may(c!(cudaMemcpyPeerAsync(own, 1, memory, owner, BYTES, stream.0))),
    };
    // The host's side is always open.
    assert_eq!(c!(cudaMemcpyAsync(memory, host, 64, any, stream.0)) == SUCCESS, may.copy_in);
    assert_eq!(c!(cudaMemcpyAsync(host, memory, 64, any, stream.0)) == SUCCESS, may.copy_out);
    stream.wait();
    ok!(cudaFree(own));
    may
}

#[test]
fn memory_of_cudamalloc() {
    isolated!(&[], || {
        let stream = TestStream::new(1);
        ok!(cudaSetDevice(0));
        let memory = malloc(4096);
        assert_eq!(tried(memory, &stream, 0), May { fill: false, ..ALL });
        ok!(cudaDeviceEnablePeerAccess(0, 0));
        assert_eq!(tried(memory, &stream, 0), ALL);
        ok!(cudaSetDevice(0));
        let later = malloc(4096);
        assert_eq!(tried(later, &stream, 0), ALL, "and what is allocated later");
        ok!(cudaSetDevice(1));
        let back = malloc(4096);
        let other = TestStream::new(0);
        assert_eq!(c!(cudaMemsetAsync(back, 0, 4096, other.0)), INVALID, "access has a direction");
        for memory in [memory, later, back] {
            ok!(cudaFree(memory));
        }
        assert_eq!(report::count(), 0);
    });
}

#[test]
fn memory_of_pools_and_of_nccl() {
    alone!();
    let stream = TestStream::new(1);
    let mut pool = null_mut();
    ok!(gpucommPoolCreate(&mut pool, 0));
    let mut memory = null_mut();
    ok!(cudaMallocFromPoolAsync(&mut memory, 4096, pool, stream.0));
    assert_eq!(tried(memory, &stream, 0), ALL, "pools are made open to all");
    ok!(cudaFree(memory));
    use crate::cuda::tasks::memory::{allocate, unmap};
    let memory = allocate(0, 4096, crate::memory::heap::Origin::Nccl).unwrap();
    assert_eq!(tried(memory, &stream, 0), ALL);
    unmap(memory).unwrap();
}

#[test]
fn memory_that_is_mapped() {
    isolated!(&[], || {
        let stream = TestStream::new(1);
        let (handle, at) = (memory(0, GRAIN), room(GRAIN));
        assert_eq!(map(at, GRAIN, 0, handle, 0), 0);
        let nothing = May { fill: false, copy_in: false, copy_out: false, peer_in: false, peer_out: false };
        let read = May { copy_out: true, ..nothing };
        let tried = || tried(pointer(at), &stream, 0);
        assert_eq!(tried(), nothing, "for nobody at first");
        for (owner, other, may) in [
            (BOTH, NONE, May { peer_in: true, peer_out: true, ..nothing }),
            (READ, NONE, May { peer_out: true, ..nothing }),
            (READ, READ, May { peer_out: true, ..read }),
            (NONE, BOTH, May { peer_in: false, peer_out: false, ..ALL }),
            (NONE, READ, read),
            (BOTH, BOTH, ALL),
            (NONE, NONE, nothing),
        ] {
            assert_eq!((allow(at, GRAIN, 0, owner), allow(at, GRAIN, 1, other)), (0, 0));
            assert_eq!((allowed(at, 0), allowed(at + 7, 1)), (Ok(owner.into()), Ok(other.into())));
            assert_eq!(tried(), may, "{owner} {other}");
            // Copies see what the current device does, fills what that of their stream does.
            let (copy_in, copy_out) = (owner == BOTH, owner != NONE);
            let from_other = tried_from(0, pointer(at), &stream, 0);
            assert_eq!(
                from_other,
                May { copy_in, copy_out, ..may },
                "{owner} {other}, where the other device is current"
            );
        }
        // What is mapped anew is for nobody.
        assert_eq!((allow(at, GRAIN, 1, BOTH), unmap(at, GRAIN), map(at, GRAIN, 0, handle, 0)), (0, 0, 0));
        assert_eq!((allowed(at, 1), tried()), (Ok(0), nothing));
        assert_eq!((unmap(at, GRAIN), release(handle), free(at, GRAIN)), (0, 0, 0));
        assert_eq!(report::count(), 0);
    });
}
