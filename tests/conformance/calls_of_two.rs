//! Calls of two communicators, of which one ends beside them.

use std::time::Duration;

use gpucomm::nccl::InitOptions;
use gpucomm::{Clique, Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group};

use crate::support::{places, slower};

/// Groups of a sum over each communicator, by themselves or in a graph, until one of them fails.
fn until_it_fails(one: &Communicator, other: &Communicator, in_graph: bool) -> Result<()> {
    let stream = Stream::new(one.device())?;
    let mut x = DeviceBuffer::from_slice(&stream, &[1i64; 50])?;
    let mut y = DeviceBuffer::from_slice(&stream, &[1i64; 50])?;
    if in_graph {
        let graph = stream.capture(|stream| {
            one.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
            other.all_reduce(InPlace(&mut y), ReduceOp::Max, stream)
        })?;
        loop {
            graph.launch(&stream)?;
        }
    }
    loop {
        group(|g| {
            g.all_reduce(one, InPlace(&mut x), ReduceOp::Max, &stream)?;
            g.all_reduce(other, InPlace(&mut y), ReduceOp::Max, &stream)
        })?;
    }
}

/// Sums of one rank after another, which no other operation may take for its own.
fn sums(comm: &Communicator) -> Result<Vec<i64>> {
    let stream = Stream::new(comm.device())?;
    let one = |value: i64| {
        let mut x = DeviceBuffer::from_slice(&stream, &[1000 * value; 50])?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
        Ok(x.to_vec(&stream)?[7])
    };
    (1..=3).map(one).collect()
}

/// The other communicator then has the right sums, or says why it has none.
#[test]
fn a_communicator_that_ends_beside_a_call_of_two() {
    let devices = places();
    let options = InitOptions::new().with_timeout(slower(0.7));
    let seed = fastrand::u64(..);
    println!("beside: seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for round in 0..8 {
        let start = || Clique::init_all_with(&devices[..devices.len().min(3)], &options).unwrap();
        let (one, other) = (start(), start());
        let delay = Duration::from_micros(rng.u64(300..6000));
        std::thread::scope(|scope| {
            for (one, other) in one.ranks().iter().zip(other.ranks()) {
                scope.spawn(move || until_it_fails(one, other, round % 2 == 1).unwrap_err());
            }
            std::thread::sleep(delay);
            if round % 4 < 2 {
                let _ = one.rank(0).aborter().abort("a test");
            } else {
                let _ = one.revoke("a test");
            }
        });
        let size = i64::try_from(other.size()).unwrap();
        match other.spmd(sums) {
            Ok(all) => all.iter().for_each(|sums| assert_eq!(*sums, [1000 * size, 2000 * size, 3000 * size])),
            Err(error) => println!("round {round}: {error}"),
        }
    }
}
