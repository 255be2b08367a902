//! Groups as one request, and requests of users in them.

use gpucomm::world::{
    Rank, Reason, WorldOptions,
    requests::{self, At, Request},
};
use gpucomm::{Device, InPlace, ReduceOp, Result};

use super::support::{on, values, world, zeroed};

#[test]
fn a_ring_in_one_request() {
    let world = world(3, WorldOptions::default());
    let size = world.size();
    let answers: Vec<_> = world
        .ranks()
        .into_iter()
        .map(|rank| {
            let (next, before) = ((rank.rank() + 1) % size, (rank.rank() + size - 1) % size);
            let sum = requests::all_reduce(InPlace(on(rank.device(), &[1u32])), ReduceOp::Sum);
            let send = requests::send(on(rank.device(), &[u8::try_from(rank.rank()).unwrap()]), next);
            rank.submit((send, requests::recv(zeroed::<u8>(rank.device(), 1), before), sum))
        })
        .collect();
    for (rank, answer) in answers.into_iter().enumerate() {
        let (sent, received, sum) = answer.wait().unwrap();
        assert_eq!((sent.len(), values(&received)), (1, vec![u8::try_from((rank + size - 1) % size).unwrap()]));
        assert_eq!(values(&sum), [u32::try_from(size).unwrap()]);
    }
}

#[test]
fn a_list_of_requests() {
    let world = world(2, WorldOptions::default());
    let make = |rank: Rank| -> Vec<_> {
        (1..4u32).map(|value| requests::all_reduce(InPlace(on(rank.device(), &[value; 3])), ReduceOp::Prod)).collect()
    };
    let back = world.submit(world.ranks().into_iter().map(make)).wait().unwrap();
    let size = u32::try_from(world.size()).unwrap();
    for list in back {
        assert_eq!(
            list.iter().map(values).collect::<Vec<_>>(),
            (1..4u32).map(|value| vec![value.pow(size); 3]).collect::<Vec<_>>()
        );
    }
}

/// One that records nothing.
struct Mine(Option<Device>);

impl Request for Mine {
    type Back = &'static str;

    fn operation(&self) -> &'static str {
        "mine"
    }

    fn device(&self) -> Option<Device> {
        self.0
    }

    fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
        assert_eq!((at.device(), at.stream().device()), (at.communicator().device(), at.device()));
        assert!(at.rank() < at.size() && at.generation() == 1 && !at.is_rehearsal());
        Ok(())
    }

    fn into_back(self) -> &'static str {
        "back"
    }
}

#[test]
fn requests_of_users() {
    let world = world(2, WorldOptions::default());
    let rank = world.rank(0).unwrap();
    assert_eq!(rank.submit(Mine(None)).wait().unwrap(), "back");
    assert_eq!(rank.submit(Mine(Some(rank.device()))).wait().unwrap(), "back");
    let failed = rank.submit((Mine(None), Mine(None))).wait().unwrap_err();
    assert!(failed.error.to_string().contains("mine: it cannot be part of a group"), "{failed}");
    if let Some(other) = world.devices().get(1) {
        let failed = rank.submit(Mine(Some(*other))).wait().unwrap_err();
        assert_eq!((failed.reason, failed.buffers), (Reason::Refused, Some("back")));
        assert!(failed.error.to_string().contains("mine: device: expected"), "{}", failed.error);
    }
}

/// One that panics.
struct Panics;

impl Request for Panics {
    type Back = ();

    fn operation(&self) -> &'static str {
        "panics"
    }

    fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
        panic!("a test")
    }

    fn into_back(self) {}
}

#[test]
fn a_panic_is_an_answer() {
    let world = world(1, WorldOptions::default());
    let failed = world.rank(0).unwrap().submit(Panics).wait().unwrap_err();
    assert!(failed.error.to_string().contains("it has panicked"), "{failed}");
    world.barrier().wait().unwrap();
}
