//! Memory of NCCL and windows over it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::processes::{all_well, play};
use super::replays::{CUDA_OK, U32, captured, launch};
use super::*;
use crate::report::expected::reported;

fn allocate(bytes: usize) -> *mut c_void {
    let mut at = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write.
    assert_eq!(unsafe { ncclMemAlloc(&mut at, bytes) }, OK, "{}", last_error());
    assert_eq!(at.addr() % 4096, 0);
    at
}

#[test]
fn windows_are_registered_together_and_work() {
    alone!();
    spmd(3, |rank| {
        let at = allocate(40_000);
        let mut window = std::ptr::null_mut();
        // SAFETY: the memory is there until it is freed at the end.
        unsafe {
            at.cast::<f32>().write(rank.rank as f32);
            let flags = NCCL_WIN_COLL_SYMMETRIC as i32;
            assert_eq!(ncclCommWindowRegister(rank.comm, at, 40_000, &mut window, flags), OK, "{}", last_error());
            assert!(!window.is_null());
            let (datatype, op) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
            assert_eq!(ncclAllReduce(at, at, 1, datatype, op, rank.comm, rank.stream), OK);
            rank.wait();
            assert_eq!(at.cast::<f32>().read(), 3.0);
            assert_eq!(ncclCommWindowDeregister(rank.comm, window), OK);
            assert_eq!(ncclCommWindowDeregister(rank.comm, window), ncclResult_t::ncclInternalError);
            assert_eq!(ncclMemFree(at), OK);
        }
    });
}

#[test]
fn windows_that_differ_are_violations() {
    alone!();
    spmd(2, |rank| {
        let at = allocate(8192);
        let mut window = std::ptr::null_mut();
        let argument = ncclResult_t::ncclInvalidArgument;
        // SAFETY: the memory is there until it is freed at the end.
        unsafe {
            let bytes = 8192 - 4096 * rank.rank;
            let out: *mut ncclWindow_t = &raw mut window;
            let register = |place, bytes| ncclCommWindowRegister(rank.comm, place, bytes, out, 0);
            assert_eq!(reported("4096 bytes", || register(at, bytes)), argument);
            assert!(rank.rank == 1 || last_error().contains("4096 bytes"), "{}", last_error());
            assert_eq!(reported("1048576 bytes at", || register(at, 1 << 20)), argument);
            assert!(out.read().is_null());
            // Nothing to do.
            assert_eq!((register(at, 0), register(std::ptr::null_mut(), 4096)), (OK, OK));
            assert_eq!(rank.state(), OK);
            assert_eq!(ncclMemFree(at), OK);
        }
    });
}

#[test]
fn windows_that_lie_wrong_are_violations() {
    alone!();
    spmd(2, |rank| {
        let at = allocate(8192);
        let flags = NCCL_WIN_COLL_SYMMETRIC as i32;
        let register = |place| {
            let mut window = std::ptr::null_mut();
            // SAFETY: the memory is there until it is freed at the end.
            let made = unsafe { ncclCommWindowRegister(rank.comm, place, 4096, &mut window, flags) };
            assert_eq!(made, OK, "{}", last_error());
            window
        };
        let first = register(at);
        let second = reported("a symmetric window lies over some of", || register(at));
        for window in [first, second] {
            // SAFETY: nobody uses it.
            assert_eq!(unsafe { ncclCommWindowDeregister(rank.comm, window) }, OK);
        }
        let other = at.wrapping_byte_add(4096 * rank.rank);
        let apart = reported("the window begins at another byte", || register(other));
        // SAFETY: nobody uses either.
        unsafe {
            assert_eq!(ncclCommWindowDeregister(rank.comm, apart), OK);
            assert_eq!(ncclMemFree(at), OK);
        }
    });
}

/// The driver refuses memory that cannot be mapped, and NCCL an odd address, before the ranks meet: the others wait.
#[test]
fn who_is_refused_a_window_leaves_the_others_waiting() {
    alone!();
    for (skip, refused) in [(0, ncclResult_t::ncclUnhandledCudaError), (256, ncclResult_t::ncclInvalidArgument)] {
        let (waits, refusal) = (AtomicBool::new(true), Barrier::new(2));
        spmd(2, move |rank| {
            let (at, plain) = (allocate(8192), Buffer::zeros(2048));
            let place = if skip == 0 { plain.0 } else { at.wrapping_byte_add(skip) };
            let mut window = std::ptr::dangling_mut();
            let mut register = |place| {
                // SAFETY: the memory is there until it is freed at the end.
                unsafe { ncclCommWindowRegister(rank.comm, place, 4096, &raw mut window, 0) }
            };
            if rank.rank == 1 {
                assert_eq!(register(place), refused, "{}", last_error());
                assert!(window.is_null());
                std::thread::sleep(Duration::from_millis(100));
                refusal.wait();
                rank.abort();
            } else {
                let (comm, waits, refusal) = (rank.comm.addr(), &waits, &refusal);
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        refusal.wait();
                        waits.store(false, Ordering::Release);
                        // SAFETY: takes no pointers.
                        unsafe { ncclCommRevoke(std::ptr::without_provenance_mut(comm), 0) }
                    });
                    assert_ne!(register(at), OK);
                    assert!(!waits.load(Ordering::Acquire), "it waited until it was stopped");
                });
            }
            // SAFETY: nobody has it.
            assert_eq!(unsafe { ncclMemFree(at) }, OK);
        });
    }
}

/// Where ranks cannot map each other's memory.
#[test]
fn without_windows_a_rank_registers_for_itself_or_not_at_all() {
    alone!();
    const NONE: (&str, &str) = ("GPUCOMM_EMULATOR_WINDOWS", "0");
    all_well(&play("no windows", 2, &[NONE]));
    all_well(&play("no windows", 2, &[NONE, ("NCCL_LOCAL_REGISTER", "0")]));
}

/// What a rank of these processes sees.
pub(super) fn none(rank: &Rank) {
    let registers = std::env::var("NCCL_LOCAL_REGISTER").is_err();
    let at = allocate(4096);
    let before = std::ptr::without_provenance_mut(1);
    let mut window = before;
    // SAFETY: the memory is there until it is freed at the end.
    unsafe {
        // Only one rank, which waits for nobody.
        if rank.rank == 0 {
            let flags = NCCL_WIN_COLL_SYMMETRIC as i32;
            assert_eq!(ncclCommWindowRegister(rank.comm, at, 4096, &mut window, flags), OK, "{}", last_error());
            assert_eq!(window == before, !registers);
            assert!(!registers || !window.is_null());
            if registers {
                assert_eq!(ncclCommWindowDeregister(rank.comm, window), OK, "{}", last_error());
            }
        }
        assert_eq!(ncclMemFree(at), OK);
    }
}

/// NCCL unmaps a window at once, and looks at no operation.
#[test]
fn what_operations_use_stays_a_window() {
    alone!();
    spmd(2, |rank| {
        rank.connect();
        let (at, mut window) = (allocate(4096), std::ptr::null_mut());
        // SAFETY: the memory stays, as the communicator does that is aborted.
        unsafe {
            let flags = NCCL_WIN_COLL_SYMMETRIC as i32;
            assert_eq!(ncclCommWindowRegister(rank.comm, at, 4096, &mut window, flags), OK, "{}", last_error());
            let sum = || ncclAllReduce(at, at, 4, U32, ncclRedOp_t::ncclSum, rank.comm, rank.stream);
            assert_eq!(sum(), OK);
            rank.wait();
            let deregister = || ncclCommWindowDeregister(rank.comm, window);
            if rank.rank == 0 {
                // The other rank does not come.
                assert_eq!(sum(), OK);
                let early = reported("operations use the window", deregister);
                assert_eq!(early, ncclResult_t::ncclInvalidUsage);
            } else {
                assert_eq!(deregister(), OK);
            }
        }
        rank.abort();
    });
}

/// Kernels between symmetric windows are captured with the addresses of these.
#[test]
fn a_graph_needs_the_windows_that_it_was_captured_with() {
    alone!();
    spmd(2, |rank| {
        rank.connect();
        let (at, mut window) = (allocate(4096), std::ptr::null_mut());
        // SAFETY: the memory is there until it is freed at the end.
        unsafe {
            let flags = NCCL_WIN_COLL_SYMMETRIC as i32;
            assert_eq!(ncclCommWindowRegister(rank.comm, at, 4096, &mut window, flags), OK, "{}", last_error());
            let exec = captured(rank.stream, || {
                let sum = ncclAllReduce(at, at, 4, U32, ncclRedOp_t::ncclSum, rank.comm, rank.stream);
                assert_eq!(sum, OK, "{}", last_error());
            });
            launch(exec, rank.stream);
            rank.wait();
            assert_eq!(ncclCommWindowDeregister(rank.comm, window), OK, "{}", last_error());
            let late = reported("windows that were deregistered", || cudaGraphLaunch(exec, rank.stream));
            assert_eq!(late, cudaError::cudaErrorInvalidValue);
            assert_eq!((cudaGraphExecDestroy(exec), ncclMemFree(at)), (CUDA_OK, OK));
        }
    });
}

/// NCCL registers those of one communicator one after the other.
#[test]
fn windows_of_one_group_are_registered_in_their_order() {
    alone!();
    spmd(2, |rank| {
        let mut all: Vec<_> =
            (1..=16).map(|pages| (allocate(4096 * pages), 4096 * pages, std::ptr::null_mut())).collect();
        // SAFETY: the memory and the places stay until the group has ended.
        unsafe {
            assert_eq!(ncclGroupStart(), OK);
            for (at, bytes, window) in &mut all {
                assert_eq!(ncclCommWindowRegister(rank.comm, *at, *bytes, window, 0), OK);
            }
            assert_eq!(ncclGroupEnd(), OK, "{}", last_error());
            for (at, _, window) in all {
                assert_eq!((ncclCommWindowDeregister(rank.comm, window), ncclMemFree(at)), (OK, OK));
            }
        }
    });
}

#[test]
fn in_a_group_the_handle_comes_at_the_end() {
    alone!();
    spmd(2, |rank| {
        let at = allocate(4096);
        let mut window = std::ptr::null_mut();
        // SAFETY: the memory and the place stay until the group has ended.
        unsafe {
            assert_eq!(ncclGroupStart(), OK);
            assert_eq!(ncclCommWindowRegister(rank.comm, at, 4096, &raw mut window, 0), OK);
            assert!((&raw const window).read().is_null());
            assert_eq!(ncclGroupEnd(), OK, "{}", last_error());
            assert!(!(&raw const window).read().is_null());
            assert_eq!(ncclCommWindowDeregister(rank.comm, window), OK);
            assert_eq!(ncclMemFree(at), OK);
        }
    });
}

/// Bytes that the device could give.
fn free_memory() -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the pointers are valid for writes.
    assert_eq!(unsafe { cudaMemGetInfo(&mut free, &mut total) }, cudaError::cudaSuccess);
    free
}

/// How a rank ends its communicator, and what becomes of its window.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Abort,
    Destroy,
    DeregisterAndAbort,
    RevokeDeregisterAndAbort,
    RevokeDeregisterAndDestroy,
}

/// Bytes that rank 0's device has lost after a window of 256 KiB, of which each rank makes an end of its own.
fn lost(ends: [End; 2]) -> usize {
    let ended = Barrier::new(2);
    let lost = spmd(2, move |rank| {
        const BYTES: usize = 256 << 10;
        let before = free_memory();
        let at = allocate(BYTES);
        let mut window = std::ptr::null_mut();
        // SAFETY: the memory is there until it is freed at the end.
        unsafe {
            assert_eq!(ncclCommWindowRegister(rank.comm, at, BYTES, &mut window, 0), OK, "{}", last_error());
            let end = ends[rank.rank];
            if matches!(end, End::RevokeDeregisterAndAbort | End::RevokeDeregisterAndDestroy) {
                assert_eq!(ncclCommRevoke(rank.comm, 0), OK);
            }
            if !matches!(end, End::Abort | End::Destroy) {
                assert_eq!(ncclCommWindowDeregister(rank.comm, window), OK, "{}", last_error());
            }
            if matches!(end, End::Destroy | End::RevokeDeregisterAndDestroy) {
                rank.aborted.set(true);
                assert_eq!(ncclCommDestroy(rank.comm), OK, "{}", last_error());
            } else {
                rank.abort();
            }
            // The other rank has ended, too.
            ended.wait();
            assert_eq!(ncclMemFree(at), OK, "{}", last_error());
        }
        before - free_memory()
    });
    lost[0]
}

#[test]
fn memory_of_a_window_that_outlives_its_communicator_is_lost() {
    alone!();
    for end in [End::Abort, End::Destroy] {
        assert!(lost([end; 2]) >= 256 << 10, "the rank's own mapping");
        assert!(lost([End::DeregisterAndAbort, end]) >= 256 << 10, "the peer's mapping");
    }
    for end in [End::DeregisterAndAbort, End::RevokeDeregisterAndAbort, End::RevokeDeregisterAndDestroy] {
        assert_eq!(lost([end; 2]), 0);
    }
}

/// NCCL's kernels between symmetric windows keep sums of two-byte types in f32; its others round at each step.
#[test]
fn sums_between_symmetric_windows_are_rounded_once() {
    alone!();
    for (flags, want) in [(0, 1.0), (NCCL_WIN_COLL_SYMMETRIC as i32, 1.0 + 2f32.powi(-10))] {
        spmd(3, move |rank| {
            let (at, half) = (allocate(4096), ncclDataType_t::ncclFloat16);
            let mut window = std::ptr::null_mut();
            let value = if rank.rank == 0 { 1.0 } else { 2f32.powi(-11) };
            // SAFETY: the memory is there until it is freed at the end.
            unsafe {
                at.cast::<::half::f16>().write(::half::f16::from_f32(value));
                assert_eq!(ncclCommWindowRegister(rank.comm, at, 4096, &mut window, flags), OK, "{}", last_error());
                assert_eq!(ncclAllReduce(at, at, 1, half, ncclRedOp_t::ncclSum, rank.comm, rank.stream), OK);
                rank.wait();
                assert_eq!(at.cast::<::half::f16>().read().to_f32(), want);
                assert_eq!(ncclCommWindowDeregister(rank.comm, window), OK);
                assert_eq!(ncclMemFree(at), OK);
            }
        });
    }
}
