//! Windows beside other memory, large messages between windows, and aborts behind them.

use std::time::Duration;

use gpucomm::nccl::{AbortOutcome, CommBuffer};
use gpucomm::{Clique, Communicator, DeviceBuffer, Error, InPlace, RecvOnly, ReduceOp, Result, SendOnly, Stream};

use crate::support::{Rig, assert_names, is_thorough, places, quick, rank_counts, slower, watched};

/// Elements: large enough for NCCL to move them without copying; the emulator makes no difference, so few will do.
fn len() -> usize {
    if is_thorough() { 4 << 20 } else { 256 << 10 }
}

fn values(seed: usize) -> Vec<u32> {
    (0..len() as u32).map(|at| at.wrapping_mul(2_654_435_761).wrapping_add(seed as u32)).collect()
}

#[track_caller]
fn same(got: &[u32], seed: usize, what: &str) {
    let want = values(seed);
    // Slices compare at once, elements one by one do not.
    let wrong = || got.iter().zip(&want).filter(|(got, want)| got != want).count();
    assert!(got == want, "{what}, round {seed}: {} are wrong", wrong());
}

/// Two ranks with the windows of this version, if it has any that can be used.
fn two_ranks(body: impl Fn(&Communicator, &Stream) -> Result<()> + Sync + Send + 'static) {
    watched(100.0, move || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let clique = Clique::init_all(&places()[..2]).unwrap();
        clique.spmd(|comm| body(comm, &Stream::new(comm.device())?)).unwrap();
        clique.close_timeout(gpucomm::default_timeout()).unwrap();
    });
}

type Body = fn(&Communicator, &Stream, Memories<'_>) -> Result<()>;

struct Memories<'c> {
    window: CommBuffer<'c, u32>,
    other: CommBuffer<'c, u32>,
    plain: DeviceBuffer<u32>,
}

/// What goes from a window to other memory, or the other way round, is refused on every rank: by name where one rank can tell.
fn refused(what: &str, body: Body) {
    for ranks in rank_counts(&[2, 3]) {
        let rig = Rig::new(ranks);
        let error = rig
            .try_run(|comm, stream| {
                let window = comm.alloc_from(stream, &[7; 60])?;
                let other = comm.alloc_from(stream, &[7; 60])?;
                let plain = DeviceBuffer::from_slice(stream, &[7; 60])?;
                body(comm, stream, Memories { window, other, plain })?;
                stream.synchronize()
            })
            .expect_err(what);
        let is_argument = matches!(error, Error::InvalidArgument { what: "recv", .. });
        assert!(is_argument || matches!(error, Error::Disagreement { .. }), "{what}: {error:?}");
        assert_names(&error, &["window"]);
        drop(rig);
    }
}

#[test]
fn mixtures_are_refused() {
    watched(100.0, || {
        refused("a message into a window", |comm, stream, mut m| match comm.rank() {
            0 => comm.send(&m.plain, 1, stream),
            1 => comm.recv(&mut m.window, 0, stream),
            _ => Ok(()),
        });
        refused("a message out of a window", |comm, stream, mut m| match comm.rank() {
            0 => comm.send(&m.window, 1, stream),
            1 => comm.recv(&mut m.plain, 0, stream),
            _ => Ok(()),
        });
        refused("all_to_all", |comm, stream, mut m| comm.all_to_all((&m.window, &mut m.plain), stream));
        refused("all_to_all_v", |comm, stream, mut m| {
            let counts = vec![5; comm.size()];
            comm.all_to_all_v((&m.plain, &mut m.window), &counts, &counts, stream)
        });
        refused("broadcast", |comm, stream, mut m| match comm.rank() {
            0 => comm.broadcast(InPlace(&mut m.plain), 0, stream),
            _ => comm.broadcast(RecvOnly(&mut m.window), 0, stream),
        });
        refused("broadcast at the root", |comm, stream, mut m| comm.broadcast((&m.plain, &mut m.window), 0, stream));
        refused("reduce", |comm, stream, mut m| match comm.rank() {
            0 => comm.reduce(InPlace(&mut m.window), ReduceOp::Max, 0, stream),
            _ => comm.reduce(SendOnly(&m.plain), ReduceOp::Max, 0, stream),
        });
        // The root's own two buffers, where what all ranks compare is alike.
        refused("broadcast within the root", |comm, stream, mut m| match comm.rank() {
            0 => comm.broadcast((&m.plain, &mut m.window), 0, stream),
            _ => comm.broadcast(RecvOnly(&mut m.plain), 0, stream),
        });
        refused("reduce within the root", |comm, stream, mut m| match comm.rank() {
            0 => comm.reduce((&m.window, &mut m.plain), ReduceOp::Max, 0, stream),
            _ => comm.reduce(SendOnly(&m.window), ReduceOp::Max, 0, stream),
        });
        refused("gather", |comm, stream, mut m| match comm.rank() {
            0 => comm.gather((m.plain.slice(..6), &mut m.other), 0, stream),
            _ => comm.gather(SendOnly(m.window.slice(..6)), 0, stream),
        });
        refused("scatter", |comm, stream, mut m| match comm.rank() {
            0 => comm.scatter((&m.window, m.other.slice_mut(..60 / comm.size())), 0, stream),
            _ => comm.scatter(RecvOnly(m.plain.slice_mut(..60 / comm.size())), 0, stream),
        });
        refused("all_gather_v", |comm, stream, mut m| {
            let counts = vec![5; comm.size()];
            comm.all_gather_v((m.plain.slice(..5), &mut m.window), &counts, stream)
        });
    });
}

/// What has no elements lies nowhere, and a rank by itself may mix as it likes.
#[test]
fn what_does_no_harm_is_not_refused() {
    watched(100.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut window = comm.alloc_from(stream, &[7u32; 60])?;
                let plain = DeviceBuffer::from_slice(stream, &[8; 60])?;
                // Nothing, where what is registered ends.
                let [first, mut second] = [comm.alloc_local::<u32>(stream, 60)?, comm.alloc_local::<u32>(stream, 60)?];
                let registered = [comm.register(&first)?, comm.register(&second)?];
                comm.all_to_all((first.slice(60..), second.slice_mut(..1)), stream)?;
                stream.synchronize()?;
                drop(registered);
                if comm.size() == 1 {
                    comm.all_to_all((&plain, &mut window), stream)?;
                    comm.broadcast((&plain, &mut window), 0, stream)?;
                    assert_eq!(window.to_vec(stream)?, [8; 60]);
                } else if comm.rank() == 0 {
                    comm.send(plain.slice(..0), 1, stream)?;
                } else {
                    comm.recv(window.slice_mut(..0), 0, stream)?;
                }
                stream.synchronize()
            });
            rig.close();
        }
    });
}

#[test]
fn window_to_window_then_collectives() {
    two_ranks(|comm, stream| {
        let mut from = comm.alloc::<u32>(stream, len())?;
        let mut to = comm.alloc::<u32>(stream, len())?;
        for round in 1..5 {
            if comm.rank() == 0 {
                from.copy_from_slice(stream, &values(round))?;
                comm.send(&from, 1, stream)?;
                stream.synchronize()?;
            } else {
                comm.recv(&mut to, 0, stream)?;
                same(&to.to_vec(stream)?, round, "window to window");
                from.copy_from_slice(stream, &values(round))?;
            }
            comm.all_reduce((&from, &mut to), ReduceOp::Max, stream)?;
            same(&to.to_vec(stream)?, round, "all_reduce after");
            to.fill(stream, 0)?;
            comm.broadcast((&from, &mut to), 0, stream)?;
            same(&to.to_vec(stream)?, round, "broadcast after");
        }
        Ok(())
    });
}

#[test]
fn fill_then_reduce() {
    two_ranks(|comm, stream| {
        let mut wrong = 0;
        for (len, rounds) in [(1000, 300), (100_000, 60), (1_000_000, 20)] {
            let mut x = comm.alloc::<u32>(stream, len)?;
            let mut y = comm.alloc::<u32>(stream, len)?;
            for round in 0..rounds {
                x.fill(stream, round)?;
                comm.all_reduce((&x, &mut y), ReduceOp::Sum, stream)?;
                x.fill(stream, 77)?;
                comm.all_reduce(InPlace(&mut y), ReduceOp::Sum, stream)?;
                if round % 10 == 9 {
                    wrong += y.to_vec(stream)?.iter().filter(|y| **y != 4 * round).count();
                }
            }
        }
        assert_eq!(wrong, 0);
        Ok(())
    });
}

/// A rank never comes to a collective between windows: the others are free within a second of the abort.
#[test]
fn an_abort_behind_a_window() {
    watched(100.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for len in [100, 10_000, 1_000_000] {
                let clique = Clique::init_all(&places()[..ranks]).unwrap();
                let missing = clique.rank(0).aborter();
                let behind = clique.spmd(|comm| {
                    let stream = Stream::new(comm.device())?;
                    let mut x = comm.alloc::<f32>(&stream, len)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                    stream.synchronize()?;
                    if comm.rank() > 0 {
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                        return stream.synchronize_timeout(slower(20.0));
                    }
                    std::thread::sleep(Duration::from_millis(300));
                    assert_eq!(quick(slower(2.0), || missing.abort("the test gives up")), AbortOutcome::Done);
                    Ok(())
                });
                let error = behind.expect_err("a rank never came");
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
            }
        }
    });
}
