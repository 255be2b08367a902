//! Communicators that share their resources with those that they were split off from.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use gpucomm::nccl::{CommState, Config, InitOptions};
use gpucomm::{
    Backend, Clique, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, group,
};

use crate::split::{sum, whole};
use crate::support::process::{Role, all_succeed, spawn_all};
use crate::support::{assert_names, places, quick, rank_counts, skip, slower, still_works, watched};

pub fn options() -> InitOptions {
    InitOptions::new().with_config(Config::new().with_split_share(true))
}

pub fn sharing(ranks: usize) -> Clique {
    Clique::init_all_with(&places()[..ranks], &options()).expect("a clique")
}

/// Runs `body` as every rank of a new clique, each on a thread that owns its communicator.
pub fn owners<R: Send>(ranks: usize, body: impl Fn(Communicator, &Stream) -> R + Sync) -> Vec<R> {
    let run = |comm: Communicator| {
        let stream = Stream::new(comm.device()).unwrap();
        body(comm, &stream)
    };
    let run = &run;
    std::thread::scope(|scope| {
        let comms = sharing(ranks).into_ranks();
        let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(move || run(comm))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The whole, halves, and pairs of one rank of each half, in turn and on two streams.
#[test]
fn parts_compute() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            owners(ranks, |comm, stream| {
                let (rank, other) = (comm.rank(), Stream::new(comm.device()).unwrap());
                let half = comm.split(Some(rank / 2), ranks - rank).unwrap().expect("a half");
                let column = comm.split((rank < 2 || ranks == 4).then_some(rank % 2), rank).unwrap();
                let of_half = whole(&half).unwrap();
                let mut window = half.alloc::<u64>(stream, 300).unwrap();
                for round in 0..40 {
                    sum(&half, stream).unwrap();
                    sum(&comm, &other).unwrap();
                    column.iter().for_each(|column| sum(column, stream).unwrap());
                    window.fill(stream, round).unwrap();
                    half.all_reduce(InPlace(&mut window), ReduceOp::Sum, stream).unwrap();
                    sum(&of_half, &other).unwrap();
                    if half.size() == 2 {
                        let (to, mut from) = (
                            DeviceBuffer::from_slice(stream, &[rank as u32; 7]).unwrap(),
                            DeviceBuffer::<u32>::zeroed(stream, 7).unwrap(),
                        );
                        group(|group| {
                            group.send(&half, &to, 1 - half.rank(), stream)?;
                            group.recv(&half, &mut from, 1 - half.rank(), stream)
                        })
                        .unwrap();
                        assert_eq!(from.to_vec(stream).unwrap(), [rank as u32 ^ 1; 7]);
                    }
                    assert_eq!(window.to_vec(stream).unwrap(), [round * half.size() as u64; 300]);
                }
                drop(window);
                let comms = [Some(comm), Some(half), column, Some(of_half)];
                comms.into_iter().flatten().for_each(|comm| comm.close_timeout(slower(10.0)).unwrap());
            });
            still_works(ranks);
        }
    });
}

/// Groups that hold calls on all of them, in whatever order, on threads of their own and on one.
#[test]
fn one_group_on_several() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            owners(ranks, |comm, stream| {
                let (one, two) = (whole(&comm).unwrap(), whole(&comm).unwrap());
                let mut order = [&comm, &one, &two];
                order.rotate_left(comm.rank() % 3);
                for _ in 0..20 {
                    let mut sums: Vec<_> =
                        (0..6).map(|_| DeviceBuffer::from_slice(stream, &[1u32; 9]).unwrap()).collect();
                    group(|group| {
                        for (at, x) in sums.iter_mut().enumerate() {
                            group.all_reduce(order[at % 3], InPlace(x), ReduceOp::Sum, stream)?;
                        }
                        Ok(())
                    })
                    .unwrap();
                    sums.iter().for_each(|x| assert_eq!(x.to_vec(stream).unwrap(), [ranks as u32; 9]));
                }
            });
            let clique = sharing(ranks);
            let parts = clique.split(|rank| Some((rank % 2, 0))).unwrap();
            let members: Vec<_> = clique.ranks().iter().chain(parts.values().flat_map(Clique::ranks)).collect();
            let streams: Vec<_> = members.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
            for round in 0..20 {
                let ones = |stream| DeviceBuffer::from_slice(stream, &[1i64; 100]).unwrap();
                let mut sums: Vec<_> = streams.iter().map(ones).collect();
                group(|group| {
                    let mut all: Vec<_> = members.iter().zip(&mut sums).zip(&streams).collect();
                    all.rotate_left(round % members.len());
                    for ((comm, x), stream) in all {
                        group.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream)?;
                    }
                    Ok(())
                })
                .unwrap();
                for ((comm, x), stream) in members.iter().zip(&sums).zip(&streams) {
                    assert_eq!(x.to_vec(stream).unwrap(), [comm.size() as i64; 100]);
                }
            }
            clique.close_timeout(slower(10.0)).unwrap();
            parts.into_values().for_each(|part| part.close_timeout(slower(10.0)).unwrap());
            still_works(ranks);
        }
    });
}

/// A rank that sends its first messages on several of them in one group, to ranks that each take one. It connects them one after the
/// other.
#[test]
fn first_messages_on_several() {
    watched(60.0, || {
        for ranks in rank_counts(&[3, 4]) {
            owners(ranks, |comm, stream| {
                let rank = comm.rank();
                let part = comm.split((rank != 1).then_some(0), rank).unwrap();
                let of_part = part.as_ref().map(|part| whole(part).unwrap());
                let sent = DeviceBuffer::from_slice(stream, &[7u32; 5]).unwrap();
                let mut got = [(); 2].map(|()| DeviceBuffer::from_slice(stream, &[rank as u32; 5]).unwrap());
                let [one, two] = &mut got;
                match (rank, &part, &of_part) {
                    (0, Some(part), Some(of_part)) => group(|group| {
                        group.send(of_part, &sent, 1, stream)?;
                        group.send(&comm, &sent, 1, stream)?;
                        group.send(part, &sent, 1, stream)
                    }),
                    (1, ..) => comm.recv(one, 0, stream),
                    (2, Some(part), Some(of_part)) => group(|group| {
                        group.recv(part, one, 0, stream)?;
                        group.recv(of_part, two, 0, stream)
                    }),
                    _ => Ok(()),
                }
                .unwrap();
                for (at, got) in got.iter().enumerate() {
                    let comes = rank == 1 && at == 0 || rank == 2;
                    assert_eq!(got.to_vec(stream).unwrap(), [if comes { 7 } else { rank as u32 }; 5]);
                }
            });
            still_works(ranks);
        }
    });
}

/// Each on a thread of its own: one is inside at a time, which the emulator sees.
#[test]
fn threads_take_turns() {
    watched(60.0, || {
        for _ in rank_counts(&[1]) {
            owners(1, |comm, _| {
                let (one, two) = (whole(&comm).unwrap(), whole(&comm).unwrap());
                std::thread::scope(|scope| {
                    for comm in [&comm, &one, &two] {
                        scope.spawn(move || {
                            let stream = Stream::new(comm.device()).unwrap();
                            (0..200).for_each(|_| sum(comm, &stream).unwrap());
                            let halves = comm.pre_mul_sum(0.5f32).unwrap();
                            let mut x = DeviceBuffer::from_slice(&stream, &[4.0f32]).unwrap();
                            comm.all_reduce(InPlace(&mut x), &halves, &stream).unwrap();
                            let part = whole(comm).unwrap();
                            sum(&part, &stream).unwrap();
                            assert_eq!(x.to_vec(&stream).unwrap(), [2.0]);
                        });
                    }
                });
            });
        }
    });
}

/// Each rank begins with another one: each takes what belongs to the other, if that is done.
#[test]
fn another_order_is_told() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let barrier = Barrier::new(ranks);
            owners(ranks, |comm, stream| {
                let part = whole(&comm).unwrap();
                sum(&part, stream).unwrap();
                sum(&comm, stream).unwrap();
                barrier.wait();
                let error = quick(slower(5.0), || {
                    let (first, second) = if comm.rank() == 1 { (&part, &comm) } else { (&comm, &part) };
                    let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5])?;
                    first.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    second.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    stream.synchronize_timeout(slower(20.0))
                });
                let error = error.expect_err("the orders differ");
                assert_names(
                    &error,
                    &["communicator \"world\"", "communicator \"world/split(color=0)\"", "all_reduce of 5 i32"],
                );
                assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
                // The rank that ends them ends one after the other; this one may hear of the first before the second has ended.
                let deadline = Instant::now() + slower(5.0);
                while comm.is_active() || part.is_active() {
                    assert!(Instant::now() < deadline, "{} {}", comm.is_active(), part.is_active());
                    std::thread::yield_now();
                }
            });
            still_works(ranks);
        }
    });
}

/// A rank that was made by itself blocks inside NCCL, in a part; the whole is aborted, and nothing goes while it is inside.
#[test]
fn who_is_inside_one_is_waited_for_by_all() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let id = UniqueId::new().unwrap();
            let barrier = &Barrier::new(ranks);
            std::thread::scope(|scope| {
                for rank in 0..ranks {
                    scope.spawn(move || {
                        let device = Device::new(rank).unwrap();
                        // SAFETY: both ranks issue the same operations in the same order, or one of them none.
                        let comm =
                            unsafe { Communicator::init_rank_with(device, ranks, &id, rank, &options()) }.unwrap();
                        let stream = Stream::new(device).unwrap();
                        sum(&comm, &stream).unwrap();
                        let part = whole(&comm).unwrap();
                        barrier.wait();
                        if rank == 1 {
                            std::thread::sleep(Duration::from_millis(300));
                            let outcome = quick(slower(9.0), || comm.aborter().abort("rank 1 gives up"));
                            assert_eq!(outcome, gpucomm::nccl::AbortOutcome::Done);
                        } else {
                            // It connects, and waits for rank 1 in that.
                            let mut x = DeviceBuffer::<f32>::zeroed(&stream, 1 << 20).unwrap();
                            let done = part.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream);
                            let error = done.and_then(|()| stream.synchronize()).expect_err("rank 1 does not come");
                            assert_names(&error, &["rank 1 gives up"]);
                        }
                        while comm.state() != CommState::Aborted || part.state() != CommState::Aborted {
                            std::thread::sleep(Duration::from_millis(10));
                        }
                    });
                }
            });
            still_works(ranks);
        }
    });
}

/// A call on one waits for the thread that is inside another one, and says so.
#[test]
fn a_part_is_busy_with_the_whole() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            owners(ranks, |comm, stream| {
                let part = whole(&comm).unwrap();
                if comm.rank() == 1 {
                    while comm.is_active() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    return;
                }
                part.set_timeout(slower(0.5));
                std::thread::scope(|scope| {
                    // It meets rank 1 first.
                    let meets = scope.spawn(|| sum(&comm, stream));
                    std::thread::sleep(slower(1.0));
                    let stream = Stream::new(part.device()).unwrap();
                    let error = quick(slower(1.5), || sum(&part, &stream)).expect_err("the whole is in use");
                    assert_names(&error, &["or on one that shares its resources"]);
                    assert!(matches!(error, Error::Timeout { .. }) && part.is_active(), "{error:?}");
                    let _ = comm.aborter().abort("the test is over");
                    let _: Result<()> = meets.join().unwrap();
                });
            });
            still_works(ranks);
        }
    });
}

const CHILD: &str = "sharing::child";

/// What makes parts share in child processes.
const SHARES: (&str, &str) = ("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1");

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn(&Role)); 3] = [("ends", ends), ("abort", one_process_aborts), ("orders", opposite_orders)];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(&role);
        }
    }
}

/// A rank with what was split off from it, all of which work.
fn family(role: &Role) -> (Communicator, Communicator, Communicator, Stream) {
    let comm = role.join().expect("a communicator");
    let stream = Stream::new(comm.device()).unwrap();
    let part = whole(&comm).unwrap();
    let of_part = part.split(Some(role.rank / 2), role.rank).unwrap().expect("a part");
    for _ in 0..10 {
        [&comm, &part, &of_part].iter().for_each(|one| sum(one, &stream).unwrap());
    }
    (comm, part, of_part, stream)
}

/// Each process ends its communicators in another order.
fn ends(role: &Role) {
    let (comm, part, of_part, stream) = family(role);
    let mut all = [comm, part, of_part].map(Some);
    all.rotate_left(role.rank % 3);
    let last = all[2].take().unwrap();
    all.into_iter().flatten().for_each(|one| one.close_timeout(slower(10.0)).unwrap());
    drop(stream);
    if role.rank.is_multiple_of(2) { drop(last) } else { last.close_timeout(slower(10.0)).unwrap() }
}

/// Rank 1 aborts its part of a part, and goes. Others are told when they wait for it.
fn one_process_aborts(role: &Role) {
    let (comm, part, of_part, stream) = family(role);
    if role.rank == 1 {
        assert_eq!(of_part.abort("rank 1 gives up"), gpucomm::nccl::AbortOutcome::Done);
        let errors = [&comm, &part].map(|one| sum(one, &stream).expect_err("it shares"));
        errors.iter().for_each(|error| assert_names(error, &["rank 1 gives up", "which shares its resources"]));
        return;
    }
    comm.set_timeout(slower(2.0));
    let mut x = DeviceBuffer::<i32>::zeroed(&stream, 5).unwrap();
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
    let waited = stream.synchronize_timeout(slower(2.0));
    assert!(waited.is_err(), "rank 1 is gone");
    let outcome = quick(slower(9.0), || comm.abort("rank 1 does not come"));
    assert_eq!(outcome, gpucomm::nccl::AbortOutcome::Done);
    assert_eq!([part.state(), of_part.state()], [CommState::Aborted; 2]);
}

/// What ranks of several processes promise, and do not keep.
fn opposite_orders(role: &Role) {
    let (comm, part, _of_part, stream) = family(role);
    let mut x = DeviceBuffer::<i32>::zeroed(&stream, 5).unwrap();
    let order = if role.rank == 0 { [&comm, &part] } else { [&part, &comm] };
    for one in order {
        one.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
    }
    let _ = stream.synchronize_timeout(slower(2.0));
    let _ = comm.abort("the orders differ");
}

#[test]
fn processes_end_in_any_order() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            all_succeed(spawn_all(CHILD, "ends", ranks, &[SHARES]), slower(60.0));
        }
    });
}

#[test]
fn a_process_that_aborts_its_part() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            all_succeed(spawn_all(CHILD, "abort", ranks, &[SHARES]), slower(60.0));
        }
    });
}

/// The emulator sees what a GPU would answer with wrong data.
#[test]
fn processes_that_differ_in_their_order() {
    watched(60.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("on a GPU that is undefined behaviour");
        }
        for ranks in rank_counts(&[2]) {
            let children = spawn_all(CHILD, "orders", ranks, &[SHARES, ("GPUCOMM_EMULATOR_STRICT", "0")]);
            let ends: Vec<_> = children.into_iter().map(|child| child.finish(slower(40.0))).collect();
            let told = ends.iter().filter(|end| end.text.contains("share their resources in different orders")).count();
            assert!(told > 0, "{}", ends[0].text);
        }
    });
}
