//! Messages: one end of what goes from one rank to another.
//!
//! NCCL makes messages of AlltoAll, Gather and Scatter, too: their ranks do not meet, and each is through with them as soon as its own
//! messages are.

use crate::memory::object::Location;
use crate::nccl::basics::kind::Kind;
use crate::nccl::requests::operation::Operation;
use crate::nccl::state::comm::Comm;
use crate::nccl::wait::activity::Activity;

/// One end of a message, as part of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) operation: &'a Operation,
    /// Whether this is the end that sends.
    pub(super) sends: bool,
    pub(super) peer: usize,
    /// Which part of the operation's buffer.
    part: usize,
}

impl<'a> Message<'a> {
    /// Where it lies.
    pub(super) fn place(&self) -> Location {
        let whole = if self.sends { &self.operation.send } else { &self.operation.recv };
        Location { offset: whole.offset + (self.part * self.operation.bytes()) as u64, ..*whole }
    }

    /// What its rank does, in words.
    pub(super) fn deed(&self) -> Activity {
        let operation = self.operation;
        let kind = if self.sends { Kind::Send } else { Kind::Recv };
        let part_of = (operation.kind != kind).then_some(operation.kind);
        Activity { part_of, ..Activity::new(kind, operation.number, operation.count as u64, self.peer) }
    }
}

/// The messages of an operation, in the order in which NCCL makes them.
pub(super) fn of<'a>(comm: &Comm, operation: &'a Operation, mut visit: impl FnMut(Message<'a>)) {
    let (root, is_root) = (operation.peer, operation.peer == comm.rank);
    let mut message = |sends, peer, part| visit(Message { operation, sends, peer, part });
    match operation.kind {
        Kind::Send => message(true, root, 0),
        Kind::Recv => message(false, root, 0),
        Kind::AlltoAll => (0..comm.size).for_each(|peer| {
            message(true, peer, peer);
            message(false, peer, peer);
        }),
        Kind::Gather => {
            message(true, root, 0);
            (0..comm.size).filter(|_| is_root).for_each(|peer| message(false, peer, peer));
        }
        Kind::Scatter => {
            (0..comm.size).filter(|_| is_root).for_each(|peer| message(true, peer, peer));
            message(false, root, 0);
        }
        _ => {}
    }
}
