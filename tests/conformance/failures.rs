//! No wait says `Ok` over work that has failed: not the first one, not the tenth, on no stream.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::Duration;

use gpucomm::nccl::AbortOutcome;
use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Result, Stream};

use crate::support::process::{Child, Role, spawn_all};
use crate::support::{Rig, assert_names, quick, rank_counts, slower, still_works, watched};

pub const REASON: &str = "rank 0 gives up";

const CHILD: &str = "failures::child";

/// What rank 0 does when it alone has begun to reduce `[7; 4]` in place on its stream.
type Body = fn(&Communicator, &Stream, DeviceBuffer<i32>) -> Result<()>;

const BODIES: [(&str, Body); 6] = [
    ("waits for the stream", waits_for_the_stream),
    ("another stream", another_stream),
    ("aliases", aliases),
    ("a copy that waits", a_copy_that_waits),
    ("events", events),
    ("marks", marks),
];

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    gpucomm::set_default_timeout(slower(30.0));
    for (name, body) in BODIES {
        if let Some(role) = Role::of_this_process(name) {
            let comm = role.join().unwrap();
            let stream = Stream::new(comm.device()).unwrap();
            // Long enough for the other rank to have its sum.
            begin(&comm, &stream, body, || std::thread::sleep(slower(0.3))).unwrap();
            if role.rank > 0 {
                // Until it is killed: an abort is one thing, a peer that has ended another.
                std::thread::sleep(slower(60.0));
            }
            quick(slower(20.0), || drop(comm));
        }
    }
}

/// Has all ranks reduce something and `meet`, so that nobody else has anything to wait for; then rank 0 goes on.
fn begin(comm: &Communicator, stream: &Stream, body: Body, meet: impl FnOnce()) -> Result<()> {
    let mut x = DeviceBuffer::from_slice(stream, &[1; 4])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    stream.synchronize()?;
    meet();
    if comm.rank() != 0 {
        return Ok(());
    }
    x.copy_from_slice(stream, &[7; 4])?;
    stream.synchronize()?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    body(comm, stream, x)
}

/// Runs one of the bodies, with ranks as threads and as processes.
fn with_an_abort(name: &'static str) {
    watched(120.0, move || {
        let (_, body) = BODIES.into_iter().find(|(known, _)| *known == name).expect("a body");
        for ranks in rank_counts(&[2, 4]) {
            let (rig, all) = (Rig::new(ranks), Barrier::new(ranks));
            let meet = || {
                all.wait();
            };
            rig.run(|comm, stream| begin(comm, stream, body, meet));
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
        for ranks in rank_counts(&[2]) {
            let mut others = spawn_all(CHILD, name, ranks, &[]);
            others.remove(0).finish(slower(60.0)).assert_success();
            others.iter_mut().for_each(Child::kill);
        }
    });
}

/// Aborts `comm`, beside communicators on the same devices that may hold up its end.
pub fn abort(comm: &Communicator) {
    assert_ne!(comm.aborter().abort(REASON), AbortOutcome::Already);
}

#[track_caller]
pub fn assert_aborted<V: std::fmt::Debug>(result: Result<V>) {
    let error = result.expect_err("work that was aborted counts as done");
    assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
    assert_names(&error, &[REASON]);
}

#[test]
fn every_wait_for_a_stream_tells_of_an_abort() {
    with_an_abort("waits for the stream");
}

fn waits_for_the_stream(comm: &Communicator, stream: &Stream, x: DeviceBuffer<i32>) -> Result<()> {
    abort(comm);
    for _ in 0..10 {
        assert_aborted(stream.synchronize_timeout(slower(20.0)));
        assert_aborted(stream.query());
        assert_aborted(x.to_vec(stream));
    }
    Ok(())
}

#[test]
fn another_stream_does_not_hand_out_what_was_not_reduced() {
    with_an_abort("another stream");
}

fn another_stream(comm: &Communicator, stream: &Stream, x: DeviceBuffer<i32>) -> Result<()> {
    let other = Stream::new(comm.device())?;
    abort(comm);
    for _ in 0..3 {
        assert_aborted(x.to_vec(&other));
        assert_aborted(x.slice(1..3).to_vec(&other));
    }
    // It has nothing to do with the failure, otherwise.
    other.synchronize_timeout(slower(20.0))?;
    assert_aborted(stream.synchronize_timeout(slower(20.0)));
    Ok(())
}

/// The same where the copy waits while another thread aborts.
#[test]
fn a_copy_on_another_stream_that_waits_for_the_abort() {
    with_an_abort("a copy that waits");
}

fn a_copy_that_waits(comm: &Communicator, _: &Stream, x: DeviceBuffer<i32>) -> Result<()> {
    let other = Stream::new(comm.device())?;
    let aborter = comm.aborter();
    let helper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        aborter.abort(REASON)
    });
    assert_aborted(quick(slower(15.0), || x.to_vec(&other)));
    assert_eq!(helper.join().unwrap(), AbortOutcome::Done);
    Ok(())
}

#[test]
fn events_tell_of_an_abort() {
    with_an_abort("events");
}

fn events(comm: &Communicator, stream: &Stream, x: DeviceBuffer<i32>) -> Result<()> {
    let early = stream.record()?;
    let mut host = PinnedBuffer::from_slice(&[1; 4])?;
    abort(comm);
    let late = stream.record()?;
    let other = Stream::new(comm.device())?;
    other.wait_event(&early)?;
    for _ in 0..3 {
        assert_aborted(early.synchronize_timeout(slower(20.0)));
        assert_aborted(early.query());
        assert_aborted(late.synchronize());
        assert_aborted(other.synchronize_timeout(slower(20.0)));
    }
    // The waits before have told; the copy is marked all the same.
    x.copy_to_pinned(stream, &mut host)?;
    for _ in 0..3 {
        assert_aborted(host.as_slice().map(<[i32]>::to_vec));
        assert_aborted(host.as_slice_mut().map(|values| values.to_vec()));
    }
    host.accept();
    assert_eq!(host.as_slice()?.len(), 4);
    // Recorded anew, behind nothing that failed.
    other.accept();
    late.record(&other)?;
    late.synchronize_timeout(slower(20.0))
}

/// Copies, and operations of others, carry the mark on; whole overwrites clear it.
#[test]
fn marks_travel() {
    with_an_abort("marks");
}

fn marks(comm: &Communicator, stream: &Stream, mut x: DeviceBuffer<i32>) -> Result<()> {
    abort(comm);
    let other = Stream::new(comm.device())?;
    let mut y = DeviceBuffer::from_slice(&other, &[1; 8])?;
    y.slice_mut(2..6).copy_from(&other, &x)?;
    let mut z = DeviceBuffer::from_slice(&other, &[1; 8])?;
    z.copy_from(stream, &y)?;
    let mut host = PinnedBuffer::<i32>::zeroed(8)?;
    z.copy_to_pinned(stream, &mut host)?;
    let mut back = DeviceBuffer::from_slice(&other, &[1; 8])?;
    back.copy_from_pinned(&other, &host)?;
    for buffer in [&y, &z, &back] {
        assert_aborted(buffer.to_vec(&other));
    }
    assert_aborted(other.synchronize_timeout(slower(20.0)));
    // A part is not enough, the whole is.
    z.slice_mut(..7).fill(&other, 3)?;
    assert_aborted(z.to_vec(stream));
    z.fill(stream, 4)?;
    assert_eq!(z.to_vec(&other)?, [4; 8]);
    y.copy_from_slice(&other, &[5; 8])?;
    assert_eq!(y.to_vec(&other)?, [5; 8]);
    back.copy_from(&other, &y)?;
    assert_eq!(back.to_vec(stream)?, [5; 8]);
    y.copy_to_pinned(stream, &mut host)?;
    assert_eq!(host.as_slice()?, [5; 8]);
    // What is accepted is as it is.
    x.slice_mut(..2).accept();
    assert_aborted(x.to_vec(stream));
    x.accept();
    assert_eq!(x.to_vec(stream)?.len(), 4);
    Ok(())
}

/// What was waited for before the abort keeps its result, and so does what the operation only read.
#[test]
fn what_was_done_before_stays() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let all = Barrier::new(ranks);
            rig.run(|comm, stream| {
                let sum = ranks as i32 * 7;
                let mut first = DeviceBuffer::from_slice(stream, &[7; 4])?;
                let mut second = comm.alloc_from(stream, &[7; 4])?;
                let (mut third, mut fourth) = (DeviceBuffer::zeroed(stream, 4)?, DeviceBuffer::zeroed(stream, 4)?);
                comm.all_reduce(InPlace(&mut first), ReduceOp::Sum, stream)?;
                comm.all_reduce(InPlace(&mut second), ReduceOp::Sum, stream)?;
                comm.all_reduce((&second, &mut third), ReduceOp::Max, stream)?;
                assert_eq!(second.to_vec(stream)?, [sum; 4]);
                stream.record()?.synchronize_timeout(slower(20.0))?;
                all.wait();
                if comm.rank() != 0 {
                    return Ok(());
                }
                comm.all_reduce((&first, &mut fourth), ReduceOp::Sum, stream)?;
                abort(comm);
                assert_eq!(first.to_vec(stream)?, [sum; 4]);
                assert_eq!(second.to_vec(stream)?, [sum; 4]);
                assert_eq!(third.to_vec(stream)?, [sum; 4]);
                assert_aborted(fourth.to_vec(stream));
                Ok(())
            });
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// Other ranks may write into the memory of this one until they have stopped as well.
#[test]
fn a_failure_is_told_when_all_ranks_have_stopped() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for _ in 0..5 {
                let all = Barrier::new(ranks);
                Rig::new(ranks).run(|comm, stream| {
                    let mut x = comm.alloc_from(stream, &[7; 4])?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    stream.synchronize()?;
                    all.wait();
                    if comm.rank() != 0 {
                        return Ok(());
                    }
                    let (other, aborter) = (Stream::new(comm.device())?, comm.aborter());
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    std::thread::scope(|scope| {
                        let helper = scope.spawn(|| {
                            std::thread::sleep(Duration::from_millis(20));
                            aborter.abort(REASON)
                        });
                        assert_aborted(x.to_vec(&other));
                        // In a host function an abort does not wait, and so says how far it is.
                        let (again, (sender, answer)) = (aborter.clone(), channel());
                        other.launch_host(move || sender.send(again.abort("again")).unwrap())?;
                        assert_eq!(answer.recv().unwrap(), AbortOutcome::Already);
                        assert_eq!(helper.join().unwrap(), AbortOutcome::Done);
                        Ok(())
                    })
                });
            }
        }
    });
}

#[test]
fn all_that_show_a_buffer_tell_of_an_abort() {
    with_an_abort("aliases");
}

fn aliases(comm: &Communicator, stream: &Stream, mut x: DeviceBuffer<i32>) -> Result<()> {
    // SAFETY: this thread alone uses them, one after the other.
    let (mut all, mut part) = unsafe { (x.alias(..)?, x.alias(1..3)?) };
    abort(comm);
    assert_aborted(stream.synchronize_timeout(slower(20.0)));
    assert_aborted(all.to_vec(stream));
    assert_aborted(part.to_vec(stream));
    // A part does not say what the other bytes are.
    part.fill(stream, 1)?;
    part.accept();
    assert_aborted(x.to_vec(stream));
    stream.accept();
    all.fill(stream, 2)?;
    assert_eq!((part.to_vec(stream)?, x.to_vec(stream)?), (vec![2; 2], vec![2; 4]));
    // Nor does it take a mark away that comes later.
    x.fill(stream, 3)?;
    assert_eq!(part.to_vec(stream)?, [3; 2]);
    Ok(())
}
