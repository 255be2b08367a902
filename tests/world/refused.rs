//! What is wrong is refused before anything is submitted, and the buffers come back.

use std::time::Duration;

use gpucomm::nccl::InitOptions;
use gpucomm::world::{Lane, Members, Part, Reason, World, WorldOptions, requests};
use gpucomm::{Clique, Device, Error, InPlace, ReduceOp};

use super::several::exchanges;
use super::support::{assert_argument, on, slower, values, world, zeroed};

#[test]
fn lengths_roots_and_parts() {
    let world = world(2, WorldOptions::default());
    let size = world.size();
    let rank = world.rank(0).unwrap();
    let device = rank.device();
    let failed = rank.all_reduce((on(device, &[1u8; 3]), zeroed::<u8>(device, 2)), ReduceOp::Sum).wait().unwrap_err();
    assert_eq!(failed.reason, Reason::Refused);
    assert!(matches!(&failed.error, Error::InvalidArgument { operation: "all_reduce", .. }), "{failed}");
    let (send, recv) = failed.buffers.unwrap();
    assert_eq!((values(&send), recv.len()), (vec![1; 3], 2));
    let failed = rank.broadcast(InPlace(send), size).wait().unwrap_err();
    assert!(matches!(&failed.error, Error::InvalidArgument { operation: "broadcast", .. }), "{failed}");
    let send = failed.buffers.unwrap();
    // Too few counts, and parts that overlap, and a part beyond the end.
    let recv = zeroed::<u8>(device, 4);
    let failed = rank.all_to_all_v((send, recv), vec![1; size + 1], vec![1; size]).wait().unwrap_err();
    let (send, recv) = failed.buffers.unwrap();
    let overlapping = (vec![2; size], (0..size).collect::<Vec<_>>());
    let failed = rank.all_to_all_v((send, recv), vec![1; size], overlapping).wait();
    let failed = failed.unwrap_err();
    if size > 1 {
        assert!(failed.error.to_string().contains("do not overlap"), "{failed}");
    }
    let (send, recv) = failed.buffers.unwrap();
    let failed = rank.all_to_all_v((send, recv), vec![9; size], vec![1; size]).wait().unwrap_err();
    assert!(matches!(failed.error, Error::InvalidArgument { operation: "all_to_all_v", .. }), "{failed}");
    if size > 1 {
        let failed = rank.all_reduce(InPlace(on(world.devices()[1], &[1u8])), ReduceOp::Sum).wait().unwrap_err();
        assert!(failed.error.to_string().contains("of rank 0"), "{failed}");
    }
    // Nothing of that has come to the others.
    world.barrier().wait().unwrap();
    assert_eq!(world.metrics().enqueued, world.size() as u64);
}

#[test]
fn reductions_that_nccl_does_not_have() {
    let world = world(2, WorldOptions::default());
    let (size, rank) = (world.size(), world.rank(0).unwrap());
    for op in [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor] {
        let x = || InPlace(on(rank.device(), &vec![1u32; size]));
        let everywhere = world.devices().into_iter().map(|device| InPlace(on(device, &[1u32])));
        for (operation, refused) in [
            ("all_reduce", rank.all_reduce(x(), op).wait().map(drop).map_err(Error::from)),
            ("reduce", rank.reduce(x(), op, 0).wait().map(drop).map_err(Error::from)),
            ("reduce_scatter", rank.reduce_scatter(x(), op).wait().map(drop).map_err(Error::from)),
            ("reduce_scatter_v", rank.reduce_scatter_v(x(), vec![1; size], op).wait().map(drop).map_err(Error::from)),
            ("all_reduce", world.all_reduce(everywhere, op).wait().map(drop).map_err(Error::from)),
        ] {
            let has = "Sum, Prod, Min, Max or Avg, which NCCL has";
            assert_argument(refused, operation, has, &format!("{op:?}"));
        }
    }
    assert_eq!(world.metrics().enqueued, 0);
    world.barrier().wait().unwrap();
}

#[test]
fn all_ranks_or_none() {
    let world = world(2, WorldOptions::default());
    let devices = world.devices();
    let mut forms: Vec<_> = devices.iter().map(|device| (on(*device, &[1u8; 3]), zeroed::<u8>(*device, 3))).collect();
    forms.last_mut().unwrap().1 = zeroed::<u8>(devices[devices.len() - 1], 1);
    let failed = world.all_reduce(forms, ReduceOp::Sum).wait().unwrap_err();
    assert_eq!((failed.reason, failed.buffers.unwrap().iter().flatten().count()), (Reason::Refused, devices.len()));
    let failed = world.all_reduce(Vec::<InPlace<gpucomm::DeviceBuffer<u8>>>::new(), ReduceOp::Sum).wait().unwrap_err();
    assert!(failed.error.to_string().contains("one for each rank"), "{failed}");
    assert_eq!(world.metrics().enqueued, 0);
    world.barrier().wait().unwrap();
}

#[test]
fn ranks_and_lanes_that_there_are_not() {
    let world = world(2, WorldOptions::new().with_sequenced(true));
    assert!(world.rank(9).unwrap_err().to_string().contains("got 9"));
    let rank = world.rank(0).unwrap().with_lane(&Lane::of("others", [1]).unwrap());
    let failed = rank.submit(requests::barrier()).wait().unwrap_err();
    assert_eq!(failed.reason, Reason::Refused);
    assert!(failed.error.to_string().contains("a lane in which rank 0 takes part"), "{failed}");
    let rank = world.rank(0).unwrap().with_lane(&Lane::of("beyond", [0, 2]).unwrap());
    let failed = rank.submit(requests::barrier()).wait().unwrap_err();
    assert_eq!(failed.reason, Reason::Refused);
    assert!(failed.error.to_string().contains("ranks below 2, got one with rank 2"), "{failed}");
}

/// Ranks that come to two lanes in different orders would take requests of one for those of the other.
#[test]
fn a_lane_in_a_world_that_is_not_sequenced() {
    let world = world(2, WorldOptions::new());
    for rank in world.ranks() {
        let failed = rank.with_lane(&Lane::new("a")).submit(requests::barrier()).wait().unwrap_err();
        assert_eq!(failed.reason, Reason::Refused);
        assert!(failed.error.to_string().contains("with_sequenced(true), got \"a\" in a world without"), "{failed}");
    }
    world.barrier().wait().unwrap();
}

#[test]
fn parts_that_there_are_not() {
    let device = world(1, WorldOptions::default()).devices()[0];
    #[allow(clippy::reversed_empty_ranges, reason = "it is to be refused")]
    for range in [6..20, 100..200, 5..2, 9..9] {
        let error = Part::new(zeroed::<u32>(device, 8), range.clone()).unwrap_err().to_string();
        for part in ["Part::new", "range", "0..8", &format!("{range:?}")] {
            assert!(error.contains(part), "{error}");
        }
    }
    for range in [0..8, 0..0, 8..8, 3..4] {
        assert_eq!(Part::new(zeroed::<u32>(device, 8), range.clone()).unwrap().range(), range);
    }
}

#[test]
fn a_lane_whose_name_is_too_long() {
    let world = world(1, WorldOptions::new().with_sequenced(true));
    let rank = world.rank(0).unwrap().with_lane(&Lane::new("x".repeat(40_000)));
    let failed = rank.submit(requests::barrier()).wait().unwrap_err();
    assert_eq!(failed.reason, Reason::Refused);
    assert!(failed.error.to_string().contains("40001 bytes"), "{failed}");
}

#[test]
fn ranks_of_another_world_and_of_an_earlier_generation() {
    let options = WorldOptions::new().with_timeout(slower(20.0));
    let (one, other) = (world(2, options.clone()), world(2, options));
    let mut mixed = one.ranks();
    let last = mixed.len() - 1;
    mixed[last] = other.rank(last).unwrap();
    for ranks in [&mixed, &other.ranks()] {
        let failed = one.submit_through(ranks, ranks.iter().map(|_| requests::barrier())).wait().unwrap_err();
        assert_eq!((failed.reason, failed.buffers.unwrap().len()), (Reason::Refused, ranks.len()));
        let error = failed.error.to_string();
        assert!(error.contains("barrier") && error.contains("of another world \"world\" at index"), "{error}");
    }
    let stale = one.ranks();
    one.fail("a test");
    one.rebuild(Members::Same).unwrap();
    let failed = one.submit_through(&stale, stale.iter().map(|_| requests::barrier())).wait().unwrap_err();
    assert_eq!(failed.reason, Reason::Stale, "{failed}");
    for world in [one, other] {
        world.barrier().wait().unwrap();
        assert_eq!(world.metrics().enqueued, world.size() as u64);
    }
}

/// One rank gets both, and the other rank nothing: what waits for it is late, and the world can be rebuilt.
#[test]
fn a_rank_that_is_named_twice() {
    let world = world(2, WorldOptions::default());
    if world.size() < 2 {
        return;
    }
    let rank = world.rank(0).unwrap().with_timeout(Duration::from_millis(100));
    let twice = world.submit_through(&[rank.clone(), rank], [requests::barrier(), requests::barrier()]);
    let failed = twice.wait_timeout(slower(20.0)).expect("an answer").unwrap_err();
    assert_eq!(failed.reason, Reason::Late, "{failed}");
    world.rebuild(Members::Same).unwrap();
    world.barrier().wait().unwrap();
}

/// Ranks that do not ask for the same are told so by name, and the world is down.
#[test]
fn what_does_not_agree() {
    let world = world(2, WorldOptions::default());
    if world.size() < 2 {
        return;
    }
    let ranks = world.ranks();
    let answers: Vec<_> = ranks
        .iter()
        .map(|rank| {
            let x = InPlace(on(rank.device(), &[1u32; 4]));
            if rank.rank() == 0 { rank.all_reduce(x, ReduceOp::Sum) } else { rank.all_reduce(x, ReduceOp::Max) }
        })
        .collect();
    for answer in answers {
        let failed = answer.wait().unwrap_err();
        assert!(matches!(failed.error, Error::Disagreement { .. }), "{failed}");
        assert!(failed.buffers.is_some());
    }
}

/// No world is made of a queue without room, and the other ranks do not wait for it.
#[test]
fn a_queue_without_room() {
    let options = |queue: usize| {
        let init = InitOptions::new().with_timeout(slower(20.0));
        WorldOptions::new().with_queue(queue).with_init(init)
    };
    let is_refused = |made: gpucomm::Result<World>| {
        let error = made.unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument { what: "WorldOptions::with_queue", .. }), "{error}");
    };
    drop(world(1, options(1)));
    let devices = [Device::new(0).unwrap()];
    is_refused(World::new_with(&devices, &options(0)));
    is_refused(World::of_clique(Clique::init_all(&devices).unwrap(), &options(0)));
    exchanges(|rank, exchange| {
        // SAFETY: both ranks do the same.
        let join = |queue| unsafe { World::join(exchange.clone(), Device::new(rank).unwrap(), &options(queue)) };
        match rank {
            0 => is_refused(join(0)),
            _ => {
                let error = join(1).unwrap_err();
                assert!(error.to_string().contains("WorldOptions::with_queue"), "{error}");
            }
        }
        join(1).unwrap().barrier().wait().unwrap();
        exchange.barrier().unwrap();
    });
}
