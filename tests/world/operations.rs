//! Every request, with every completion.

use std::sync::Arc;

use gpucomm::world::{
    Part, PreMul, Rank, World, WorldOptions,
    completion::{Blocking, Completion, HostCallback, Polling},
    requests,
};
use gpucomm::{DeviceBuffer, InPlace, RecvOnly, ReduceOp, SendOnly};

use super::block_on::block_on;
use super::support::{on, values, world, zeroed};

fn with(completion: Arc<dyn Completion>) -> World {
    world(3, WorldOptions::new().with_completion(completion))
}

#[test]
fn polling() {
    all(&with(Arc::new(Polling::default())));
}

#[test]
fn host_callback() {
    all(&with(Arc::new(HostCallback)));
}

#[test]
fn blocking() {
    all(&with(Arc::new(Blocking)));
}

/// What rank `rank` has, of so many elements.
fn own(rank: usize, len: usize) -> Vec<u32> {
    (0..len).map(|at| u32::try_from(100 * rank + at).unwrap()).collect()
}

fn sums(size: usize, len: usize) -> Vec<u32> {
    let all: Vec<_> = (0..size).map(|rank| own(rank, len)).collect();
    (0..len).map(|at| all.iter().map(|one| one[at]).sum()).collect()
}

/// Each rank asks for something, and gets something back.
fn each<B>(world: &World, make: impl Fn(&Rank) -> gpucomm::world::Answer<B>) -> Vec<B> {
    let answers: Vec<_> = world.ranks().iter().map(make).collect();
    // Half of them as futures.
    let of =
        |(at, answer): (usize, gpucomm::world::Answer<B>)| if at % 2 == 0 { answer.wait() } else { block_on(answer) };
    answers.into_iter().enumerate().map(of).map(|back| back.unwrap()).collect()
}

fn all(world: &World) {
    for len in [0, 1, 5, 1000] {
        reductions(world, len);
        movements(world, len);
        variable(world, len);
    }
    messages(world);
    in_order(world);
    let metrics = world.metrics();
    assert_eq!((metrics.failed, metrics.cancelled, metrics.pending), (0, 0, 0));
}

fn reductions(world: &World, len: usize) {
    let size = world.size();
    for x in each(world, |rank| rank.all_reduce(InPlace(on(rank.device(), &own(rank.rank(), len))), ReduceOp::Sum)) {
        assert_eq!(values(&x), sums(size, len));
    }
    let out = |rank: &Rank| {
        let (send, recv) = (on(rank.device(), &own(rank.rank(), len)), zeroed::<u32>(rank.device(), len));
        rank.all_reduce((send, recv), ReduceOp::Max)
    };
    for (send, recv) in each(world, out) {
        assert_eq!((send.len(), values(&recv)), (len, own(size - 1, len)));
    }
    let root = size - 1;
    let reduce = |rank: &Rank| rank.reduce(InPlace(on(rank.device(), &own(rank.rank(), len))), ReduceOp::Sum, root);
    assert_eq!(values(&each(world, reduce)[root]), sums(size, len));
    let scatter = |rank: &Rank| {
        let send = on(rank.device(), &own(rank.rank(), len * size));
        rank.reduce_scatter((send, zeroed::<u32>(rank.device(), len)), ReduceOp::Sum)
    };
    for (rank, (_, recv)) in each(world, scatter).into_iter().enumerate() {
        assert_eq!(values(&recv), sums(size, len * size)[rank * len..(rank + 1) * len]);
    }
    let weighted = |rank: &Rank| {
        let x = on(rank.device(), &vec![4f32; len]);
        rank.all_reduce(InPlace(x), PreMul(0.5))
    };
    for x in each(world, weighted) {
        assert_eq!(values(&x), vec![2.0 * size as f32; len]);
    }
}

fn movements(world: &World, len: usize) {
    let size = world.size();
    let everything: Vec<u32> = (0..size).flat_map(|rank| own(rank, len)).collect();
    for x in each(world, |rank| rank.broadcast(InPlace(on(rank.device(), &own(rank.rank(), len))), 1 % size)) {
        assert_eq!(values(&x), own(1 % size, len));
    }
    let gather = |rank: &Rank| {
        rank.all_gather((on(rank.device(), &own(rank.rank(), len)), zeroed::<u32>(rank.device(), len * size)))
    };
    for (_, recv) in each(world, gather) {
        assert_eq!(values(&recv), everything);
    }
    let exchange = |rank: &Rank| {
        let send = on(rank.device(), &own(rank.rank(), len * size));
        rank.all_to_all((send, zeroed::<u32>(rank.device(), len * size)))
    };
    for (rank, (_, recv)) in each(world, exchange).into_iter().enumerate() {
        let want: Vec<_> =
            (0..size).flat_map(|from| own(from, len * size)[rank * len..(rank + 1) * len].to_vec()).collect();
        assert_eq!(values(&recv), want);
    }
    // Rooted, by all ranks at once.
    let forms = world.ranks().into_iter().map(|rank| {
        let all = (rank.rank() == 0).then(|| zeroed::<u32>(rank.device(), len * size));
        (on(rank.device(), &own(rank.rank(), len)), all)
    });
    let back = world.gather(forms, 0).wait().unwrap();
    assert_eq!(values(back[0].1.as_ref().unwrap()), everything);
    let forms = world.ranks().into_iter().map(|rank| {
        let all = (rank.rank() == 0).then(|| on(rank.device(), &everything));
        (all, zeroed::<u32>(rank.device(), len))
    });
    for (rank, (_, part)) in world.scatter(forms, 0).wait().unwrap().into_iter().enumerate() {
        assert_eq!(values(&part), own(rank, len));
    }
    world.barrier().wait().unwrap();
}

fn variable(world: &World, len: usize) {
    let size = world.size();
    let counts: Vec<usize> = (0..size).map(|rank| len + rank).collect();
    let total = counts.iter().sum();
    let everything: Vec<u32> = (0..size).flat_map(|rank| own(rank, counts[rank])).collect();
    let device = |rank: usize| world.devices()[rank];
    let gather = |rank: &Rank| {
        let send = on(rank.device(), &own(rank.rank(), counts[rank.rank()]));
        rank.all_gather_v((send, zeroed::<u32>(rank.device(), total)), counts.clone())
    };
    for (_, recv) in each(world, gather) {
        assert_eq!(values(&recv), everything);
    }
    let forms = (0..size).map(|rank| (on(device(rank), &own(rank, total)), zeroed::<u32>(device(rank), counts[rank])));
    for (rank, (_, recv)) in
        world.reduce_scatter_v(forms, counts.clone(), ReduceOp::Sum).wait().unwrap().into_iter().enumerate()
    {
        let at: usize = counts[..rank].iter().sum();
        assert_eq!(values(&recv), sums(size, total)[at..at + counts[rank]]);
    }
    // Everybody sends as many to rank r as rank r is long.
    let exchange = (0..size).map(|rank| {
        let form = (on(device(rank), &own(rank, total)), zeroed::<u32>(device(rank), size * counts[rank]));
        (form, counts.clone(), vec![counts[rank]; size])
    });
    for (rank, (_, recv)) in world.all_to_all_v(exchange).wait().unwrap().into_iter().enumerate() {
        let at: usize = counts[..rank].iter().sum();
        let want: Vec<_> = (0..size).flat_map(|from| own(from, total)[at..at + counts[rank]].to_vec()).collect();
        assert_eq!(values(&recv), want);
    }
    let forms = (0..size).map(|rank| {
        (on(device(rank), &own(rank, counts[rank])), (rank == 1 % size).then(|| zeroed::<u32>(device(rank), total)))
    });
    let back = world.gather_v(forms, counts.clone(), 1 % size).wait().unwrap();
    assert_eq!(values(back[1 % size].1.as_ref().unwrap()), everything);
    let forms = (0..size)
        .map(|rank| ((rank == 0).then(|| on(device(0), &everything)), zeroed::<u32>(device(rank), counts[rank])));
    for (rank, (_, recv)) in world.scatter_v(forms, counts.clone(), 0).wait().unwrap().into_iter().enumerate() {
        assert_eq!(values(&recv), own(rank, counts[rank]));
    }
}

fn messages(world: &World) {
    let size = world.size();
    if size < 2 {
        return;
    }
    let (first, last) = (world.rank(0).unwrap(), world.rank(size - 1).unwrap());
    let whole = on(first.device(), &own(7, 10));
    let sent = first.submit(requests::send(Part::new(whole, 2..5).unwrap(), size - 1));
    let received = last.submit(requests::recv(zeroed::<u32>(last.device(), 3), 0));
    assert_eq!(sent.wait().unwrap().into_whole().len(), 10);
    assert_eq!(values(&received.wait().unwrap()), own(7, 10)[2..5]);
    // Rooted, each rank by itself.
    let at_root = first.gather((on(first.device(), &[0u8]), zeroed::<u8>(first.device(), size)), 0);
    let others: Vec<_> =
        world.ranks()[1..].iter().map(|rank| rank.gather(SendOnly(on(rank.device(), &[1u8])), 0)).collect();
    let (_, all) = at_root.wait().unwrap();
    assert_eq!(values(&all)[1..], vec![1; size - 1]);
    others.into_iter().for_each(|answer| drop(answer.wait().unwrap()));
    let at_root = first.broadcast(InPlace(on(first.device(), &[9u8])), 0);
    let others: Vec<_> =
        world.ranks()[1..].iter().map(|rank| rank.broadcast(RecvOnly(zeroed::<u8>(rank.device(), 1)), 0)).collect();
    at_root.wait().unwrap();
    others.into_iter().for_each(|answer| assert_eq!(values(&answer.wait().unwrap()), [9]));
}

/// The answer comes when it is enqueued; what uses the buffers comes after it on the device.
fn in_order(world: &World) {
    let size = u32::try_from(world.size()).unwrap();
    let submit = |rank: &Rank| {
        rank.submit_in_order(requests::all_reduce(InPlace(on(rank.device(), &[1u32; 100])), ReduceOp::Sum))
    };
    for enqueued in each(world, submit) {
        let x: DeviceBuffer<u32> = enqueued.buffers;
        assert_eq!(values(&x), [size; 100]);
        enqueued.event.unwrap().synchronize().unwrap();
    }
    each(world, |rank| rank.submit(requests::barrier()));
}
