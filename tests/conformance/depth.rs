//! However much is on its way behind a rank that never comes: an abort gets through, the streams drain, and all goes on.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gpucomm::nccl::{AbortOutcome, Aborter};
use gpucomm::{Communicator, DeviceBuffer, Error, Event, InPlace, PinnedBuffer, ReduceOp, Result, Stream};

use crate::support::{Rig, quick, random, rank_counts, slower, still_works, watched};

/// What the ranks that do come enqueue: how often, and how much beside each all-reduce.
#[derive(Debug, Clone, Copy)]
struct Mix {
    rounds: usize,
    fills: usize,
    copies: usize,
    functions: usize,
    events: usize,
    /// Whether a second communicator works on the same streams.
    two: bool,
}

/// Enqueues until all is enqueued, or the communicator is aborted.
fn enqueue(mix: Mix, first: &Communicator, second: &Communicator, stream: &Stream, taken: &AtomicUsize) -> Result<()> {
    let mut x = DeviceBuffer::<f32>::zeroed(stream, 300)?;
    let mut y = DeviceBuffer::<f32>::zeroed(stream, 300)?;
    let event = Event::new(stream.device())?;
    for _ in 0..mix.rounds {
        first.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
        if mix.two {
            second.all_reduce(InPlace(&mut y), ReduceOp::Sum, stream)?;
        }
        for _ in 0..mix.fills {
            y.fill(stream, 1.5)?;
        }
        for at in 0..mix.copies {
            if at % 2 == 0 { y.copy_from(stream, &x)? } else { y.copy_from_slice(stream, &[2.0; 300])? }
        }
        for _ in 0..mix.functions {
            stream.launch_host(|| ())?;
        }
        for _ in 0..mix.events {
            event.record(stream)?;
            stream.wait_event(&event)?;
        }
        taken.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

/// Waits until nothing more is taken.
fn settle(taken: &AtomicUsize) {
    let mut last = (usize::MAX, Instant::now());
    while last.1.elapsed() < Duration::from_millis(200) {
        std::thread::sleep(Duration::from_millis(5));
        let now = taken.load(Ordering::SeqCst);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
}

fn aborters(rig: &Rig) -> Vec<Aborter> {
    rig.clique.ranks().iter().map(Communicator::aborter).collect()
}

/// Aborts all of them at the same time; the time that takes.
fn abort_all(aborters: Vec<Aborter>) -> Duration {
    let start = Instant::now();
    let threads: Vec<_> =
        aborters.into_iter().map(|aborter| std::thread::spawn(move || aborter.abort("rank 0 does not come"))).collect();
    for thread in threads {
        assert_ne!(thread.join().unwrap(), AbortOutcome::StillRunning);
    }
    start.elapsed()
}

fn behind_a_rank_that_never_comes(ranks: usize, mix: Mix) {
    let (first, second) = (Rig::new(ranks), Rig::new(ranks));
    let streams: Vec<_> = first.clique.ranks().iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
    let taken = AtomicUsize::new(0);
    let limit = slower(1.0);
    std::thread::scope(|scope| {
        for (comm, other) in first.clique.ranks().iter().zip(second.clique.ranks()).skip(1) {
            let (stream, taken) = (&streams[comm.rank()], &taken);
            scope.spawn(move || enqueue(mix, comm, other, stream, taken));
        }
        settle(&taken);
        if matches!(mix, Mix { fills: 0, copies: 0, functions: 0, events: 0, two: false, .. }) {
            // Who waits for room does so outside of NCCL.
            let taken = taken.load(Ordering::SeqCst);
            assert!(taken <= 96 * (ranks - 1), "{mix:?}: {taken} taken by {} ranks", ranks - 1);
        }
        let mut all = aborters(&first);
        if mix.two {
            all.extend(aborters(&second));
        }
        let start = Instant::now();
        let aborted = quick(limit, || abort_all(all));
        for stream in &streams {
            // An error says that the device is done, too: what it is done with has failed.
            while matches!(stream.query(), Ok(false)) {
                assert!(start.elapsed() < limit, "{mix:?}: not drained after {:?}", start.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let drained = start.elapsed();
        println!("{mix:?}: {} taken, aborted in {aborted:?}, drained in {drained:?}", taken.load(Ordering::SeqCst));
        assert!(drained < limit, "{mix:?}: aborted in {aborted:?}, drained in {drained:?}");
    });
    for stream in &streams {
        stream.accept();
        let mut x = DeviceBuffer::<i32>::uninit(stream, 5).unwrap();
        x.fill(stream, 8).unwrap();
        assert_eq!(x.to_vec(stream).unwrap(), [8; 5]);
    }
    quick(slower(15.0), || drop((first, second)));
    still_works(ranks);
}

/// 220 rounds of this filled the queue of an H200 when only operations were counted; an abort never came back.
#[test]
fn operations_and_fills() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for (rounds, fills) in [(220, 4), (190, 4), (2000, 0), (600, 1), (60, 40)] {
                let mix = Mix { rounds, fills, copies: 0, functions: 0, events: 0, two: false };
                behind_a_rank_that_never_comes(ranks, mix);
            }
        }
    });
}

#[test]
fn two_communicators_on_one_stream() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for (rounds, fills) in [(1, 0), (400, 0), (400, 3)] {
                let mix = Mix { rounds, fills, copies: 1, functions: 1, events: 1, two: true };
                behind_a_rank_that_never_comes(ranks, mix);
            }
        }
    });
}

#[test]
fn any_mix() {
    watched(240.0, || {
        let mut random = fastrand::Rng::with_seed(random::seed());
        for ranks in rank_counts(&[2, 4]) {
            for _ in 0..6 {
                let most = 2000 >> random.usize(0..6);
                let mix = Mix {
                    rounds: random.usize(0..=most),
                    fills: random.usize(0..5),
                    copies: random.usize(0..4),
                    functions: random.usize(0..3),
                    events: random.usize(0..3),
                    two: random.bool(),
                };
                behind_a_rank_that_never_comes(ranks, mix);
            }
        }
    });
}

/// Who waits for room on a stream is told at once that the communicator has ended, also where something else holds up the stream.
#[test]
fn who_waits_for_room_is_told_of_the_end() {
    watched(60.0, || {
        let rig = Rig::new(1);
        rig.run(|comm, stream| {
            let (open, opened) = channel::<()>();
            stream.launch_host(move || assert!(opened.recv().is_err()))?;
            let (taken, (tell, told)) = (AtomicUsize::new(0), channel());
            let mut x = DeviceBuffer::<f32>::zeroed(stream, 300)?;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut enqueue = || {
                        taken.fetch_add(1, Ordering::SeqCst);
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
                    };
                    let _ = tell.send((0..2000).try_for_each(|_| enqueue()));
                });
                settle(&taken);
                let aborts = scope.spawn(|| comm.aborter().abort("somebody waits for room"));
                let told = told.recv_timeout(Duration::from_secs(30)).unwrap();
                assert!(matches!(told, Err(Error::Aborted { .. })), "{told:?}");
                drop(open);
                assert_ne!(aborts.join().unwrap(), AbortOutcome::StillRunning);
            });
            Ok(())
        });
    });
}

/// Dropping pinned memory asks nothing of a device that hangs, whether or not it uses the memory.
#[test]
fn pinned_memory_is_dropped_behind_an_operation_that_hangs() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let done = Barrier::new(ranks - 1);
            rig.run(|comm, stream| {
                if comm.rank() == 0 {
                    return Ok(());
                }
                let other = Stream::new(comm.device())?;
                let mut x = DeviceBuffer::<f32>::zeroed(stream, 3000)?;
                let mut y = DeviceBuffer::<f32>::zeroed(&other, 3000)?;
                let (used, unused) = (PinnedBuffer::from_slice(&[1.0f32; 3000])?, PinnedBuffer::<f32>::zeroed(70_000)?);
                let elsewhere = PinnedBuffer::from_slice(&[2.0f32; 3000])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                x.copy_from_pinned(stream, &used)?;
                y.copy_from_pinned(&other, &elsewhere)?;
                let start = Instant::now();
                drop((used, unused, elsewhere));
                let took = start.elapsed();
                assert!(took < slower(1.0), "dropping took {took:?}");
                // New pinned memory, and another stream's work, are to be had meanwhile.
                assert_eq!(PinnedBuffer::from_slice(&[3.0f32; 3000])?.as_slice()?, [3.0; 3000]);
                assert_eq!(y.to_vec(&other)?, [2.0; 3000]);
                // The first abort ends all ranks.
                done.wait();
                assert_ne!(comm.aborter().abort("rank 0 does not come"), AbortOutcome::StillRunning);
                Ok(())
            });
            quick(slower(15.0), || drop(rig));
            still_works(ranks);
        }
    });
}
