//! The ranks of a thread without the type of their elements, so that what only times them is compiled once.

use std::sync::Arc;

use gpucomm::nccl::Communicator;
use gpucomm::{ElementKind, Stream};

use super::buffers::Rank;
use super::check::{Found, each, examine, prepare};
use super::data::Data;
use super::enqueue::{Call, enqueue};
use super::number::Number;
use super::operation::{Operation, Shape};
use crate::failure::Result;

/// The ranks that one thread drives, and their buffers.
pub trait Ranks<'c> {
    /// The type of the elements.
    fn kind(&self) -> ElementKind;
    /// The communicator and the stream of each rank.
    fn each(&self) -> Vec<(&'c Communicator, Arc<Stream>)>;
    /// Works out what an operation of this shape exchanges.
    fn lay_out(&mut self, operation: Operation, shape: &Shape);
    /// Enqueues `call` on all ranks: see [`enqueue`].
    fn enqueue(&mut self, streams: &[&Stream], call: &Call, shift: usize) -> gpucomm::Result<()>;
    /// Poisons all buffers, and writes the input.
    fn prepare(&mut self, data: &Data, in_place: bool) -> Result<()>;
    /// Compares all buffers with what they must hold now.
    fn examine(&mut self, data: &Data, in_place: bool) -> Result<Found>;
}

impl<'c, T: Number> Ranks<'c> for Vec<Rank<'c, T>> {
    fn kind(&self) -> ElementKind {
        T::KIND
    }

    fn each(&self) -> Vec<(&'c Communicator, Arc<Stream>)> {
        self.iter().map(|rank| (rank.comm, Arc::clone(&rank.stream))).collect()
    }

    fn lay_out(&mut self, operation: Operation, shape: &Shape) {
        for rank in self {
            rank.lay_out(operation, shape);
        }
    }

    fn enqueue(&mut self, streams: &[&Stream], call: &Call, shift: usize) -> gpucomm::Result<()> {
        enqueue(self, streams, call, shift)
    }

    fn prepare(&mut self, data: &Data, in_place: bool) -> Result<()> {
        each(self, |rank| prepare(rank, data, in_place)).map(drop)
    }

    fn examine(&mut self, data: &Data, in_place: bool) -> Result<Found> {
        let mut found = Found::default();
        for part in each(self, |rank| examine(rank, data, in_place))? {
            found += part;
        }
        Ok(found)
    }
}
