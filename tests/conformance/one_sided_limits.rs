//! What one-sided operations refuse, by which NCCL has them, and those of processes.

use gpucomm::nccl::{CommProperties, Unsupported};
use gpucomm::{Backend, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, Version, group};

use crate::one_sided::{PAGE, everybody_to_everybody, values, with_one_sided};
use crate::support::process::{Role, all_succeed, spawn_all};
use crate::support::{Rig, assert_argument, assert_names, assert_usage, rank_counts, slower, watched};

#[test]
fn what_cannot_be_is_refused_by_name() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let (rig, other) = (Rig::new(ranks), Rig::new(ranks));
            rig.run(|comm, stream| {
                let next = (comm.rank() + 1) % ranks;
                let mut buffer = comm.alloc::<u32>(stream, 10)?;
                assert_usage(
                    comm.put_signal(&buffer, next, buffer.at(0), stream),
                    &["put_signal", "prepare_one_sided"],
                );
                assert_usage(comm.signal(next, stream), &["signal", "prepare_one_sided"]);
                assert_usage(comm.wait_signal(&[(next, 1)], stream), &["wait_signal", "prepare_one_sided"]);
                comm.prepare_one_sided(stream)?;
                let far = |result: Result<()>, expected: &str, got: &str| {
                    assert_argument(result, "put_signal", expected, got)
                };
                far(
                    comm.put_signal(&buffer, next, buffer.at(1), stream),
                    &format!("at most 9 elements, which rank {next}"),
                    "10",
                );
                far(
                    comm.put_signal(buffer.slice(..1), next, buffer.at(10), stream),
                    "at most 0 elements",
                    "1 elements",
                );
                far(
                    comm.put_signal(&buffer, ranks, buffer.at(0), stream),
                    &format!("below {ranks}"),
                    &ranks.to_string(),
                );
                let plain = DeviceBuffer::<u32>::zeroed(stream, 10)?;
                far(comm.put_signal(&plain, next, buffer.at(0), stream), "memory in a window", "outside of all");
                let local = comm.alloc_local::<u32>(stream, 10)?;
                far(
                    comm.put_signal(&buffer, next, local.at(0), stream),
                    "a window of communicator \"world\"",
                    "no window",
                );
                const OWN: &str = "a window of this communicator \"world\"";
                let theirs = other.clique.rank(comm.rank()).alloc::<u32>(stream, 10)?;
                far(
                    comm.put_signal(&buffer, next, theirs.at(0), stream),
                    OWN,
                    "a buffer of another communicator \"world\" (",
                );
                let memory = gpucomm::nccl::alloc::<u32>(stream, PAGE)?;
                let window = other.clique.rank(comm.rank()).window(&memory)?;
                far(
                    comm.put_signal(&buffer, next, window.at(0), stream),
                    OWN,
                    "one of another communicator \"world\" (",
                );
                assert_argument(comm.signal(ranks, stream), "signal", &format!("below {ranks}"), &ranks.to_string());
                let wait = |signals: &[(usize, usize)], expected: &str| {
                    let refused = comm.wait_signal(signals, stream);
                    assert_argument(refused, "wait_signal", expected, "");
                };
                wait(&[], "one rank or more");
                wait(&[(next, 0)], "1 to 2147483647 signals of each rank");
                wait(&[(0, 1), (ranks, 1)], &format!("below {ranks}"));
                let mut outside = DeviceBuffer::<u32>::zeroed(stream, 1)?;
                let refused = comm.wait_signal_for(&[(next, 1)], &mut outside, stream);
                assert_argument(refused, "wait_signal_for", "memory in a window", "outside of all");
                let within = group(|_| comm.signal(next, stream)).unwrap_err();
                assert!(matches!(within, Error::InvalidUsage { .. }), "{within:?}");
                // Windows of different sizes: what counts is the other rank's, and that this one's reaches as far.
                let memory = gpucomm::nccl::alloc::<u32>(stream, (comm.rank() + 1) * PAGE)?;
                let window = comm.window(&memory)?;
                let source = comm.alloc::<u32>(stream, ranks * PAGE)?;
                let room = (next + 1) * PAGE;
                let refused = comm.put_signal(source.slice(..room + 1 - 5), next, window.at(5), stream);
                if next > comm.rank() {
                    far(refused, &format!("at most {} elements", room - 5), "elements");
                    let beyond = comm.put_signal(source.slice(..1), next, window.at((comm.rank() + 1) * PAGE), stream);
                    assert_argument(beyond, "put_signal", "where NCCL looks for it", "byte");
                } else {
                    far(refused, "elements", "elements");
                }
                // And nothing was harmed.
                comm.barrier_on_stream(stream)?;
                comm.put_signal(source.slice(..room - 5), next, window.at(5), stream)?;
                comm.wait_signal(&[((comm.rank() + ranks - 1) % ranks, 1)], stream)?;
                comm.all_reduce(InPlace(&mut buffer), ReduceOp::Sum, stream)?;
                stream.synchronize()
            });
            rig.close();
            other.close();
        }
    });
}

/// A window over a buffer of one rank, or over a part of it, makes the buffer no place of the others: they may have less there.
#[test]
fn a_window_over_a_buffer_of_one_rank_is_no_buffer_of_all() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                let (me, next) = (comm.rank(), (comm.rank() + 1) % ranks);
                let source = comm.alloc::<u32>(stream, 8 * PAGE)?;
                let part = comm.alloc_local::<u32>(stream, 8 * PAGE)?;
                let over_part = comm.window(part.slice(..PAGE))?;
                let whole = comm.alloc_local::<u32>(stream, if me == 0 { 8 * PAGE } else { PAGE })?;
                let over_whole = comm.window(&whole)?;
                comm.barrier_on_stream(stream)?;
                for (local, len) in [(&part, 2 * PAGE), (&part, PAGE), (&whole, PAGE)] {
                    let refused = comm.put_signal(source.slice(..len), next, local.at(0), stream);
                    assert_argument(refused, "put_signal", "a window of communicator \"world\"", "no window");
                }
                for window in [&over_part, &over_whole] {
                    comm.put_signal(source.slice(..PAGE), next, window.at(0), stream)?;
                }
                comm.wait_signal(&[((me + ranks - 1) % ranks, 2)], stream)?;
                stream.synchronize()
            });
            rig.close();
        }
    });
}

/// The device copies, and what that does where both overlap is not known.
#[test]
fn a_rank_puts_nothing_over_what_it_puts() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                comm.prepare_one_sided(stream)?;
                let (me, next) = (comm.rank(), (comm.rank() + 1) % ranks);
                let mut x = comm.alloc_from(stream, &values(me, 0, 100))?;
                for (from, to) in [(0, 0), (0, 49), (20, 0), (30, 50)] {
                    let refused = comm.put_signal(x.slice(from..from + 50), me, x.at(to), stream);
                    assert_argument(refused, "put_signal", "outside of bytes", "bytes");
                }
                comm.put_signal(x.slice(..50), me, x.at(50), stream)?;
                comm.wait_signal_for(&[(me, 1)], &mut x, stream)?;
                assert_eq!(x.to_vec(stream)?[50..], values(me, 0, 50));
                comm.barrier_on_stream(stream)?;
                if ranks > 1 {
                    // Another rank has its own bytes there.
                    comm.put_signal(x.slice(..50), next, x.at(50), stream)?;
                    comm.wait_signal(&[(next, 1)], stream)?;
                }
                stream.synchronize()
            });
            rig.close();
        }
    });
}

#[test]
fn communicators_say_what_they_can_do() {
    with_one_sided(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let CommProperties { one_sided, device_api, lsa_teams, .. } = comm.properties()?;
                assert!(one_sided && device_api && lsa_teams == 1);
                let memory = gpucomm::nccl::alloc::<u32>(stream, 2 * PAGE)?;
                let window = comm.window(memory.slice(PAGE..))?;
                assert_eq!(window.user_ptr()?, Some(memory.slice(PAGE..).as_raw().cast_mut()));
                Ok(())
            });
            rig.close();
        }
    });
}

/// Older versions have none of this, and say so.
#[test]
fn older_versions_say_what_they_lack() {
    watched(60.0, || {
        if gpucomm::nccl::version().unwrap() >= Version::new(2, 29, 2) {
            return;
        }
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let memory = gpucomm::nccl::alloc::<u32>(stream, PAGE)?;
                let window = comm.window(&memory)?;
                let lacks = |result: Result<()>, first: &str| {
                    let error = result.expect_err("it is too old");
                    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
                    assert_names(&error, &[first, "or newer"]);
                };
                lacks(comm.prepare_one_sided(stream), "2.29.2");
                lacks(comm.properties().map(drop), "2.29.7");
                lacks(window.user_ptr().map(drop), "2.29.2");
                Ok(())
            });
            rig.close();
        }
    });
}

#[test]
fn processes_write_to_each_other() {
    with_one_sided(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            all_succeed(spawn_all("one_sided_limits::in_a_process", "puts", ranks, &[]), slower(80.0));
        }
    });
}

/// Where ranks cannot map each other's memory.
#[test]
fn without_windows_there_are_none() {
    with_one_sided(60.0, || {
        if gpucomm::backend() == Backend::Nvidia {
            return;
        }
        for ranks in rank_counts(&[2]) {
            let off = [("GPUCOMM_EMULATOR_WINDOWS", "0")];
            all_succeed(spawn_all("one_sided_limits::in_a_process", "puts nothing", ranks, &off), slower(50.0));
        }
    });
}

#[test]
#[ignore = "a child of the tests above"]
fn in_a_process() {
    if let Some(role) = Role::of_this_process("puts nothing") {
        let comm = role.join().unwrap();
        let stream = Stream::new(comm.device()).unwrap();
        let memory = gpucomm::nccl::alloc::<u32>(&stream, PAGE).unwrap();
        let window = comm.window(&memory).unwrap();
        assert_eq!((window.unsupported(), window.user_ptr().unwrap()), (Some(Unsupported::Library), None));
        let refused = comm.prepare_one_sided(&stream).unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused:?}");
        assert!(!comm.properties().unwrap().one_sided);
        comm.close_timeout(gpucomm::default_timeout()).unwrap();
    }
    let Some(role) = Role::of_this_process("puts") else { return };
    let comm = role.join().unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    comm.prepare_one_sided(&stream).unwrap();
    for len in [0, 5, 5000] {
        everybody_to_everybody(&comm, &stream, len, 3).unwrap();
    }
    let (next, before) = ((role.rank + 1) % role.size, (role.rank + role.size - 1) % role.size);
    for round in 0..5 {
        let inbox = gpucomm::nccl::alloc::<u32>(&stream, 2 * PAGE).unwrap();
        let window = comm.window(&inbox).unwrap();
        let source = comm.alloc_from(&stream, &values(role.rank, round, PAGE)).unwrap();
        comm.put_signal(&source, next, window.at(100), &stream).unwrap();
        comm.wait_signal(&[(before, 1)], &stream).unwrap();
        assert_eq!(inbox.slice(100..100 + PAGE).to_vec(&stream).unwrap(), values(before, round, PAGE));
        drop((window, inbox, source));
        comm.reclaim().unwrap();
    }
    comm.close_timeout(gpucomm::default_timeout()).unwrap();
}
