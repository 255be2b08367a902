//! Memory that ranks register, each by itself.

use super::*;
use crate::report::expected::{expect, reported};

fn allocate(bytes: usize) -> *mut c_void {
    let mut at = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write.
    assert_eq!(unsafe { ncclMemAlloc(&mut at, bytes) }, OK, "{}", last_error());
    at
}

impl Rank {
    fn register(&self, at: *mut c_void, bytes: usize) -> *mut c_void {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place is valid for a write, and the function checks the memory.
        assert_eq!(unsafe { ncclCommRegister(self.comm, at, bytes, &mut handle) }, OK, "{}", last_error());
        assert!(!handle.is_null());
        handle
    }

    fn deregister(&self, handle: *mut c_void) -> ncclResult_t {
        // SAFETY: the function checks the handle.
        unsafe { ncclCommDeregister(self.comm, handle) }
    }

    /// Sums what lies at `send` into what lies at `recv`.
    fn sum(&self, send: *mut c_void, recv: *mut c_void) -> ncclResult_t {
        let (datatype, op) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
        // SAFETY: the function checks the buffers.
        unsafe { ncclAllReduce(send, recv, 100, datatype, op, self.comm, self.stream) }
    }
}

fn free(at: *mut c_void) {
    // SAFETY: from ncclMemAlloc, and no more used.
    assert_eq!(unsafe { ncclMemFree(at) }, OK, "{}", last_error());
}

#[test]
fn pages_are_registered_as_often_as_they_are() {
    alone!();
    spmd(2, |rank| {
        let at = allocate(40_000);
        let whole = rank.register(at, 40_000);
        let within = rank.register(at.wrapping_byte_add(5000), 10);
        assert_eq!(whole, within, "pages that are registered already");
        assert_eq!(rank.sum(at, at), OK);
        rank.wait();
        assert_eq!((rank.deregister(within), rank.deregister(whole)), (OK, OK));
        let gone = ncclResult_t::ncclInvalidUsage;
        assert_eq!(reported("there is no registration with this handle", || rank.deregister(whole)), gone);
        assert_eq!(rank.deregister(std::ptr::null_mut()), OK);
        assert_eq!(rank.state(), OK);
        free(at);
    });
}

#[test]
fn ranks_that_do_not_register_alike_are_reported() {
    alone!();
    for registered in [[true, false], [false, true]] {
        spmd(2, move |rank| {
            let (send, recv) = (allocate(4096), allocate(4096));
            let expected = expect("in registered memory");
            let handles = registered[rank.rank].then(|| [send, recv].map(|at| rank.register(at, 4096)));
            assert_eq!(rank.sum(send, recv), OK);
            while rank.state() == OK {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(expected.count() > 0);
            let _ = handles.map(|handles| handles.map(|handle| rank.deregister(handle)));
            rank.abort();
        });
    }
}

/// NCCL shows no other rank memory that was not mapped: there it makes no difference.
#[test]
fn memory_that_was_not_mapped_counts_for_nothing() {
    alone!();
    spmd(2, |rank| {
        let (send, recv) = (Buffer::zeros(100), Buffer::zeros(100));
        let handles = (rank.rank == 0).then(|| [&send, &recv].map(|buffer| rank.register(buffer.0, 400)));
        assert_eq!(rank.sum(send.0, recv.0), OK);
        rank.wait();
        for handle in handles.into_iter().flatten() {
            assert_eq!(rank.deregister(handle), OK);
        }
        assert_eq!(rank.state(), OK);
    });
}

/// A message of which one end is registered.
#[test]
fn both_ends_of_a_message_are_registered() {
    alone!();
    spmd(2, |rank| {
        rank.connect();
        let at = allocate(4096);
        let expected = expect("in registered memory");
        let handle = (rank.rank == 0).then(|| rank.register(at, 4096));
        let (float, comm, stream) = (ncclDataType_t::ncclFloat32, rank.comm, rank.stream);
        // SAFETY: the memory is there until it is freed at the end.
        unsafe {
            let issued = if rank.rank == 0 {
                ncclSend(at, 100, float, 1, comm, stream)
            } else {
                ncclRecv(at, 100, float, 0, comm, stream)
            };
            assert_eq!(issued, OK);
        }
        while rank.state() == OK {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(expected.count() > 0);
        let _ = handle.map(|handle| rank.deregister(handle));
        rank.abort();
    });
}

#[test]
fn what_operations_use_stays_registered() {
    alone!();
    spmd(2, |rank| {
        rank.connect();
        let at = allocate(4096);
        let handle = rank.register(at, 4096);
        if rank.rank == 0 {
            assert_eq!(rank.sum(at, at), OK);
            let early = reported("operations use what is deregistered", || rank.deregister(handle));
            assert_eq!(early, ncclResult_t::ncclInvalidUsage);
        } else {
            assert_eq!(rank.deregister(handle), OK);
        }
        rank.abort();
    });
}

#[test]
fn what_is_registered_is_not_left_behind() {
    alone!();
    spmd(1, |rank| {
        let at = allocate(4096);
        rank.register(at, 4096);
        reported("ends with 1 registrations", || rank.abort());
        free(at);
    });
}
