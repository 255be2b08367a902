//! A barrier.

use crate::error::Result;
use crate::nccl::Group;
use crate::world::at::At;
use crate::world::request::Request;

/// [`barrier`](crate::Communicator::barrier) as a request: it is answered when all ranks have come to it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Barrier;

impl Request for Barrier {
    type Back = ();

    fn operation(&self) -> &'static str {
        "barrier"
    }

    fn record<'a>(&'a mut self, at: &At<'a>, group: &mut Group<'a>) -> Result<()> {
        group.barrier(at.communicator(), at.stream())
    }

    fn into_back(self) {}
}
