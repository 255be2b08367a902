//! Windows and other memory in one message.
//!
//! NCCL registers the memory of windows, and what it moves by messages it then moves without copying: the sender writes where the
//! receiver says, or the receiver reads. Each end decides by itself whether its memory is registered, so where only one is, a message of
//! some hundred KiB goes nowhere without an error, or the ends wait for each other. Smaller ones are copied, and arrive.
//!
//! So both ends have to be windows or neither, whatever the size. Ranks compare that of messages, and of the collectives that NCCL makes
//! messages of or does in rings from rank to rank without that; each rank sees to it that its own two buffers are alike.

use super::call::{Call, Kind};
use super::prepare::Site;
use crate::cuda::Region;
use crate::error::{Error, Result};

fn is_window(region: Option<&Region<'_>>) -> bool {
    region.is_some_and(|region| region.window() != 0)
}

/// Of a message: whether this end lies in a window. An empty one lies nowhere.
#[inline]
pub(crate) fn is_message_of_window(call: &Call<'_>) -> bool {
    call.count > 0 && is_window(call.send.as_ref().or(call.recv.as_ref()))
}

/// Of a collective whose memory is not compared by place: whether it lies in windows.
#[inline]
pub(crate) fn is_in_windows(call: &Call<'_>) -> bool {
    let compared = match call.kind {
        Kind::Reduce { .. } | Kind::Broadcast { .. } => true,
        #[cfg(nccl_ge_2_28)]
        Kind::Gather { .. } | Kind::Scatter { .. } => true,
        _ => false,
    };
    compared && call.count > 0 && is_window(call.send.as_ref().or(call.recv.as_ref()))
}

/// Refuses two buffers of one rank that are not alike, where ranks send to one from the other.
#[inline]
pub(crate) fn check(site: &Site<'_>, send: Option<&Region<'_>>, recv: Option<&Region<'_>>) -> Result<()> {
    let (Some(send), Some(recv)) = (send, recv) else { return Ok(()) };
    let sends_window = send.window() != 0;
    if sends_window == (recv.window() != 0) || recv.bytes == 0 || site.comm.size == 1 {
        return Ok(());
    }
    let (expected, got) = if sends_window {
        ("a window, as what is sent lies in one", "memory outside of windows")
    } else {
        ("memory outside of windows, as what is sent does", "a window")
    };
    Err(Error::argument(site.operation, "recv", expected, got))
}
