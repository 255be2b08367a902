//! Where a request is enqueued.

use std::sync::Arc;

use crate::cuda::{Device, Stream};
use crate::error::Result;
use crate::nccl::{Communicator, Group, rehearse, together};

/// Where a request is enqueued: the communicator of the rank and its stream; see [`Request`](super::requests::Request).
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    communicator: &'a Arc<Communicator>,
    stream: &'a Stream,
    generation: u64,
    rehearsal: bool,
}

impl<'a> At<'a> {
    pub(super) fn new(communicator: &'a Arc<Communicator>, stream: &'a Stream, generation: u64) -> Self {
        Self { communicator, stream, generation, rehearsal: false }
    }

    /// The communicator of the rank.
    pub fn communicator(&self) -> &'a Communicator {
        self.communicator
    }

    /// The same, for what keeps it alive, such as [`CommBuffer::into_shared`](crate::CommBuffer::into_shared).
    pub fn shared(&self) -> &'a Arc<Communicator> {
        self.communicator
    }

    /// The stream of the rank, on which its requests are done in order.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// The rank.
    pub fn rank(&self) -> usize {
        self.communicator.rank()
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.communicator.size()
    }

    /// The device of the rank.
    pub fn device(&self) -> Device {
        self.communicator.device()
    }

    /// The generation of the world.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether what is recorded is checked, and thrown away then.
    pub fn is_rehearsal(&self) -> bool {
        self.rehearsal
    }

    /// Makes what `record` records: one operation as it is, several as a group.
    ///
    /// # Errors
    /// As [`group`](crate::group).
    pub fn together<'g>(
        &self,
        operation: &'static str,
        record: impl FnOnce(&mut Group<'g>) -> Result<()>,
    ) -> Result<()> {
        together(operation, record)
    }

    /// Whether what `record` records could be made, as far as this rank can tell: it is thrown away.
    ///
    /// # Errors
    /// What `record` returns.
    pub fn rehearse<'g>(
        &self,
        operation: &'static str,
        record: impl FnOnce(&At<'g>, &mut Group<'g>) -> Result<()>,
    ) -> Result<()>
    where
        'a: 'g,
    {
        let at: At<'g> = Self { rehearsal: true, ..*self };
        rehearse(operation, |group| record(&at, group))
    }
}
