//! One-sided operations. On the emulator, a put beyond the window of the other rank ends the process, and so do puts that nothing puts in
//! order, and memory that goes while puts are on their way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use gpucomm::{Backend, CommBuffer, Communicator, Element, InPlace, ReduceOp, Result, Stream, Version};

use crate::support::newer::since;
use crate::support::random::rng;
use crate::support::{Rig, assert_argument, assert_names, rank_counts, skip, slower, still_works};

/// Elements of a page of `u32`.
pub const PAGE: usize = 4096 / 4;

/// The first version in which windows are sound and operations one-sided.
const FIRST: Version = Version::new(2, 29, 7);

/// Runs a test where there are one-sided operations.
pub fn with_one_sided(seconds: f64, body: impl FnOnce() + Send + 'static) {
    since(FIRST, seconds, body);
}

/// Elements that all ranks know.
pub fn values(from: usize, round: usize, len: usize) -> Vec<u32> {
    (0..len).map(|at| (at as u32).wrapping_mul(0x9e37_79b9) ^ (from as u32) << 24 ^ (round as u32) << 16).collect()
}

pub const POISON: u32 = 0xdead_beef;

/// Each rank writes to each, itself too: rank `r` has part `r` in everybody's window.
pub fn everybody_to_everybody(comm: &Communicator, stream: &Stream, len: usize, rounds: usize) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.size());
    let part = len + 3;
    let mut send = comm.alloc::<u32>(stream, len + 1)?;
    let mut recv = comm.alloc::<u32>(stream, part * ranks)?;
    let others: Vec<_> = (0..ranks).map(|rank| (rank, 1)).collect();
    for round in 0..rounds {
        recv.fill(stream, POISON)?;
        send.slice_mut(1..).copy_from_slice(stream, &values(me, round, len))?;
        // All windows are as they shall be.
        comm.barrier_on_stream(stream)?;
        for peer in (0..ranks).map(|step| (me + step) % ranks) {
            comm.put_signal(send.slice(1..), peer, recv.at(part * me + 1), stream)?;
        }
        comm.wait_signal_for(&others, &mut recv, stream)?;
        let got = recv.to_vec(stream)?;
        for (rank, got) in got.chunks(part).enumerate() {
            assert_eq!(got[1..=len], values(rank, round, len), "of rank {rank}, round {round}");
            assert!(got[0] == POISON && got[len + 1..].iter().all(|&value| value == POISON), "around it");
        }
        comm.barrier_on_stream(stream)?;
    }
    Ok(())
}

#[test]
fn everybody_writes_to_everybody() {
    with_one_sided(100.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                comm.prepare_one_sided(stream)?;
                for len in [0, 1, 7, 1021, 50_000] {
                    everybody_to_everybody(comm, stream, len, 3)?;
                }
                Ok(())
            });
            rig.close();
        }
    });
}

fn moves<T: Element + PartialEq + std::fmt::Debug>(comm: &Communicator, stream: &Stream, values: [T; 3]) -> Result<()> {
    let (next, before) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
    let send = comm.alloc_from(stream, &values)?;
    let mut recv = comm.alloc::<T>(stream, 9)?;
    comm.put_signal(send.slice(1..), next, recv.at(5), stream)?;
    comm.wait_signal_for(&[(before, 1)], recv.slice_mut(5..7), stream)?;
    assert_eq!(recv.slice(5..7).to_vec(stream)?, values[1..]);
    comm.barrier_on_stream(stream)
}

#[test]
fn elements_of_any_type() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                moves(comm, stream, [1u8, 2, 3])?;
                moves(comm, stream, [-1i64, 2, i64::MIN])?;
                moves(comm, stream, [0.5f32, f32::INFINITY, -0.0])?;
                moves(comm, stream, [[1u16, 2, 3], [4, 5, 6], [7, 8, 9]])
            });
            rig.close();
        }
    });
}

/// Windows over memory of users, of different sizes; several streams; a signal the other way says when there is room again.
#[test]
fn a_ring_with_credits() {
    with_one_sided(100.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let (me, size) = (comm.rank(), comm.size());
                let (next, before) = ((me + 1) % size, (me + size - 1) % size);
                let mut random = rng(&format!("a ring with credits {me}"));
                comm.prepare_one_sided(stream)?;
                let pages = |rank: usize| 2 + rank;
                let mut inbox = gpucomm::nccl::alloc::<u32>(stream, pages(me) * PAGE)?;
                let outbox = comm.alloc::<u32>(stream, 8 * PAGE)?;
                let window = comm.window(&inbox)?;
                assert_eq!(window.bytes_on(next), Some(4096 * pages(next)));
                let streams = [stream.clone(), Stream::new(comm.device())?, Stream::new(comm.device())?];
                let mut outbox = outbox;
                for round in 0..40 {
                    // All ranks know each other's lengths: those of a round are the same.
                    let len = 1 + (round * 97) % PAGE;
                    let stream = &streams[random.usize(..streams.len())];
                    if round > 0 {
                        comm.wait_signal(&[(next, 1)], stream)?;
                    }
                    outbox.slice_mut(..len).copy_from_slice(stream, &values(me, round, len))?;
                    let at = (round * 13) % (PAGE - 7);
                    comm.put_signal(outbox.slice(..len), next, window.at(at), stream)?;
                    let reads = &streams[random.usize(..streams.len())];
                    comm.wait_signal_for(&[(before, 1)], &mut inbox, stream)?;
                    assert_eq!(inbox.slice(at..at + len).to_vec(reads)?, values(before, round, len), "round {round}");
                    comm.signal(before, reads)?;
                }
                comm.wait_signal(&[(next, 1)], stream)?;
                stream.synchronize()
            });
            rig.close();
        }
    });
}

/// What a communicator does comes one after the other, on whatever streams: who waits for a signal keeps back what comes after.
#[test]
fn a_wait_keeps_back_what_comes_after_it() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let (rig, looked) = (Rig::new(ranks), Barrier::new(ranks));
            rig.run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                let other = Stream::new(comm.device())?;
                let mut x = comm.alloc_from(stream, &[comm.rank() as u32 + 1; 5])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                stream.synchronize()?;
                for gives in [true, false] {
                    if comm.rank() == 0 {
                        comm.wait_signal(&[(1, 1)], stream)?;
                        match gives {
                            true => comm.signal(0, &other)?,
                            false => comm.all_reduce(InPlace(&mut x), ReduceOp::Max, &other)?,
                        }
                        let passed = Arc::new(AtomicBool::new(false));
                        let told = Arc::clone(&passed);
                        other.launch_host(move || told.store(true, Ordering::SeqCst))?;
                        std::thread::sleep(Duration::from_millis(200));
                        assert!(!passed.load(Ordering::SeqCst), "a wait has let it through");
                    }
                    looked.wait();
                    if comm.rank() == 1 {
                        comm.signal(0, stream)?;
                    }
                    if comm.rank() > 0 && !gives {
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                    }
                    other.synchronize()?;
                    stream.synchronize()?;
                }
                assert_eq!(x.to_vec(stream)?, [ranks as u32; 5]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// One wait for many puts, which went on many streams.
#[test]
fn signals_are_counted() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                const PUTS: usize = 60;
                comm.prepare_one_sided(stream)?;
                let (me, size) = (comm.rank(), comm.size());
                let mut all = comm.alloc::<u32>(stream, PUTS * size)?;
                let own = comm.alloc_from(stream, &values(me, 7, PUTS))?;
                let streams: Vec<_> = (0..4).map(|_| Stream::new(comm.device())).collect::<Result<_>>()?;
                comm.barrier_on_stream(stream)?;
                for at in 0..PUTS {
                    for peer in 0..size {
                        comm.put_signal(
                            own.slice(at..=at),
                            peer,
                            all.at(PUTS * me + at),
                            &streams[at % streams.len()],
                        )?;
                    }
                }
                let most: Vec<_> = (0..size).map(|rank| (rank, PUTS - 1)).collect();
                let last: Vec<_> = (0..size).map(|rank| (rank, 1)).collect();
                comm.wait_signal(&most, stream)?;
                comm.wait_signal_for(&last, &mut all, stream)?;
                let want: Vec<_> = (0..size).flat_map(|rank| values(rank, 7, PUTS)).collect();
                assert_eq!(all.to_vec(&streams[1])?, want);
                Ok(())
            });
            rig.close();
        }
    });
}

/// One thread that drives all ranks.
#[test]
fn one_thread_drives_all() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            let clique = &rig.clique;
            let streams: Vec<_> = clique.ranks().iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
            clique.prepare_one_sided(&streams).unwrap();
            let few = clique.prepare_one_sided(&streams[1..]);
            assert_argument(
                few,
                "Clique::prepare_one_sided",
                &format!("{ranks} streams"),
                &format!("{} streams", ranks - 1),
            );
            let mut buffers: Vec<CommBuffer<'_, u32>> = clique.alloc(&streams, ranks).unwrap();
            for ((comm, stream), buffer) in clique.ranks().iter().zip(&streams).zip(&mut buffers) {
                buffer.slice_mut(comm.rank()..=comm.rank()).fill(stream, 10 + comm.rank() as u32).unwrap();
                for peer in (0..ranks).filter(|&peer| peer != comm.rank()) {
                    let own = buffer.slice(comm.rank()..=comm.rank());
                    comm.put_signal(own, peer, buffer.at(comm.rank()), stream).unwrap();
                }
            }
            for ((comm, stream), buffer) in clique.ranks().iter().zip(&streams).zip(&mut buffers) {
                let others: Vec<_> = (0..ranks).filter(|&peer| peer != comm.rank()).map(|peer| (peer, 1)).collect();
                if !others.is_empty() {
                    comm.wait_signal_for(&others, &mut *buffer, stream).unwrap();
                }
                assert_eq!(buffer.to_vec(stream).unwrap(), (10..10 + ranks as u32).collect::<Vec<_>>());
            }
            drop(buffers);
            rig.close();
        }
    });
}

/// A wait for a signal that never comes ends with the communicator, and its memory is not handed out as a result; where it does not say
/// which memory that is, none that lies in a window.
#[test]
fn an_abort_ends_waits() {
    with_one_sided(60.0, || {
        if gpucomm::backend() == Backend::Nvidia {
            return skip("a device waits for a value in memory, from which NCCL does not free it");
        }
        for (ranks, names_memory) in rank_counts(&[2, 4]).into_iter().flat_map(|ranks| [(ranks, true), (ranks, false)])
        {
            let rig = Rig::new(ranks);
            let result = rig.try_run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                let mut buffer = comm.alloc::<u32>(stream, 10)?;
                stream.synchronize()?;
                if comm.rank() == 0 {
                    match names_memory {
                        true => comm.wait_signal_for(&[(1, 2)], &mut buffer, stream)?,
                        false => comm.wait_signal(&[(1, 2)], stream)?,
                    }
                    let (aborter, other) = (comm.aborter(), Stream::new(comm.device())?);
                    let (first, second) = std::thread::scope(|scope| {
                        scope.spawn(move || {
                            std::thread::sleep(slower(0.3));
                            aborter.abort("the test aborts")
                        });
                        (buffer.to_vec(stream), buffer.to_vec(&other))
                    });
                    assert!(first.is_err() && second.is_err(), "{first:?} {second:?}");
                    return first.map(drop);
                }
                comm.signal(0, stream)?;
                stream.synchronize()
            });
            let error = result.expect_err("rank 0 has failed");
            assert_names(&error, &["the test aborts"]);
            drop(rig);
            still_works(ranks);
        }
    });
}

/// Windows that are dropped while puts are on their way, and memory that goes with them.
#[test]
fn windows_go_when_nothing_is_on_its_way() {
    with_one_sided(100.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                let (next, before) = ((comm.rank() + 1) % ranks, (comm.rank() + ranks - 1) % ranks);
                for round in 0..20 {
                    let source = comm.alloc_from(stream, &values(comm.rank(), round, 20_000))?;
                    let inbox = gpucomm::nccl::alloc::<u32>(stream, 20 * PAGE)?;
                    let window = comm.window(&inbox)?;
                    comm.put_signal(&source, next, window.at(0), stream)?;
                    if round % 2 == 0 {
                        comm.wait_signal(&[(before, 1)], stream)?;
                        assert_eq!(inbox.slice(..20_000).to_vec(stream)?, values(before, round, 20_000));
                        drop((window, inbox, source));
                        comm.reclaim()?;
                    } else {
                        drop((inbox, window, source));
                        comm.reclaim()?;
                        comm.wait_signal(&[(before, 1)], stream)?;
                    }
                }
                stream.synchronize()
            });
            rig.close();
        }
    });
}

/// A window and its memory that are forgotten while puts into them are on their way: nothing is taken away, and all ends well.
#[test]
fn windows_that_are_forgotten() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                let peer = 1 - comm.rank();
                for round in 0..4 {
                    let source = comm.alloc_from(stream, &values(comm.rank(), round, 20_000))?;
                    let inbox = gpucomm::nccl::alloc::<u32>(stream, 20 * PAGE)?;
                    let window = comm.window(&inbox)?;
                    let (open, opened) = std::sync::mpsc::channel::<()>();
                    stream.launch_host(move || drop(opened.recv_timeout(slower(30.0))))?;
                    comm.put_signal(&source, peer, window.at(0), stream)?;
                    std::mem::forget(source);
                    match round % 2 {
                        0 => std::mem::forget((window, inbox)),
                        _ => {
                            std::mem::forget(window);
                            drop(inbox);
                        }
                    }
                    // The others have forgotten theirs, too.
                    comm.reclaim()?;
                    drop(open);
                    comm.wait_signal(&[(peer, 1)], stream)?;
                    stream.synchronize()?;
                }
                comm.reclaim()
            });
            rig.close();
            still_works(ranks);
        }
    });
}
