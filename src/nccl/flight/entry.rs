//! One line of the recorder: an operation that a rank has issued, or a point that it has come to.

use super::json::Object;
use crate::nccl::rank::issued::Point;
use crate::nccl::rank::recent::Record;
use crate::nccl::validate::operation;
use crate::nccl::validate::pair::End;

/// How far an operation is, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The rank waits for the others, or for memory, before NCCL is given it.
    Waits,
    /// A thread is inside NCCL with it.
    Inside,
    /// It is on its stream; nobody has seen that it is done.
    Issued,
    /// Somebody has seen that it is done, and well.
    Done,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Its number among the operations of the communicator; none for a point.
    number: Option<u64>,
    /// Its number among the collectives, or the messages from the one rank to the other; none where ranks do not come to it together.
    sequence: Option<u64>,
    peer: Option<(End, usize)>,
    head: u64,
    count: u64,
    operation: &'static str,
    when: u64,
    stream: Option<u64>,
    stage: Stage,
}

impl Entry {
    pub(crate) fn of(record: &Record, sequence: Option<u64>, stage: Stage) -> Self {
        let Record { number, head, count, operation, when, stream, .. } = *record;
        Self {
            number: Some(number),
            sequence,
            peer: peer(head),
            head,
            count,
            operation,
            when,
            stream: Some(stream),
            stage,
        }
    }

    pub(crate) fn point(point: &Point, stage: Stage) -> Self {
        let Point { sequence, head, count, operation, when } = *point;
        Self { number: None, sequence: Some(sequence), peer: None, head, count, operation, when, stream: None, stage }
    }

    pub(super) fn write(&self, object: &mut Object<'_>) {
        object.number_if("number", self.number);
        object.number_if("sequence", self.sequence);
        object.text("operation", if self.operation.is_empty() { operation::name(self.head) } else { self.operation });
        object.text("kind", operation::name(self.head));
        object.number_if("peer", self.peer.map(|(_, peer)| peer as u64));
        object.number_if("root", operation::root(self.head).map(|root| root as u64));
        object.text_if("reduction", operation::reduction(self.head));
        object.number("count", self.count);
        object.text("element", operation::element(self.head));
        object.text("what", operation::describe(self.head, self.count));
        object.number_if("stream", self.stream);
        object.number("time_ns", self.when);
        let stage = match self.stage {
            Stage::Waits => "waits",
            Stage::Inside => "inside",
            Stage::Issued => "issued",
            Stage::Done => "done",
        };
        object.text("state", stage);
    }
}

/// The other rank of a message.
fn peer(head: u64) -> Option<(End, usize)> {
    operation::peer(head).map(|(receives, peer)| (if receives { End::Receiver } else { End::Sender }, peer))
}
