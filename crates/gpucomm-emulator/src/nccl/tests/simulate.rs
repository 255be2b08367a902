//! Groups that are simulated: what the library takes, and what it does to them all the same.

use super::one_sided::newer;
use super::*;
use crate::report::expected::reported;

fn info() -> ncclSimInfo_t {
    let mut info = std::mem::MaybeUninit::uninit();
    // SAFETY: writes the whole struct.
    unsafe {
        gpucommNcclSimInfoInit(info.as_mut_ptr());
        info.assume_init()
    }
}

/// `body` in a group that is simulated: the answer, and the estimate.
fn simulate(info: &mut ncclSimInfo_t, body: impl FnOnce()) -> (ncclResult_t, f32) {
    // SAFETY: takes no pointers.
    assert_eq!(unsafe { ncclGroupStart() }, OK);
    body();
    // SAFETY: a struct of our own.
    let ended = unsafe { ncclGroupSimulateEnd(info) };
    (ended, info.estimatedTime)
}

#[test]
fn only_the_outermost_end_says_something() {
    alone!();
    spmd(2, |rank| {
        let buffer = Buffer::new(&[1.0; 1000]);
        let (ended, outer) = simulate(&mut info(), || {
            let (ended, inner) = simulate(&mut info(), || assert_eq!(rank.all_reduce(&buffer), OK));
            assert_eq!((ended, inner), (OK, -1.0));
        });
        assert_eq!(ended, OK, "{}", last_error());
        assert!(outer > 0.0);
        assert!(rank.idle());
        assert_eq!(buffer.values(), [1.0; 1000]);
        assert_eq!(rank.all_reduce(&buffer), OK);
        rank.wait();
        assert_eq!(buffer.values(), [2.0; 1000]);
    });
}

#[test]
fn what_was_not_initialised_or_failed_before_simulates_nothing() {
    alone!();
    spmd(2, |rank| {
        let buffer = Buffer::new(&[1.0; 3]);
        rank.connect();
        let mut wrong = info();
        wrong.magic = 0xcafe_beef;
        let call = || assert_eq!(rank.all_reduce(&buffer), OK);
        assert_eq!(simulate(&mut wrong, call), (ncclResult_t::ncclInvalidArgument, -1.0));
        // SAFETY: refused.
        let failed = || unsafe {
            let code =
                ncclAllReduce(buffer.0, buffer.0, 3, ncclDataType_t(99), ncclRedOp_t::ncclSum, rank.comm, rank.stream);
            assert_eq!(code, ncclResult_t::ncclInvalidArgument);
        };
        assert_eq!(simulate(&mut info(), failed), (ncclResult_t::ncclInvalidArgument, -1.0));
        assert!(rank.idle());
    });
}

#[test]
fn messages_stay_in_the_queue() {
    alone!();
    spmd(2, |rank| {
        let buffer = Buffer::new(&[1.0; 3]);
        rank.connect();
        // SAFETY: the buffer stays until the end of the test.
        let send = || unsafe {
            ncclSend(buffer.0, 3, ncclDataType_t::ncclFloat32, 1 - rank.rank as i32, rank.comm, rank.stream)
        };
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { ncclGroupStart() }, OK);
        assert_eq!(send(), OK);
        // SAFETY: a struct of our own.
        let ended = reported("keeps messages for the next group", || unsafe { ncclGroupSimulateEnd(&mut info()) });
        assert_eq!(ended, ncclResult_t::ncclInvalidArgument);
    });
}

/// Those from one root NCCL takes out of their queue, and forgets.
#[test]
fn broadcasts_from_several_roots_stay_in_the_queue() {
    alone!();
    newer("simulate::broadcasts_from_several_roots_stay_in_the_queue", || {
        spmd(2, |rank| {
            let buffer = Buffer::new(&[1.0; 3]);
            rank.connect();
            // SAFETY: the buffer stays until the end of the test.
            let broadcast = |count: usize, root: i32| unsafe {
                let datatype = ncclDataType_t::ncclFloat32;
                assert_eq!(ncclBroadcast(buffer.0, buffer.0, count, datatype, root, rank.comm, rank.stream), OK);
            };
            let from_one = || [(3, 1), (0, 0), (2, 1)].into_iter().for_each(|(count, root)| broadcast(count, root));
            let (ended, time) = simulate(&mut info(), from_one);
            assert!(ended == OK && time > 0.0, "{}", last_error());
            // SAFETY: takes no pointers.
            assert_eq!(unsafe { ncclGroupStart() }, OK);
            broadcast(3, 0);
            broadcast(3, 1);
            // SAFETY: a struct of our own.
            let ended = reported("keeps them for the next group", || unsafe { ncclGroupSimulateEnd(&mut info()) });
            assert_eq!(ended, ncclResult_t::ncclInvalidArgument);
        });
    });
}
