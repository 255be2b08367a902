//! What the ranks do.

use std::time::Duration;

use gpucomm::exchange::{Exchange, PmixPlace};
use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, Device, DeviceBuffer, InPlace, ReduceOp, Stream};

use crate::slower::slower;

/// In the environment of ranks: what they do.
pub const ROLE: &str = "GPUCOMM_TEST_ROLE";

/// How long a rank waits, which no test does.
pub const PATIENCE: f64 = 100.0;

/// Started by a launcher only.
#[test]
#[ignore = "started by the others"]
fn rank() {
    match std::env::var(ROLE).expect("a role").as_str() {
        "meet" => meet(),
        "dies before it has met" => dies_before_it_has_met(2),
        "rank 0 dies before it has met" => dies_before_it_has_met(0),
        "rank 0 never comes" => rank_0_never_comes(),
        "the server dies" => the_server_dies(),
        "dies after all have met" => dies_after_all_have_met(),
        "waits a second" => {
            println!("says: {}", PmixPlace::new_timeout(Duration::from_secs(1)).expect_err("nobody answers"))
        }
        role => panic!("no role {role}"),
    }
}

fn place() -> PmixPlace {
    PmixPlace::new_timeout(slower(PATIENCE)).expect("rank 0 is somewhere")
}

/// Ends as in a crash.
fn die() -> ! {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("it is allowed");
    unreachable!("no process outlives that");
}

/// All meet, and sum up; and PMIx is not begun again.
fn meet() {
    let place = place();
    let (rank, size) = (place.rank(), place.size());
    assert_eq!((place.local_rank(), place.local_size()), (rank, size), "all are on one node");
    let device = Device::new(place.local_rank()).expect("a device for each");
    let exchange = place.join().expect("all come");
    assert_eq!((exchange.rank(), exchange.size(), exchange.timeout()), (rank, size, slower(PATIENCE)));
    assert_eq!(sum_of(device, &exchange), vec![(0..size as u64).sum::<u64>(); 100]);
    let again = PmixPlace::new().expect_err("it is done once");
    assert!(again.to_string().contains("it does so once"), "{again}");
    println!("rank {rank} of {size} has the sum");
}

fn sum_of(device: Device, exchange: &Exchange) -> Vec<u64> {
    // SAFETY: all ranks do the same.
    let comm = unsafe { Communicator::init_rank_over(device, exchange, &InitOptions::default()) }.expect("all come");
    let stream = Stream::new(device).expect("a stream");
    let mut sum = DeviceBuffer::from_slice(&stream, &[exchange.rank() as u64; 100]).expect("memory");
    comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, &stream).expect("all come");
    let sum = sum.to_vec(&stream).expect("all have come");
    comm.close_timeout(slower(30.0)).expect("all come");
    sum
}

fn dies_before_it_has_met(which: usize) {
    // Where it is quick, others are told before they know where they are.
    let rank: usize = std::env::var("PMIX_RANK").expect("a server").parse().expect("a rank");
    let error = match PmixPlace::new_timeout(slower(PATIENCE)) {
        Ok(place) if place.rank() == which => die(),
        Ok(place) => place.join().expect_err("one never comes"),
        Err(error) => error,
    };
    println!("rank {rank} says: {error:?}");
}

fn rank_0_never_comes() {
    let rank = std::env::var("PMIX_RANK").expect("a rank");
    if rank == "0" {
        die();
    }
    println!("rank {rank} says: {:?}", PmixPlace::new_timeout(slower(PATIENCE)).expect_err("rank 0 never comes"));
}

/// Some may not even have a place then.
fn the_server_dies() {
    let rank = std::env::var("PMIX_RANK").expect("a rank");
    if rank == "2" {
        place();
        let server = rustix::process::getppid().expect("a server");
        rustix::process::kill_process(server, rustix::process::Signal::KILL).expect("it is there");
        return;
    }
    let joined = PmixPlace::new_timeout(slower(PATIENCE)).and_then(PmixPlace::join);
    println!("rank {rank} says: {:?}", joined.expect_err("one never comes"));
}

/// The others hear of it when they wait for it, and go on without it.
fn dies_after_all_have_met() {
    let exchange = place().join().expect("all come");
    let rank = exchange.rank();
    if rank == 1 {
        die();
    }
    println!("rank {rank} says: {:?}", exchange.barrier().expect_err("one never comes"));
    let left = exchange.survivors().expect("the others are there");
    assert_eq!(left.store_ranks(), [0, 2, 3]);
    left.barrier().expect("the others come");
    println!("rank {rank} goes on");
}
