//! One-sided operations: what comes in order, on whatever streams, and what waits for what is on its way.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gpucomm::{Backend, Error, Result, Stream};

use crate::one_sided::{PAGE, POISON, values, with_one_sided};
use crate::support::process::{Role, all_succeed, spawn_all};
use crate::support::{Rig, assert_names, rank_counts, skip, slower};

/// The stream has something else to do for a while.
fn sleeps(stream: &Stream) -> Result<()> {
    stream.launch_host(|| thread::sleep(Duration::from_millis(30)))
}

/// What is put on a stream that has something else to do first is sent as it was, and before what comes later on other streams.
#[test]
fn what_is_put_comes_in_order() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                let others = [(); 3].map(|()| Stream::new(comm.device()));
                let [slow, fills, signals] = others.map(|stream| stream.expect("a stream"));
                let mut outbox = comm.alloc::<u32>(stream, 300)?;
                let mut inbox = comm.alloc::<u32>(stream, 300)?;
                for round in 0..3 {
                    outbox.copy_from_slice(&slow, &values(0, round, 300))?;
                    assert_eq!(outbox.to_vec(stream)?, values(0, round, 300));
                    inbox.fill(stream, POISON)?;
                    comm.barrier_on_stream(stream)?;
                    if comm.rank() == 0 {
                        sleeps(&slow)?;
                        comm.put_signal(outbox.slice(..100), 1, inbox.at(0), &slow)?;
                    }
                    // It is asked whether what was put has arrived, which it has not.
                    comm.reclaim()?;
                    match comm.rank() {
                        0 => {
                            sleeps(&slow)?;
                            comm.put_signal(outbox.slice(100..), 1, inbox.at(100), &slow)?;
                            comm.signal(1, &signals)?;
                            outbox.fill(&fills, POISON)?;
                        }
                        1 => {
                            comm.wait_signal_for(&[(0, 2)], &mut inbox, stream)?;
                            assert_eq!(inbox.to_vec(stream)?, values(0, round, 300), "round {round}");
                            comm.wait_signal(&[(0, 1)], stream)?;
                        }
                        _ => {}
                    }
                    comm.barrier_on_stream(stream)?;
                }
                stream.synchronize()
            });
            rig.close();
        }
    });
}

/// The same of signals alone, the one by which they are prepared too.
#[test]
fn signals_come_in_order() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let slow = Stream::new(comm.device())?;
                sleeps(&slow)?;
                comm.prepare_one_sided(&slow)?;
                comm.reclaim()?;
                comm.signal(1 - comm.rank(), stream)?;
                for _ in 0..3 {
                    sleeps(&slow)?;
                    comm.signal(1 - comm.rank(), &slow)?;
                    comm.reclaim()?;
                    sleeps(&slow)?;
                    comm.signal(1 - comm.rank(), &slow)?;
                    comm.signal(1 - comm.rank(), stream)?;
                }
                comm.wait_signal(&[(1 - comm.rank(), 10)], stream)?;
                stream.synchronize()
            });
            rig.close();
        }
    });
}

/// A rank gives up its window, and knows nothing of what another puts there; that one comes to the same place when it has put.
#[test]
fn windows_wait_for_puts_of_others() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                let (slow, source) =
                    (Stream::new(comm.device())?, comm.alloc_from(stream, &values(comm.rank(), 0, PAGE))?);
                let (next, before) = ((comm.rank() + 1) % ranks, (comm.rank() + ranks - 1) % ranks);
                for round in 0..3 {
                    let inbox = gpucomm::nccl::alloc::<u32>(stream, 2 * PAGE)?;
                    let window = comm.window(&inbox)?;
                    if comm.rank() == round % ranks {
                        sleeps(&slow)?;
                    }
                    comm.put_signal(&source, next, window.at(PAGE), &slow)?;
                    drop((window, inbox));
                    comm.reclaim()?;
                    comm.wait_signal(&[(before, 1)], stream)?;
                }
                stream.synchronize()
            });
            rig.close();
        }
    });
}

/// The end waits for what is on its way.
#[test]
fn an_end_waits_for_signals() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                let slow = Stream::new(comm.device())?;
                sleeps(&slow)?;
                comm.signal((comm.rank() + 1) % ranks, &slow)
            });
            rig.close();
        }
    });
}

/// What does not come to its end within the time that it is given is told by name.
#[test]
fn an_end_tells_what_is_on_its_way() {
    with_one_sided(60.0, || {
        if gpucomm::backend() == Backend::Nvidia {
            return skip("a device waits for a value in memory, from which NCCL does not free it");
        }
        let rig = Rig::new(1);
        rig.run(|comm, stream| {
            comm.prepare_one_sided(stream)?;
            stream.synchronize()?;
            comm.wait_signal(&[(0, 1)], &Stream::new(comm.device())?)
        });
        let error = rig.clique.close_timeout(slower(0.5)).expect_err("nobody signals");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        assert_names(&error, &["close", "rank 0 has work in flight", "wait_signal"]);
    });
}

/// The queue of a stream that is held up has its end: who enqueues more waits there, where an end can come between.
#[test]
fn who_waits_for_room_comes_back_at_the_deadline() {
    with_one_sided(60.0, || {
        let rig = Rig::new(1);
        rig.run(|comm, stream| {
            comm.prepare_one_sided(stream)?;
            stream.synchronize()?;
            let (open, opened) = mpsc::channel::<()>();
            stream.launch_host(move || assert!(opened.recv().is_err()))?;
            comm.set_timeout(slower(0.5));
            let full = (0..2000).try_for_each(|_| comm.signal(0, stream));
            assert!(matches!(full, Err(Error::Timeout { .. })), "{full:?}");
            assert!(comm.is_active());
            drop(open);
            comm.set_timeout(slower(20.0));
            comm.signal(0, stream)?;
            stream.synchronize()
        });
        rig.close();
    });
}

/// Ranks that do not compare what they drop: one that waits for what another puts gives its window up when that has come.
#[test]
fn windows_of_processes_wait_for_what_is_waited_for() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[2]) {
            all_succeed(spawn_all("one_sided_order::in_a_process", "waits", ranks, &[]), slower(40.0));
        }
    });
}

#[test]
#[ignore = "a child of the test above"]
fn in_a_process() {
    let Some(role) = Role::of_this_process("waits") else { return };
    let comm = role.join().unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    comm.prepare_one_sided(&stream).unwrap();
    let source = comm.alloc_from(&stream, &values(0, 0, PAGE)).unwrap();
    for _ in 0..3 {
        let inbox = gpucomm::nccl::alloc::<u32>(&stream, 2 * PAGE).unwrap();
        let window = comm.window(&inbox).unwrap();
        match role.rank {
            0 => {
                sleeps(&stream).unwrap();
                comm.put_signal(&source, 1, window.at(0), &stream).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
            _ => comm.wait_signal(&[(0, 1)], &stream).unwrap(),
        }
        drop((window, inbox));
        comm.reclaim().unwrap();
    }
    drop(source);
    comm.close_timeout(gpucomm::default_timeout()).unwrap();
}
