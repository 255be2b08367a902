//! Messages of a rank to itself: both ends belong into one group, where NCCL takes them in order.

use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::validate::pair::End;

/// Refuses a message to the rank itself that is in no group.
#[inline]
pub(crate) fn check_alone(call: &Call<'_>) -> Result<()> {
    match call.kind.message() {
        Some((_, peer)) if peer == call.comm.rank => Err(alone(call)),
        _ => Ok(()),
    }
}

#[cold]
fn alone(call: &Call<'_>) -> Error {
    Error::argument(
        call.operation,
        "peer",
        "another rank: a message to itself belongs into a group, together with its other end",
        format!("rank {} itself", call.comm.rank),
    )
}

/// Refuses messages of a communicator to itself that have no other end in the group, or one that differs.
pub(crate) fn check_group(calls: &[Call<'_>], inner: &Inner) -> Result<()> {
    let ends = |wanted: End| {
        calls.iter().filter(move |call| {
            call.comm.id == inner.id
                && call.kind.message().is_some_and(|(end, peer)| end == wanted && peer == inner.rank)
        })
    };
    let (mut sends, mut recvs) = (ends(End::Sender), ends(End::Receiver));
    loop {
        let (call, expected, got) = match (sends.next(), recvs.next()) {
            (None, None) => return Ok(()),
            (Some(send), Some(recv)) if (send.of(), send.elements) == (recv.of(), recv.elements) => continue,
            (Some(send), Some(recv)) => (recv, format!("{}, as it sends itself", what(send)), what(recv)),
            (Some(send), None) => {
                (send, "a recv from itself in the same group".to_owned(), format!("a send of {}", what(send)))
            }
            (None, Some(recv)) => {
                (recv, "a send to itself in the same group".to_owned(), format!("a recv of {}", what(recv)))
            }
        };
        return Err(Error::argument(
            call.operation,
            "message to itself",
            expected,
            format!("{got} by rank {}", inner.rank),
        ));
    }
}

fn what(call: &Call<'_>) -> String {
    format!("{} {}", call.elements, call.of())
}
