//! Communicators that grow.

use std::ptr;

use super::one_sided::newer;
use super::*;
use crate::report::expected::reported;

/// A grown communicator has more ranks than the one that it comes from.
#[test]
fn a_communicator_does_not_grow_to_fewer_ranks() {
    alone!();
    newer("grow::a_communicator_does_not_grow_to_fewer_ranks", || {
        spmd(2, |rank| {
            let mut grown = ptr::null_mut();
            for size in [1, 2] {
                // SAFETY: the pointer is valid for a write.
                let refused = unsafe { ncclCommGrow(rank.comm, size, ptr::null(), -1, &mut grown, ptr::null_mut()) };
                assert_eq!(refused, ncclResult_t::ncclInvalidArgument, "{size}");
                assert!(last_error().contains("are no more than the 2"), "{}", last_error());
            }
        });
    });
}

/// NCCL goes by what was split off last.
#[test]
fn what_was_split_and_shares_does_not_grow() {
    alone!();
    newer("grow::what_was_split_and_shares_does_not_grow", || {
        within_limit(|| {
            set_device(0);
            let mut sharing = config(true);
            sharing.splitShare = 1;
            let (result, comm) = init(1, unique_id(), 0, sharing);
            assert_eq!(result, OK, "{}", last_error());
            let (mut part, mut grown) = (ptr::null_mut(), ptr::null_mut());
            let mut id = ncclUniqueId { internal: [0; 128] };
            // SAFETY: the pointers are valid for writes, and what the group starts has ended when it returns.
            unsafe {
                assert_eq!(ncclCommSplit(comm, 0, 0, &mut part, ptr::null_mut()), OK, "{}", last_error());
                assert_eq!(ncclCommGetUniqueId(comm, &mut id), OK, "{}", last_error());
                let grow = || ncclCommGrow(comm, 2, &id, -1, &mut grown, ptr::null_mut());
                assert_eq!(reported("use the threads of the old", grow), ncclResult_t::ncclInvalidArgument);
                assert!(grown.is_null());
                assert_eq!((ncclCommAbort(part), ncclCommAbort(comm)), (OK, OK));
            }
        });
    });
}

/// An id is for the next child of a communicator, and a part that is split off comes in between.
#[test]
fn a_communicator_does_not_grow_by_the_id_of_another_child() {
    alone!();
    newer("grow::a_communicator_does_not_grow_by_the_id_of_another_child", || {
        spmd(2, |rank| {
            let (mut part, mut grown) = (ptr::null_mut(), ptr::null_mut());
            let mut id = ncclUniqueId { internal: [0; 128] };
            // SAFETY: the pointers are valid for writes.
            unsafe {
                if rank.rank == 0 {
                    assert_eq!(ncclCommGetUniqueId(rank.comm, &mut id), OK, "{}", last_error());
                }
                assert_eq!(ncclCommSplit(rank.comm, 0, 0, &mut part, ptr::null_mut()), OK, "{}", last_error());
                let id = if rank.rank == 0 { &raw const id } else { ptr::null() };
                let refused = ncclCommGrow(rank.comm, 3, id, -1, &mut grown, ptr::null_mut());
                assert_eq!(refused, ncclResult_t::ncclInvalidArgument);
                let expected = "the id is for child 1 of the communicator, expected 2";
                assert!(last_error().contains(expected), "{}", last_error());
                assert_eq!(ncclCommAbort(part), OK);
            }
        });
    });
}

/// Has a communicator of one rank grow to two, without blocking, and passes it, the new one and the id for the other rank.
fn grows_alone(body: impl FnOnce(Rank, Rank, ncclUniqueId) + Send + 'static) {
    within_limit(|| {
        set_device(0);
        let (result, comm) = init(1, unique_id(), 0, config(true));
        assert_eq!(result, OK, "{}", last_error());
        let (mut grown, mut id, mut asks) = (ptr::null_mut(), ncclUniqueId { internal: [0; 128] }, config(false));
        // SAFETY: the pointers are valid for writes, and stay so until the grow has settled.
        unsafe {
            assert_eq!(ncclCommGetUniqueId(comm, &mut id), OK, "{}", last_error());
            assert_eq!(ncclCommGrow(comm, 2, &id, -1, &mut grown, &mut asks), OK, "{}", last_error());
        }
        body(Rank::new(0, 1, comm), Rank::new(0, 2, grown), id);
    });
}

/// As NCCL has it, which asks the new communicator, and not the old one, whether it blocks.
#[test]
fn a_grow_that_does_not_block_is_watched_on_the_new_communicator() {
    alone!();
    newer("grow::a_grow_that_does_not_block_is_watched_on_the_new_communicator", || {
        grows_alone(|old, new, id| {
            assert_eq!((old.state(), new.state()), (OK, ncclResult_t::ncclInProgress), "the other rank has not come");
            let newcomer = std::thread::spawn(move || {
                set_device(1);
                let mut comm = ptr::null_mut();
                // SAFETY: the pointer is valid for a write.
                unsafe {
                    assert_eq!(ncclCommGrow(ptr::null_mut(), 2, &id, 1, &mut comm, ptr::null_mut()), OK);
                    assert_eq!(ncclCommAbort(comm), OK);
                }
            });
            new.settle();
            newcomer.join().expect("no panic");
            new.abort();
            old.abort();
        });
    });
}

/// A split and a shrink end with their parent. A grow waits on the flag of the new communicator alone.
#[test]
fn an_abort_of_the_parent_does_not_end_a_grow() {
    alone!();
    newer("grow::an_abort_of_the_parent_does_not_end_a_grow", || {
        grows_alone(|old, new, _| {
            old.abort();
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(new.state(), ncclResult_t::ncclInProgress, "it waits for the other rank");
            new.abort();
        });
    });
}
