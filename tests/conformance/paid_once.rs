//! A deadline is paid once: who has waited for work in vain does not wait for the same work again.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use gpucomm::nccl::InitOptions;
use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Result, Stream};

use crate::split::sum;
use crate::support::process::{Role, spawn_all};
use crate::support::{Rig, assert_names, is_thorough, places, rank_counts, slower, still_works, watched};

const CHILD: &str = "paid_once::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    if let Some(role) = Role::of_this_process("gives up") {
        gives_up(role);
    }
    if let Some(role) = Role::of_this_process("closes") {
        closes(role);
    }
    if Role::of_this_process("waits").is_some() {
        waits();
    }
}

/// Occupies a stream of the device until the other end of the channel is dropped.
fn occupied(device: Device) -> (Stream, Sender<()>) {
    // The first operation of a process waits for the device.
    static FIRST: std::sync::Once = std::sync::Once::new();
    FIRST.call_once(|| still_works(places().len()));
    let stream = Stream::new(device).unwrap();
    let (let_go, until) = channel::<()>();
    stream.launch_host(move || drop(until.recv())).unwrap();
    (stream, let_go)
}

/// A clique with this timeout that has enqueued an operation on these streams.
fn at_work(streams: &[Stream], timeout: Duration) -> Clique {
    let devices: Vec<_> = streams.iter().map(Stream::device).collect();
    let clique = begun(&devices, timeout);
    enqueue(&clique, streams);
    clique
}

fn begun(devices: &[Device], timeout: Duration) -> Clique {
    Clique::init_all_with(devices, &InitOptions::new().with_timeout(timeout)).unwrap()
}

/// Enqueues an operation of a clique on these streams.
fn enqueue(clique: &Clique, streams: &[Stream]) {
    clique
        .spmd(|comm| {
            let stream = &streams[comm.rank()];
            let mut x = DeviceBuffer::<f32>::zeroed(&Stream::new(comm.device())?, 4)?;
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
        })
        .unwrap();
}

fn timed(end: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    end();
    begin.elapsed()
}

/// Longer than what an abort takes that a device holds up.
fn long() -> Duration {
    slower(4.0)
}

#[test]
fn a_drop_long_after_another_one_on_the_same_stream() {
    watched(60.0, || {
        let (stream, let_go) = occupied(places()[0]);
        let streams = [stream];
        let [first, second] = [(); 2].map(|()| at_work(&streams, long()));
        let took = timed(|| drop(first));
        assert!(took > long() / 2, "the device was not occupied: {took:?}");
        // Longer than drops count as one.
        std::thread::sleep(Duration::from_millis(1200));
        let took = timed(|| drop(second));
        drop(let_go);
        assert!(took < long() / 2, "{took:?}");
    });
}

#[test]
fn a_drop_after_a_close_that_was_in_vain() {
    watched(60.0, || {
        let (stream, let_go) = occupied(places()[0]);
        let streams = [stream];
        let [first, second] = [(); 2].map(|()| at_work(&streams, long()));
        let took = timed(|| assert!(matches!(first.close_timeout(long() / 4), Err(Error::Timeout { .. }))));
        // NCCL has a second to stop what the device holds up.
        assert!(took < long() / 4 + slower(2.0), "the close, and the drop after it: {took:?}");
        let rest = timed(|| drop(second));
        drop(let_go);
        assert!(took + rest < long() + slower(1.0), "{rest:?}, after {took:?}");
    });
}

#[test]
fn ranks_of_a_clique_one_by_one() {
    watched(60.0, || {
        for ranks in rank_counts(&[4]) {
            let (streams, let_go): (Vec<_>, Vec<_>) = places()[..ranks].iter().map(|place| occupied(*place)).unzip();
            let mut comms = at_work(&streams, slower(1.0)).into_ranks();
            let first = comms.remove(0);
            let took = timed(|| drop(first));
            // With pauses: the drops do not count as one.
            let rest = comms.into_iter().map(|comm| {
                std::thread::sleep(Duration::from_millis(150));
                timed(|| drop(comm))
            });
            let rest: Vec<_> = rest.collect();
            drop(let_go);
            println!("{took:?}, then {rest:?}");
            assert!(rest.iter().sum::<Duration>() < slower(0.5), "{rest:?}");
        }
    });
}

/// A wait for what is on a stream, and so for a clique that has work there.
type Wait = fn(&Stream, &mut DeviceBuffer<f32>) -> Result<()>;

const WAITS: [(&str, Wait); 8] = [
    ("a copy to the host", |stream, x| x.copy_to_slice_timeout(stream, &mut [0.0; 4], long())),
    ("an event", |stream, _| stream.record()?.synchronize_timeout(long())),
    ("a wait, and a look", |stream, _| {
        let waited = stream.synchronize_timeout(long());
        assert!(stream.synchronize_timeout(Duration::from_millis(1)).is_err());
        waited
    }),
    ("a copy on another stream", |stream, x| {
        x.copy_to_slice_timeout(&Stream::new(stream.device())?, &mut [0.0; 4], long())
    }),
    ("another stream", |stream, _| {
        let other = Stream::new(stream.device())?;
        other.wait_event(&stream.record()?)?;
        other.synchronize_timeout(long())
    }),
    ("pinned memory", |stream, x| {
        let mut pinned = PinnedBuffer::zeroed(4)?;
        x.copy_to_pinned(stream, &mut pinned)?;
        pinned.as_slice().map(drop)
    }),
    ("pinned memory of another stream", |stream, x| {
        let mut pinned = PinnedBuffer::zeroed(4)?;
        x.copy_to_pinned(&Stream::new(stream.device())?, &mut pinned)?;
        pinned.as_slice().map(drop)
    }),
    ("pinned memory that is read", |stream, x| {
        let mut pinned = PinnedBuffer::zeroed(4)?;
        x.copy_from_pinned(stream, &pinned)?;
        pinned.as_slice_mut().map(drop)
    }),
];

/// One wait for one stream is enough: the ranks cannot be closed before that one moves.
#[test]
fn a_wait_for_one_rank_of_whatever_kind() {
    watched(180.0, || {
        // Some wait for the default timeout, which is that of a process.
        let mut children = spawn_all(CHILD, "waits", 1, &[]);
        children.remove(0).finish(slower(150.0)).assert_success();
    });
}

fn waits() {
    gpucomm::set_default_timeout(long());
    for ((what, wait), ranks) in WAITS.into_iter().zip([1, 2].into_iter().cycle()) {
        for ranks in rank_counts(&[ranks]) {
            let (stream, let_go) = occupied(places()[0]);
            let others = places().into_iter().take(ranks).skip(1).map(|one| Stream::new(one).unwrap());
            let streams: Vec<_> = std::iter::once(stream).chain(others).collect();
            let clique = begun(&streams.iter().map(Stream::device).collect::<Vec<_>>(), long());
            let mut buffers: Vec<_> = streams.iter().map(|s| DeviceBuffer::zeroed(s, 4).unwrap()).collect();
            let shared: Vec<_> = buffers.iter_mut().map(Mutex::new).collect();
            let enqueued = clique.spmd(|comm| {
                let (mut x, stream) = (shared[comm.rank()].lock().unwrap(), &streams[comm.rank()]);
                comm.all_reduce(InPlace(&mut **x), ReduceOp::Sum, stream)
            });
            enqueued.unwrap();
            drop(shared);
            let waited = wait(&streams[0], &mut buffers[0]);
            assert!(matches!(waited, Err(Error::Timeout { .. })), "{what}: {waited:?}");
            let took = timed(|| drop(clique));
            drop(let_go);
            assert!(took < long() / 2, "{what}: {took:?}");
        }
    }
}

/// What waits for the work of a clique before it begins leaves the clique as it is.
#[test]
fn a_split_behind_work_in_flight() {
    watched(60.0, || {
        let (stream, let_go) = occupied(places()[0]);
        let clique = at_work(&[stream], long());
        let split = clique.split(|rank| Some((0, rank)));
        assert!(matches!(split, Err(Error::Timeout { .. })), "{split:?}");
        let took = timed(|| drop(clique));
        drop(let_go);
        assert!(took < long() / 2, "{took:?}");
    });
}

/// Rank 1 stops after the first operation. Rank 0 gives up the second one at its timeout.
fn gives_up(role: Role) {
    gpucomm::set_default_timeout(slower(20.0));
    let comm = role.join().unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    sum(&comm, &stream).unwrap();
    if role.rank == 1 {
        std::thread::sleep(slower(60.0));
        return;
    }
    let limit = slower(1.5);
    gpucomm::set_default_timeout(limit);
    comm.set_timeout(limit);
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, 8).unwrap();
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
    let error = stream.synchronize().expect_err("rank 1 does not come");
    assert!(matches!(error, Error::Timeout { timeout, .. } if timeout == limit), "{error:?}");
    assert_names(&error, &["all_reduce"]);
    let took = [timed(|| drop(comm)), timed(|| drop(x)), timed(|| drop(stream))];
    assert!(took.iter().sum::<Duration>() < limit / 2, "{took:?}");
    println!("gave up once");
}

#[test]
fn a_process_whose_peer_hangs() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let mut children = spawn_all(CHILD, "gives up", ranks, &[]);
            // The other one hangs until this one has ended.
            let end = children.remove(0).finish(slower(40.0));
            end.assert_success();
            assert!(end.text.contains("gave up once"), "{}", end.text);
        }
    });
}

/// Rank 1 keeps what rank 0 closes and drops. NCCL waits for that, and goes on by itself.
fn closes(role: Role) {
    gpucomm::set_default_timeout(slower(20.0));
    let comm = role.join().unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    sum(&comm, &stream).unwrap();
    let parts: Vec<_> = (0..3).map(|_| comm.split(Some(0), role.rank).unwrap().unwrap()).collect();
    parts.iter().for_each(|part| sum(part, &stream).unwrap());
    if role.rank == 1 {
        std::thread::sleep(slower(60.0));
        return;
    }
    // Longer than NCCL keeps others off the device.
    let limit = slower(7.0);
    gpucomm::set_default_timeout(limit);
    let alone = begun(&[comm.device()], limit);
    parts.iter().for_each(|part| part.set_timeout(limit));
    let begin = Instant::now();
    let mut parts = parts.into_iter();
    parts.next().unwrap().close_timeout(limit).unwrap();
    // It has nothing to do with that.
    sum(alone.rank(0), &stream).unwrap();
    let took = begin.elapsed();
    assert!(took < limit, "a close, and what comes after it: {took:?}");
    let took = timed(|| drop(parts));
    assert!(took < limit + slower(1.0), "drops in a row: {took:?}");
    sum(alone.rank(0), &stream).unwrap();
    println!("closed and went on");
}

#[test]
fn a_process_whose_peer_keeps_its_ranks() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let mut children = spawn_all(CHILD, "closes", ranks, &[]);
            let end = children.remove(0).finish(slower(40.0));
            end.assert_success();
            assert!(end.text.contains("closed and went on"), "{}", end.text);
        }
    });
}

/// The same as the unit test `a_long_timeout_makes_a_drop_no_longer`, in its full length.
#[test]
fn a_drop_with_a_long_timeout() {
    watched(90.0, || {
        if !is_thorough() {
            return;
        }
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(slower(60.0)));
            let hung = rig.hang();
            let took = timed(|| drop(rig));
            assert!(took < Duration::from_secs(10) + slower(3.0), "{took:?}");
            drop(hung);
        }
    });
}

/// What each waits for is its own, but the time is that of all.
#[test]
fn drops_of_one_thread_behind_streams_of_their_own() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let timeout = slower(3.0);
            // Before the device is occupied: a start beside that took more than the timeout on an H200.
            let cliques: Vec<_> = (0..4).map(|_| begun(&places()[..ranks], timeout)).collect();
            let held: Vec<_> = cliques
                .iter()
                .map(|clique| {
                    let (mut streams, held): (Vec<_>, Vec<_>) = places().into_iter().take(1).map(occupied).unzip();
                    streams.extend(places().into_iter().take(ranks).skip(1).map(|one| Stream::new(one).unwrap()));
                    enqueue(clique, &streams);
                    held
                })
                .collect();
            let times: Vec<_> = cliques.into_iter().map(|clique| timed(|| drop(clique))).collect();
            drop(held);
            assert!(times.iter().skip(1).all(|time| *time < timeout / 2), "{times:?}");
        }
    });
}

/// The wait of each rank has missed its deadline, and what ends them then does not wait as long again; nor
/// does the drop of the clique.
#[test]
fn the_end_of_ranks_whose_program_has_waited_in_vain() {
    watched(90.0, || {
        for (ranks, has_own_error) in rank_counts(&[1, 2]).into_iter().zip([false, true]) {
            let timeout = slower(3.0);
            let clique = begun(&places()[..ranks], timeout);
            let (streams, held): (Vec<_>, Vec<_>) = places().into_iter().take(ranks).map(occupied).unzip();
            let begin = Instant::now();
            let sum = |comm: &Communicator| comm.all_reduce_scalar(1.0_f32, ReduceOp::Sum, &streams[comm.rank()]);
            if has_own_error {
                let late = clique.try_spmd(|comm| sum(comm).map_err(Own::from));
                assert!(late.is_err(), "{late:?}");
            } else {
                let late = clique.spmd(sum);
                assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
            }
            let took = begin.elapsed();
            let dropped = timed(|| drop(clique));
            drop(held);
            assert!(took + dropped < timeout + timeout / 2, "{took:?}, then {dropped:?}");
        }
    });
}

/// It shortens the end of the clique that has missed it, and nothing of the one that takes its place.
#[test]
fn a_missed_deadline_leaves_the_timeout_as_it_was() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let timeout = slower(60.0);
            let clique = begun(&places()[..ranks], timeout);
            let (stream, held) = occupied(places()[0]);
            let late = clique.spmd(|comm| match comm.rank() {
                0 => stream.synchronize_timeout(slower(1.0)),
                _ => sum(comm, &Stream::new(comm.device())?),
            });
            assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
            assert_eq!(clique.rank(0).timeout(), timeout);
            drop(held);
            let (clique, _) = clique.recover(&[]).unwrap();
            assert_eq!(clique.rank(0).timeout(), timeout);
            clique.spmd(|comm| sum(comm, &Stream::new(comm.device())?)).unwrap();
        }
    });
}

/// An error of a program's own.
#[derive(Debug)]
struct Own;

impl From<Error> for Own {
    fn from(_: Error) -> Self {
        Self
    }
}

/// What is enqueued after a late wait has all of its time.
#[test]
fn later_work_of_a_stream_after_a_late_wait_for_another_one() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let devices = places()[..ranks].to_vec();
            let clique = begun(&devices, long());
            let streams: Vec<_> = devices.iter().map(|one| Stream::new(*one).unwrap()).collect();
            let buffers = streams.iter().map(|stream| Mutex::new(DeviceBuffer::<f32>::zeroed(stream, 4).unwrap()));
            let buffers: Vec<_> = buffers.collect();
            let sum = || {
                let enqueued = clique.spmd(|comm| {
                    let mut x = buffers[comm.rank()].lock().unwrap();
                    comm.all_reduce(InPlace(&mut *x), ReduceOp::Sum, &streams[comm.rank()])
                });
                enqueued.unwrap();
            };
            sum();
            // No wait of this crate is told.
            let (done, is_done) = channel::<()>();
            streams[0].launch_host(move || drop(done)).unwrap();
            assert!(is_done.recv().is_err());
            // Another stream reads what the first one has done, and is held up.
            let (other, let_go) = occupied(devices[0]);
            let mut copy = DeviceBuffer::<f32>::zeroed(&other, 4).unwrap();
            copy.copy_from(&other, &*buffers[0].lock().unwrap()).unwrap();
            let waited = other.synchronize_timeout(long());
            assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
            drop(let_go);
            other.synchronize().unwrap();
            // Longer than a drop waits for what was waited for in vain.
            let (busy, until) = channel::<()>();
            streams[0].launch_host(move || drop(until.recv())).unwrap();
            sum();
            let lets_go = std::thread::spawn(move || {
                std::thread::sleep(long() / 4);
                drop(busy);
            });
            drop(clique);
            lets_go.join().unwrap();
            streams.iter().for_each(|stream| stream.synchronize().unwrap());
        }
    });
}
