//! Puts, signals and waits for signals, as a version has them that knows of them: each test runs again in a process of that version.

use std::ptr;
use std::sync::{Arc, Barrier};

use super::*;
use crate::isolated;
use crate::report::expected::{expect, reported};
use crate::settings::settings;

const ARGUMENT: ncclResult_t = ncclResult_t::ncclInvalidArgument;
const POISON: u32 = 0xfeed_f00d;

/// Runs `body` as a version that has one-sided operations, in a process of its own.
fn newest(test: &str, body: impl FnOnce()) {
    newer(&format!("one_sided::{test}"), body);
}

/// The same, for a test of another file, which its path names.
pub(super) fn newer(path: &str, body: impl FnOnce()) {
    since(2_29_02, path, body);
}

/// The same, as a version that is no older than this one.
pub(super) fn since(first: u32, path: &str, body: impl FnOnce()) {
    if settings().nccl >= first {
        return body();
    }
    as_version("2.32.3", path);
}

/// The same, as this version.
pub(super) fn newer_as(version: &str, path: &str, body: impl FnOnce()) {
    if crate::bugs::text(settings().nccl) == version {
        return body();
    }
    as_version(version, path);
}

fn as_version(version: &str, path: &str) {
    let output = isolated::elsewhere(&format!("nccl::tests::{path}"), &[("GPUCOMM_EMULATOR_NCCL", version)]);
    assert!(output.is_some(), "this process was started as NCCL {version}, and is not");
}

/// Memory of NCCL, with a window over all of it.
pub(super) struct Window {
    at: *mut u32,
    len: usize,
    handle: ncclWindow_t,
    comm: ncclComm_t,
}

impl Window {
    /// Of so many elements, which are a whole number of pages; all are poison.
    pub(super) fn new(rank: &Rank, len: usize) -> Self {
        let (mut at, mut handle, bytes) = (ptr::null_mut(), ptr::null_mut(), 4 * len);
        // SAFETY: the pointers are valid for writes; the memory is this long, and lives as long as the window.
        unsafe {
            assert_eq!(ncclMemAlloc(&mut at, bytes), OK, "{}", last_error());
            (0..len).for_each(|element| at.cast::<u32>().add(element).write(POISON));
            let flags = NCCL_WIN_COLL_SYMMETRIC as i32;
            let made = ncclCommWindowRegister(rank.comm, at, bytes, &mut handle, flags);
            assert_eq!(made, OK, "{}", last_error());
        }
        Self { at: at.cast(), len, handle, comm: rank.comm }
    }

    pub(super) fn write(&self, from: usize, values: &[u32]) {
        assert!(from + values.len() <= self.len);
        // SAFETY: the memory is as long, and nobody works on it.
        unsafe { self.at.add(from).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    pub(super) fn values(&self) -> Vec<u32> {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }.to_vec()
    }

    pub(super) fn place(&self) -> *mut c_void {
        self.at.cast()
    }

    /// Together with the other ranks.
    pub(super) fn end(self) {
        // SAFETY: nobody uses it any more.
        unsafe {
            assert_eq!(ncclCommWindowDeregister(self.comm, self.handle), OK, "{}", last_error());
            assert_eq!(ncclMemFree(self.at.cast()), OK, "{}", last_error());
        }
    }
}

/// Elements from `from` on of `local`, to byte `offset` of the part that `peer` has of `target`.
pub(super) fn put(
    rank: &Rank,
    local: &Window,
    from: usize,
    count: usize,
    peer: i32,
    target: &Window,
    offset: usize,
) -> ncclResult_t {
    let (place, datatype) = (local.at.wrapping_add(from).cast_const().cast(), ncclDataType_t::ncclUint32);
    // SAFETY: the function checks what it is given.
    unsafe { ncclPutSignal(place, count, datatype, peer, target.handle, offset, 0, 0, 0, rank.comm, rank.stream) }
}

pub(super) fn signal(rank: &Rank, peer: i32) -> ncclResult_t {
    // SAFETY: live handles.
    unsafe { ncclSignal(peer, 0, 0, 0, rank.comm, rank.stream) }
}

/// Waits on the stream for so many signals of each of these.
pub(super) fn wait_signals(rank: &Rank, wanted: &[(i32, i32)]) -> ncclResult_t {
    let of = |&(peer, count): &(i32, i32)| ncclWaitSignalDesc_t { opCnt: count, peer, sigIdx: 0, ctx: 0 };
    let mut wanted: Vec<_> = wanted.iter().map(of).collect();
    // SAFETY: live handles, and so many descriptors.
    unsafe { ncclWaitSignal(wanted.len() as i32, wanted.as_mut_ptr(), rank.comm, rank.stream) }
}

/// All ranks come to their first one-sided operation.
pub(super) fn begin(rank: &Rank) {
    let own = rank.rank as i32;
    assert_eq!(signal(rank, own), OK, "{}", last_error());
    assert_eq!(wait_signals(rank, &[(own, 1)]), OK, "{}", last_error());
    rank.wait();
}

/// Long enough for what does not wait to be over.
fn a_while() {
    std::thread::sleep(Duration::from_millis(40));
}

fn value(from: usize, to: usize, at: usize) -> u32 {
    (at as u32).wrapping_mul(0x9e37_79b9) ^ ((from * 8 + to) as u32) << 20
}

#[test]
fn puts_are_there_when_their_signals_are() {
    alone!();
    newest("puts_are_there_when_their_signals_are", || {
        let seed = fastrand::u64(..);
        eprintln!("seed {seed}");
        for ranks in 1..=4 {
            let mut rng = fastrand::Rng::with_seed(seed ^ ranks as u64);
            let lens: Vec<Vec<usize>> = (0..ranks).map(|_| (0..ranks).map(|_| rng.usize(..300)).collect()).collect();
            spmd(ranks, move |rank| {
                // Each rank has a part of each window, with some elements around it.
                const PART: usize = 307;
                let me = rank.rank;
                let (inbox, outbox) = (Window::new(rank, 2048), Window::new(rank, 2048));
                begin(rank);
                for (to, &len) in lens[me].iter().enumerate() {
                    let sent: Vec<u32> = (0..len).map(|at| value(me, to, at)).collect();
                    outbox.write(to * 301 + 1, &sent);
                    let offset = 4 * (me * PART + 3);
                    assert_eq!(
                        put(rank, &outbox, to * 301 + 1, sent.len(), to as i32, &inbox, offset),
                        OK,
                        "{}",
                        last_error()
                    );
                }
                let wanted: Vec<_> = (0..ranks as i32).map(|peer| (peer, 1)).collect();
                assert_eq!(wait_signals(rank, &wanted), OK, "{}", last_error());
                rank.wait();
                let mut expected = vec![POISON; 2048];
                for from in 0..ranks {
                    (0..lens[from][me]).for_each(|at| expected[from * PART + 3 + at] = value(from, me, at));
                }
                assert!(inbox.values() == expected, "rank {me} of {ranks}, lengths {lens:?}");
                inbox.end();
                outbox.end();
            });
        }
    });
}

#[test]
fn signals_are_counted_for_each_rank() {
    alone!();
    newest("signals_are_counted_for_each_rank", || {
        let all = Arc::new(Barrier::new(3));
        spmd(3, move |rank| {
            begin(rank);
            match rank.rank {
                0 => {
                    assert_eq!(wait_signals(rank, &[(1, 2)]), OK);
                    a_while();
                    assert!(!rank.idle(), "nobody has given a signal");
                    all.wait();
                    // One of rank 1, and many of rank 2.
                    all.wait();
                    a_while();
                    assert!(!rank.idle(), "one of two, and those of others");
                    all.wait();
                    rank.wait();
                    // What was waited for does not count again; what came meanwhile does.
                    assert_eq!(wait_signals(rank, &[(2, 3), (1, 1)]), OK);
                    a_while();
                    assert!(!rank.idle(), "one of rank 1 is to come");
                    all.wait();
                    rank.wait();
                }
                me => {
                    all.wait();
                    let count = if me == 1 { 1 } else { 3 };
                    (0..count).for_each(|_| assert_eq!(signal(rank, 0), OK));
                    rank.wait();
                    all.wait();
                    for _ in 0..2 {
                        all.wait();
                        if me == 1 {
                            assert_eq!(signal(rank, 0), OK);
                        }
                    }
                    rank.wait();
                }
            }
        });
    });
}

#[test]
fn puts_and_waits_are_in_the_order_of_their_streams() {
    alone!();
    newest("puts_and_waits_are_in_the_order_of_their_streams", || {
        let all = Arc::new(Barrier::new(2));
        spmd(2, move |rank| {
            let window = Window::new(rank, 1024);
            begin(rank);
            if rank.rank == 0 {
                window.write(0, &[7; 10]);
                let held = hold_up(rank.stream);
                assert_eq!(put(rank, &window, 0, 10, 1, &window, 400), OK, "{}", last_error());
                all.wait();
                all.wait();
                // What is put is read when the stream has come to it.
                window.write(0, &[8; 10]);
                drop(held);
            } else {
                all.wait();
                assert_eq!(wait_signals(rank, &[(0, 1)]), OK);
                a_while();
                assert!(!rank.idle() && window.values() == [POISON; 1024], "before its time");
                all.wait();
                rank.wait();
                assert_eq!((window.values()[99], window.values()[100], window.values()[110]), (POISON, 8, POISON));
            }
            rank.wait();
            all.wait();
            window.end();
        });
    });
}

#[test]
fn puts_through_a_deregistered_window_are_reported() {
    alone!();
    newest("puts_through_a_deregistered_window_are_reported", || {
        let expected = expect("through a window that was deregistered meanwhile");
        let all = Arc::new(Barrier::new(2));
        spmd(2, move |rank| {
            let (window, source) = (Window::new(rank, 1024), Window::new(rank, 1024));
            begin(rank);
            if rank.rank == 0 {
                let held = hold_up(rank.stream);
                assert_eq!(put(rank, &source, 0, 10, 1, &window, 0), OK, "{}", last_error());
                // SAFETY: a live handle. The memory stays until the put is done.
                assert_eq!(unsafe { ncclCommWindowDeregister(rank.comm, window.handle) }, OK);
                drop(held);
                rank.wait();
            } else {
                assert_eq!(wait_signals(rank, &[(0, 1)]), OK);
                rank.wait();
                // SAFETY: as above.
                assert_eq!(unsafe { ncclCommWindowDeregister(rank.comm, window.handle) }, OK);
            }
            all.wait();
            // SAFETY: nobody uses it any more.
            assert_eq!(unsafe { ncclMemFree(window.place()) }, OK, "{}", last_error());
            source.end();
        });
        assert_eq!(expected.count(), 1);
    });
}

#[test]
fn what_ends_a_communicator_ends_its_waits() {
    alone!();
    newest("what_ends_a_communicator_ends_its_waits", || {
        for revoked in [false, true] {
            spmd(2, move |rank| {
                begin(rank);
                assert_eq!(wait_signals(rank, &[(1 - rank.rank as i32, 1)]), OK);
                a_while();
                assert!(!rank.idle());
                if revoked {
                    // SAFETY: takes no pointers.
                    assert_eq!(unsafe { ncclCommRevoke(rank.comm, 0) }, OK, "{}", last_error());
                    rank.wait();
                    assert_eq!(signal(rank, 0), ncclResult_t::ncclInvalidUsage);
                } else {
                    rank.abort();
                    rank.wait();
                }
            });
        }
    });
}

#[test]
fn what_lies_outside_is_told() {
    alone!();
    newest("what_lies_outside_is_told", || {
        spmd(2, |rank| {
            let (me, peer) = (rank.rank, 1 - rank.rank as i32);
            // Rank 1 has twice as much of the window.
            let (own, theirs) = (1024 * (me + 1), 1024 * (2 - me));
            let (window, source) = (Window::new(rank, own), Window::new(rank, 4096));
            begin(rank);
            let beyond = format!("past the end of the window of rank {peer}");
            let at = |elements: usize, offset: usize| put(rank, &source, 0, elements, peer, &window, 4 * offset);
            assert_eq!(reported(&beyond, || at(theirs + 1, 0)), ARGUMENT);
            // One more than there is, from a place that both have.
            let last = own.min(theirs) - 1;
            assert_eq!(reported(&beyond, || at(theirs - last + 1, last)), ARGUMENT);
            // NCCL looks for the place in what this rank has.
            if own < theirs {
                assert_eq!(at(1, own), ARGUMENT);
                assert!(last_error().contains("beyond this rank's own window"), "{}", last_error());
            }
            // The last byte that both have.
            source.write(0, &[5]);
            assert_eq!(at(1, 1023), OK, "{}", last_error());
            assert_eq!(wait_signals(rank, &[(peer, 1)]), OK);
            rank.wait();
            assert_eq!((window.values()[1022], window.values()[1023]), (POISON, 5));
            window.end();
            source.end();
        });
    });
}

#[test]
fn nonsense_is_refused() {
    alone!();
    newest("nonsense_is_refused", || {
        spmd(2, |rank| {
            let window = Window::new(rank, 1024);
            let (peer, plain) = (1 - rank.rank as i32, Buffer::zeros(16));
            begin(rank);
            for nobody in [-1, 2] {
                let text = format!("rank {nobody} of 2");
                assert_eq!(reported(&text, || put(rank, &window, 0, 1, nobody, &window, 0)), ARGUMENT);
                assert_eq!(reported(&text, || signal(rank, nobody)), ARGUMENT);
                assert_eq!(reported(&text, || wait_signals(rank, &[(peer, 1), (nobody, 1)])), ARGUMENT);
            }
            for count in [0, -3] {
                assert_eq!(wait_signals(rank, &[(peer, count)]), ARGUMENT);
            }
            assert_eq!(wait_signals(rank, &[]), ARGUMENT);
            let float = ncclDataType_t::ncclFloat32;
            let into = |local: *mut c_void, window, (index, context, flags)| {
                // SAFETY: the function checks what it is given.
                unsafe {
                    ncclPutSignal(local, 1, float, peer, window, 0, index, context, flags, rank.comm, rank.stream)
                }
            };
            let place = window.at.cast();
            assert_eq!(into(plain.0, window.handle, (0, 0, 0)), ARGUMENT);
            assert!(last_error().contains("does not lie in a symmetric window"), "{}", last_error());
            assert_eq!(into(ptr::null_mut(), window.handle, (0, 0, 0)), ARGUMENT);
            assert_eq!(into(place, ptr::null_mut(), (0, 0, 0)), ARGUMENT);
            let none = ptr::without_provenance_mut(0x1234);
            assert_eq!(reported("is no window of this communicator", || into(place, none, (0, 0, 0))), ARGUMENT);
            for wrong in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
                assert_eq!(into(place, window.handle, wrong), ARGUMENT, "{wrong:?}");
            }
            // A stream of another device.
            set_device(peer as usize);
            let other = stream();
            set_device(rank.rank);
            // SAFETY: live handles.
            assert_eq!(unsafe { ncclSignal(peer, 0, 0, 0, rank.comm, other) }, ARGUMENT);
            assert!(last_error().contains("the stream belongs to device"), "{}", last_error());
            // SAFETY: made above.
            assert_eq!(unsafe { cudaStreamDestroy(other) }, cudaError::cudaSuccess);
            // And nothing of it counts.
            assert_eq!((signal(rank, peer), wait_signals(rank, &[(peer, 1)])), (OK, OK), "{}", last_error());
            rank.wait();
            assert!(window.values() == [POISON; 1024]);
            window.end();
        });
    });
}

/// NCCL makes a window in the first one, so whoever comes first waits in the call.
#[test]
fn the_first_waits_for_all_ranks() {
    alone!();
    newest("the_first_waits_for_all_ranks", || {
        static LATE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        use std::sync::atomic::Ordering;
        spmd(2, |rank| {
            if rank.rank == 1 {
                a_while();
                LATE.store(true, Ordering::SeqCst);
            }
            assert_eq!(signal(rank, 0), OK, "{}", last_error());
            assert!(LATE.load(Ordering::SeqCst), "the first one returned alone");
            if rank.rank == 0 {
                assert_eq!(wait_signals(rank, &[(0, 1), (1, 1)]), OK);
            }
            rank.wait();
        });
    });
}

/// Whatever comes before it in the group.
#[test]
fn what_is_one_sided_comes_first_in_its_group() {
    alone!();
    newest("what_is_one_sided_comes_first_in_its_group", || {
        spmd(2, |rank| {
            rank.connect();
            begin(rank);
            let window = Window::new(rank, 1024);
            window.write(0, &[1f32.to_bits(); 8]);
            // SAFETY: the window stays until the stream is idle.
            let ended = super::messages::group(|| unsafe {
                let at = window.place();
                let (float, sum) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
                assert_eq!(ncclAllReduce(at, at, 8, float, sum, rank.comm, rank.stream), OK);
                assert_eq!(put(rank, &window, 0, 8, 1 - rank.rank as i32, &window, 400), OK);
            });
            assert_eq!(ended, OK, "{}", last_error());
            assert_eq!(wait_signals(rank, &[(1 - rank.rank as i32, 1)]), OK);
            rank.wait();
            assert_eq!(f32::from_bits(window.values()[100]), 1.0, "what it was before the all_reduce");
            window.end();
        });
    });
}
