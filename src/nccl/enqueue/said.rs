//! What ranks say of calls when they compare them, in a clique and across processes.

use crate::element::ElementKind;
use crate::nccl::agree::numbers::Numbers;
use crate::nccl::agree::pair::{End, Manner, Message, Word};
use crate::nccl::agree::past::Past;
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;

#[inline]
pub(super) fn is_collective_of(call: &Call<'_>, inner: &Inner) -> bool {
    call.comm.id == inner.id && call.kind.message().is_none()
}

/// The collectives of one communicator.
pub(crate) fn collectives<'c, 'a: 'c>(calls: &'c [Call<'a>], inner: &'c Inner) -> impl Iterator<Item = &'c Call<'a>> {
    calls.iter().filter(|call| is_collective_of(call, inner))
}

/// What the ends of a message compare, of this one, whose rank has this past.
#[inline]
pub(super) fn message_of(call: &Call<'_>, past: &Past, end: End, peer: usize) -> Message {
    let (window, exchanges) = (call.is_in_window(), exchanges(past, (call.comm.rank, end), peer));
    let manner = if call.stream.records() { Manner::Captured(call.backings.get().send) } else { Manner::Plain };
    Message { element: call.of(), count: call.elements, window, exchanges, manner }
}

/// How many exchanges a rank with this past has come to, in which messages like this one go.
#[inline]
pub(super) fn exchanges(past: &Past, (rank, end): (usize, End), peer: usize) -> u64 {
    match end {
        End::Sender => past.exchanges(rank, peer),
        End::Receiver => past.exchanges(peer, rank),
    }
}

/// What the ends compare of messages between a rank, which has this past, and a peer, where a graph is launched that has them.
pub(super) fn launched(past: &Past, (rank, end): (usize, End), peer: usize, numbers: &Numbers) -> Message {
    let exchanges = exchanges(past, (rank, end), peer);
    let (element, count) = (ElementKind::U8.into(), Word::numbers(numbers));
    Message { element, count, window: false, exchanges, manner: Manner::Launched }
}
