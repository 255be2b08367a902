//! Init, split, finalize, destroy.

use super::processes::{all_well, play};
use super::*;
use crate::nccl::basics::error::Failure;
use crate::nccl::basics::unique_id as unique_ids;
use crate::report::expected::{expect, reported};
use std::os::unix::fs::MetadataExt;

fn in_threads<R: Send + 'static>(count: usize, body: impl Fn(usize) -> R + Send + Sync + 'static) -> Vec<R> {
    within_limit(move || {
        let body = &body;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|i| scope.spawn(move || body(i))).collect();
            threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    })
}

/// What a rank wants of its configuration.
type Change = fn(&mut ncclConfig_t);

#[test]
fn a_communicator_knows_its_place() {
    alone!();
    spmd(3, |rank| {
        let (mut size, mut me, mut device, mut version) = (0, 0, 0, 0);
        // SAFETY: the pointers are valid for writes.
        unsafe {
            assert_eq!(ncclCommCount(rank.comm, &mut size), OK);
            assert_eq!(ncclCommUserRank(rank.comm, &mut me), OK);
            assert_eq!(ncclCommCuDevice(rank.comm, &mut device), OK);
            assert_eq!(ncclGetVersion(&mut version), OK);
            assert_eq!(ncclGetVersion(std::ptr::null_mut()), ncclResult_t::ncclInvalidArgument);
        }
        assert_eq!((size, me, device, version), (3, rank.rank as i32, rank.rank as i32, 22809));
    });
}

#[test]
fn ranks_are_configured_alike() {
    alone!();
    let started = |fields: [Change; 2]| {
        let id = unique_id();
        in_threads(2, move |me| {
            set_device(me);
            let mut own = config(true);
            fields[me](&mut own);
            let (result, comm) = init(2, id, me, own);
            // SAFETY: nobody else has it, and a start that failed leaves one as well.
            assert_eq!(unsafe { ncclCommAbort(comm) }, OK);
            result
        })
    };
    let differ: [([Change; 2], _); 3] = [
        ([|_| {}, |config| config.maxCTAs = 8], "is configured with maxCTAs"),
        (
            [|config| config.maxCTAs = 9, |config| (config.minCTAs, config.maxCTAs) = (2, 9)],
            "is configured with minCTAs",
        ),
        ([|config| config.CTAPolicy = 1, |_| {}], "is configured with CTAPolicy"),
    ];
    for (fields, text) in differ {
        assert_eq!(reported(text, || started(fields)), [ncclResult_t::ncclInvalidArgument; 2]);
    }
    // What is the same in effect, and what each rank may have as it likes.
    let alike: [Change; 2] = [
        |config| (config.maxCTAs, config.cgaClusterSize) = (64, 2),
        |config| (config.maxCTAs, config.CTAPolicy, config.commName) = (1000, 0, c"a name".as_ptr()),
    ];
    assert_eq!(started(alike), [OK; 2]);
}

#[test]
fn nonsense_at_the_start_is_refused() {
    alone!();
    within_limit(|| {
        let (argument, id) = (ncclResult_t::ncclInvalidArgument, unique_id());
        assert_eq!(init(0, id, 0, config(true)), (argument, std::ptr::null_mut()));
        assert_eq!(init(2, id, 2, config(true)).0, argument);
        assert!(last_error().contains("rank is 2, expected 0 to 1"), "{}", last_error());
        assert_eq!(init(2, ncclUniqueId { internal: [0; 128] }, 0, config(true)).0, argument);
        let mut bad = config(true);
        bad.magic = 0;
        assert_eq!(init(1, id, 0, bad).0, argument);
        let (result, comm) = init(1, id, 0, config(true));
        assert_eq!(result, OK, "the thread still works: {}", last_error());
        let again = reported("rank 0 has joined twice", || init(1, id, 0, config(true)));
        assert_eq!(again.0, argument, "an id is for one communicator");
        // SAFETY: take no pointers.
        unsafe {
            assert_eq!(ncclCommDestroy(comm), OK);
            assert_eq!(ncclCommDestroy(std::ptr::null_mut()), OK);
            assert_eq!(reported("was destroyed or aborted", || ncclCommAbort(comm)), argument);
            let used = reported("used though its start has failed", || {
                ncclCommSplit(again.1, 0, 0, &mut std::ptr::null_mut(), std::ptr::null_mut())
            });
            assert_eq!(used, ncclResult_t::ncclInvalidUsage);
            assert_eq!(ncclCommAbort(again.1), OK, "a start that failed leaves a communicator");
        }
    });
}

#[test]
fn ranks_that_contradict_each_other_all_fail() {
    alone!();
    let (sized, joined) = (expect("ranks, another rank"), expect("rank 1 has joined twice"));
    let id = unique_id();
    let sizes = in_threads(2, move |i| {
        set_device(i);
        init(2 + i, id, i, config(true)).0
    });
    assert_eq!(sizes, [ncclResult_t::ncclInvalidArgument; 2]);
    let id = unique_id();
    let twice = in_threads(2, move |i| {
        set_device(i);
        init(3, id, 1, config(true)).0
    });
    assert_eq!(twice, [ncclResult_t::ncclInvalidArgument; 2]);
    assert_eq!((sized.count(), joined.count()), (1, 1));
    let id = unique_id();
    let devices = in_threads(2, move |i| {
        set_device(0);
        let (result, comm) = init(2, id, i, config(true));
        let text = last_error();
        // SAFETY: takes no pointer. A start that fails leaves a communicator, which is to be aborted.
        (result, unsafe { ncclCommAbort(comm) }, text)
    });
    for (result, aborted, text) in devices {
        assert_eq!((result, aborted), (ncclResult_t::ncclInvalidUsage, OK));
        assert!(text.contains("Duplicate GPU"), "{text}");
    }
}

#[test]
fn a_non_blocking_start_can_be_watched_and_aborted() {
    alone!();
    within_limit(|| {
        let (result, comm) = init(2, unique_id(), 0, config(false));
        assert_eq!(result, ncclResult_t::ncclInProgress);
        let mut state = OK;
        std::thread::sleep(Duration::from_millis(30));
        // SAFETY: the pointers are valid for writes.
        unsafe {
            assert_eq!(ncclCommGetAsyncError(comm, &mut state), OK);
            assert_eq!(state, ncclResult_t::ncclInProgress, "the other rank never comes");
            assert_eq!(ncclCommCount(comm, &mut 0), ncclResult_t::ncclInvalidArgument);
            let begin = std::time::Instant::now();
            assert_eq!(ncclCommAbort(comm), OK);
            assert!(begin.elapsed() < Duration::from_secs(1));
            let gone = reported("was destroyed or aborted", || ncclCommGetAsyncError(comm, &mut state));
            assert_eq!(gone, ncclResult_t::ncclInvalidArgument);
        }
    });
}

#[test]
fn a_non_blocking_communicator_settles_after_each_operation() {
    alone!();
    let id = unique_id();
    in_threads(2, move |rank| {
        set_device(rank);
        let (result, comm) = init(2, id, rank, config(false));
        assert_eq!(result, ncclResult_t::ncclInProgress);
        let rank = Rank::new(rank, 2, comm);
        rank.settle();
        let buffer = Buffer::new(&[1.0; 4]);
        for _ in 0..5 {
            assert_eq!(rank.all_reduce(&buffer), ncclResult_t::ncclInProgress);
            rank.settle();
        }
        rank.wait();
        assert_eq!(buffer.values(), [32.0; 4]);
        // A blocking child of a non-blocking parent.
        let (mut child, mut blocking) = (std::ptr::null_mut(), config(true));
        // SAFETY: the pointers stay valid until the parent has settled.
        assert_eq!(unsafe { ncclCommSplit(rank.comm, 0, 0, &mut child, &mut blocking) }, OK);
        rank.settle();
        // SAFETY: written by the split, which has settled.
        let child = unsafe { (&raw const child).read_volatile() };
        let child = Rank::new(rank.rank, 2, child);
        assert_eq!(child.all_reduce(&buffer), OK);
        child.wait();
        assert_eq!(buffer.values(), [64.0; 4]);
        child.end();
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { ncclCommFinalize(rank.comm) }, ncclResult_t::ncclInProgress);
        rank.settle();
        // A second one is refused, which is an asynchronous error, too: such a communicator is not to be destroyed.
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { ncclCommFinalize(rank.comm) }, ncclResult_t::ncclInvalidArgument);
        assert_eq!(rank.state(), ncclResult_t::ncclInvalidArgument);
        rank.end();
    });
}

#[test]
fn split_orders_by_key_and_leaves_out_who_has_no_color() {
    alone!();
    spmd(4, |rank| {
        for negative in [NCCL_SPLIT_NOCOLOR - 1, -7] {
            let mut none = std::ptr::null_mut();
            // SAFETY: the pointer is valid for a write.
            let refused = unsafe { ncclCommSplit(rank.comm, negative, 0, &mut none, std::ptr::null_mut()) };
            assert_eq!(refused, ncclResult_t::ncclInvalidArgument, "{negative}");
        }
        let color = if rank.rank == 3 { NCCL_SPLIT_NOCOLOR } else { 7 };
        let mut child = std::ptr::null_mut();
        let key = 10 - rank.rank as i32;
        // SAFETY: the pointer is valid for a write.
        let split = unsafe { ncclCommSplit(rank.comm, color, key, &mut child, std::ptr::null_mut()) };
        assert_eq!(split, OK, "{}", last_error());
        if rank.rank == 3 {
            assert!(child.is_null());
            return;
        }
        let (mut size, mut place) = (0, 0);
        // SAFETY: the pointers are valid for writes.
        unsafe {
            assert_eq!(ncclCommCount(child, &mut size), OK);
            assert_eq!(ncclCommUserRank(child, &mut place), OK);
        }
        assert_eq!((size, place), (3, 2 - rank.rank as i32));
        let child = Rank::new(place as usize, 3, child);
        let buffer = Buffer::new(&[1.0; 3]);
        assert_eq!(child.all_reduce(&buffer), OK);
        child.wait();
        assert_eq!(buffer.values(), [3.0; 3]);
        child.end();
    });
}

#[test]
fn a_finalized_communicator_takes_no_more_work() {
    alone!();
    spmd(2, |rank| {
        let buffer = Buffer::new(&[1.0; 3]);
        assert_eq!(rank.all_reduce(&buffer), OK);
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { ncclCommFinalize(rank.comm) }, OK);
        assert_eq!(buffer.values(), [2.0; 3], "finalize waits for the work");
        let used = reported("used though it was finalized", || rank.all_reduce(&buffer));
        assert_eq!(used, ncclResult_t::ncclInvalidUsage);
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { ncclCommFinalize(rank.comm) }, ncclResult_t::ncclInvalidArgument);
    });
}

/// What a process of its own does: its child has no devices.
pub(super) fn forked(rank: &Rank) {
    let (buffer, mut window, mut at) = (Buffer::new(&[1.0; 4]), std::ptr::null_mut(), std::ptr::null_mut());
    assert_eq!(rank.all_reduce(&buffer), OK);
    rank.wait();
    // SAFETY: the process has no threads that hold locks now; the child ends without running anything else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut count = 0;
        // SAFETY: the pointers are valid, and nothing is done.
        let results = unsafe {
            [
                rank.all_reduce(&buffer),
                ncclMemAlloc(&mut at, 4096),
                ncclCommWindowRegister(rank.comm, buffer.0, 16, &mut window, 0),
                ncclCommDestroy(rank.comm),
            ]
        };
        let failed = results.iter().all(|&result| result == ncclResult_t::ncclUnhandledCudaError);
        // What needs no device works.
        // SAFETY: the pointer is valid for a write; ends this process at once.
        unsafe { libc::_exit(i32::from(!failed || ncclCommCount(rank.comm, &mut count) != OK || count != 1)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(rank.all_reduce(&buffer), OK);
    rank.wait();
    rank.end();
}

#[test]
fn a_forked_process_is_told_that_it_cannot_work() {
    alone!();
    all_well(&play("forked", 1, &[]));
}

/// Rank 1 comes, and has died when rank 0 comes.
pub(super) fn half_a_start(me: usize, id: ncclUniqueId) {
    set_device(me);
    if me == 1 {
        std::thread::spawn(move || init(2, id, me, config(true)).0);
        std::thread::sleep(Duration::from_millis(500));
        // SAFETY: ends the process as a crash would.
        unsafe { libc::_exit(7) };
    }
    std::thread::sleep(Duration::from_secs(3));
    let (result, comm) = init(2, id, me, config(true));
    assert_eq!(result, ncclResult_t::ncclRemoteError);
    assert!(last_error().contains("rank 1 died"), "{}", last_error());
    // SAFETY: takes a handle.
    assert_eq!(unsafe { ncclCommAbort(comm) }, OK);
}

#[test]
fn nobody_starts_with_a_rank_that_has_died_since() {
    alone!();
    let outputs = play("half a start", 2, &[]);
    assert_eq!(outputs[1].status.code(), Some(7), "{outputs:?}");
    all_well(&outputs[..1]);
}

#[test]
fn a_start_that_failed_leaves_no_file() {
    alone!();
    within_limit(|| {
        set_device(0);
        let id = unique_id();
        let file = format!("/proc/self/fd/{}", unique_ids::read(&id).words()[1] >> 32);
        let inode = || std::fs::metadata(&file).map(|file| file.ino()).ok();
        let before = inode();
        assert!(before.is_some());
        let (result, comm) = init(2, id, 0, config(false));
        assert_eq!(result, ncclResult_t::ncclInProgress);
        // SAFETY: takes a handle.
        assert_eq!(unsafe { ncclCommAbort(comm) }, OK);
        // Another file may have the number by now.
        assert_ne!(inode(), before);
    });
}

#[test]
fn the_first_failure_of_a_communicator_stays() {
    alone!();
    spmd(1, |rank| {
        let comm = registry::find(rank.comm).expect("a live communicator");
        comm.fail(&Failure::argument("the first"));
        comm.fail(&Failure::usage("the second"));
        assert_eq!(rank.state(), ncclResult_t::ncclInvalidArgument);
        assert!(rank.error().contains("the first"), "{}", rank.error());
    });
}

/// The call stops the communicator, and what waits is the end of the group, or another thread.
#[test]
fn a_revoke_is_a_job_of_its_group() {
    alone!();
    let id = unique_id();
    in_threads(2, move |rank| {
        set_device(rank);
        let (result, comm) = init(2, id, rank, config(false));
        assert_eq!(result, ncclResult_t::ncclInProgress);
        let rank = Rank::new(rank, 2, comm);
        rank.settle();
        let buffer = Buffer::new(&[1.0; 4]);
        assert_eq!(rank.all_reduce(&buffer), ncclResult_t::ncclInProgress);
        rank.settle();
        rank.wait();
        let held = hold_up(rank.stream);
        assert_eq!(rank.all_reduce(&buffer), ncclResult_t::ncclInProgress);
        rank.settle();
        // SAFETY: takes no pointers.
        unsafe {
            assert_eq!(ncclGroupStart(), OK);
            assert_eq!(ncclCommRevoke(rank.comm, 0), OK);
            assert_eq!(ncclGroupEnd(), ncclResult_t::ncclInProgress);
            assert_eq!(rank.state(), ncclResult_t::ncclInProgress, "its stream is held up");
            assert_eq!(ncclCommRevoke(rank.comm, 0), ncclResult_t::ncclInvalidArgument);
        }
        drop(held);
        rank.settle();
        rank.wait();
        rank.abort();
    });
}

/// Also of a communicator that does not block.
#[test]
fn a_destroy_waits_for_what_was_launched() {
    alone!();
    within_limit(|| {
        set_device(0);
        let (_, comm) = init(1, unique_id(), 0, config(false));
        let rank = Rank::new(0, 1, comm);
        rank.settle();
        let (buffer, held) = (Buffer::zeros(2), hold_up(rank.stream));
        rank.to_itself(&buffer);
        rank.settle();
        let comm = comm.addr();
        // SAFETY: takes no other pointers.
        let destroy = move || unsafe { ncclCommDestroy(std::ptr::without_provenance_mut(comm)) };
        let destroys = std::thread::spawn(destroy);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!destroys.is_finished());
        drop(held);
        assert_eq!(destroys.join().expect("no panic"), OK);
        rank.wait();
    });
}
