//! Registered and other memory in one message.
//!
//! NCCL registers the memory of windows as it does what [`register`](crate::Communicator::register) gives it, and what it moves by
//! messages it then moves without copying: the sender writes where the
//! receiver says, or the receiver reads. Each end decides by itself whether its memory is registered, so where only one is, a message of
//! some hundred KiB goes nowhere without an error, or the ends wait for each other. Smaller ones are copied, and arrive.
//!
//! So both ends have to be registered, as windows or otherwise, or neither, whatever the size. Ranks compare that of messages, and of the collectives that NCCL makes
//! messages of or does in rings from rank to rank without that; each rank sees to it that its own two buffers are alike.

use super::site::Site;
use crate::cuda::Region;
use crate::error::{Error, Result};

/// Refuses two buffers of one rank that are not alike, where ranks send to one from the other.
#[inline]
pub(crate) fn check(site: &Site<'_>, send: Option<&Region<'_>>, recv: Option<&Region<'_>>) -> Result<()> {
    let (Some(send), Some(recv)) = (send, recv) else { return Ok(()) };
    // What is empty may begin where a window ends, and is never looked at.
    let is_registered = |region| site.comm.windows.of(region) != 0;
    let sends_registered = is_registered(send);
    if sends_registered == is_registered(recv) || send.bytes == 0 || recv.bytes == 0 || site.comm.size == 1 {
        return Ok(());
    }
    let (expected, got) = if sends_registered {
        (
            "a window or registered memory, as what is sent lies in such",
            "memory outside of windows, which is not registered",
        )
    } else {
        ("memory outside of windows that is not registered, as what is sent", "a window or registered memory")
    };
    Err(Error::argument(site.operation, "recv", expected, got))
}
