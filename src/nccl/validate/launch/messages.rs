//! What both validators compare of calls: which are collectives, and what the ends of messages say
//! of them.

use crate::element::ElementKind;
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::validate::history::History;
use crate::nccl::validate::pair::{End, Manner, Message, Word};
use crate::nccl::validate::signature::Numbers;

#[inline]
pub(super) fn is_collective_of(call: &Call<'_>, inner: &Inner) -> bool {
    call.comm.id == inner.id && call.kind.message().is_none()
}

/// The collectives of one communicator.
pub(crate) fn collectives<'c, 'a: 'c>(calls: &'c [Call<'a>], inner: &'c Inner) -> impl Iterator<Item = &'c Call<'a>> {
    calls.iter().filter(|call| is_collective_of(call, inner))
}

/// What the ends of a message compare, of this one, whose rank has this history.
#[inline]
pub(super) fn message_of(call: &Call<'_>, history: &History, end: End, peer: usize) -> Message {
    let (window, exchanges) = (call.is_in_window(), exchanges(history, (call.comm.rank, end), peer));
    let manner = if call.stream.records() { Manner::Captured(call.backings.get().send) } else { Manner::Plain };
    Message { element: call.of(), count: call.elements, window, exchanges, manner }
}

/// How many exchanges a rank with this past has come to, in which messages like this one go.
#[inline]
pub(super) fn exchanges(history: &History, (rank, end): (usize, End), peer: usize) -> u64 {
    match end {
        End::Sender => history.exchanges(rank, peer),
        End::Receiver => history.exchanges(peer, rank),
    }
}

/// What the ends compare of messages between a rank, which has this history, and a peer, where a
/// graph is launched that has them.
pub(super) fn launched(history: &History, (rank, end): (usize, End), peer: usize, numbers: &Numbers) -> Message {
    let exchanges = exchanges(history, (rank, end), peer);
    let (element, count) = (ElementKind::U8.into(), Word::numbers(numbers));
    Message { element, count, window: false, exchanges, manner: Manner::Launched }
}
