//! A barrier.

use crate::error::Result;
use crate::nccl::Group;
use crate::world::answer::Answer;
use crate::world::at::At;
use crate::world::rank::Rank;
use crate::world::request::Request;
use crate::world::wide::WideAnswer;
use crate::world::world::World;

#[derive(Debug)]
struct Barrier;

/// Returns a [barrier](crate::Communicator::barrier_on_stream) as a request. It is answered when all ranks have come to it.
pub fn barrier() -> impl Request<Back = ()> {
    Barrier
}

impl Rank {
    /// Submits a barrier, which is answered when all ranks have come to it.
    pub fn barrier(&self) -> Answer<()> {
        self.submit(Barrier)
    }
}

impl World {
    /// [`Rank::barrier`] of all ranks.
    pub fn barrier(&self) -> WideAnswer<()> {
        self.submit(self.ranks().iter().map(|_| Barrier))
    }
}

impl Request for Barrier {
    type Back = ();

    fn operation(&self) -> &'static str {
        "barrier"
    }

    fn record<'a>(&'a mut self, at: &At<'a>, group: &mut Group<'a>) -> Result<()> {
        group.barrier_on_stream(at.communicator(), at.stream())
    }

    fn into_back(self) {}
}
