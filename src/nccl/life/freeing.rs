//! Waiting until NCCL has freed what has ended.
//!
//! NCCL frees the ranks of a process when the last of them ends, on the thread of that call, and waits for everything on the device of each
//! (`cudaFreeHost`). Where other communicators use these devices, that may take for ever: a rank that has ended before may have gone on
//! with one of those, in an operation that waits for the very rank whose thread waits here. So ranks wait a moment for each other,
//! lest one goes on before all is freed, and whoever ends last does not insist.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::nccl::state::inner::{HOUSEHOLDS, Inner};

/// How long a rank waits for others of its process to end as well: one thread may end them all, one after the other.
const A_MOMENT: Duration = Duration::from_millis(100);

/// How long a rank waits for what may wait for this rank. NCCL alone takes less.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for the `ends` of `members`, which their threads are at. False where NCCL goes on freeing them by itself, since what other
/// communicators do holds it up.
///
/// # Errors
/// Those of the ends; `late` where they take longer than the deadline, and nothing is known that holds them up.
pub(super) fn wait(
    members: &[Arc<Inner>],
    ends: &Receiver<Result<()>>,
    deadline: &Deadline,
    late: impl FnOnce() -> Error,
) -> Result<bool> {
    let shared = is_held_up(members);
    let patience = if shared { at_most(PATIENCE, deadline) } else { *deadline };
    let mut ended = Ok(());
    loop {
        match ends.recv_timeout(patience.remaining()) {
            Ok(end) => ended = ended.and(end),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if shared => return ended.map(|()| false),
            Err(RecvTimeoutError::Timeout) => return ended.and(Err(late())),
        }
    }
    // Who rests is freed with those that share its resources.
    let rest = members.iter().any(|inner| inner.rests());
    ended.map(|()| !rest && (!shared || others_have_ended(members, &patience)))
}

/// Waits for the other ranks of this process, if they come to their ends as well; whether NCCL has freed all of them.
fn others_have_ended(members: &[Arc<Inner>], patience: &Deadline) -> bool {
    let moment = at_most(A_MOMENT, patience);
    let go_on = || members.iter().flat_map(|inner| inner.household.members()).any(|inner| inner.is_active());
    let mut round = 0;
    while !members.iter().all(|inner| inner.is_gone()) {
        if patience.expired() || (moment.expired() && go_on()) {
            return false;
        }
        backoff(round);
        round += 1;
    }
    true
}

/// Whether what others do may hold up the end of `members`: communicators that are active on the devices on which NCCL frees something.
pub(super) fn is_held_up(members: &[Arc<Inner>]) -> bool {
    let ends = |one: &Inner| members.iter().any(|inner| Arc::ptr_eq(&inner.household, &one.household));
    let devices: Vec<_> =
        members.iter().flat_map(|inner| inner.household.members()).map(|inner| inner.device).collect();
    HOUSEHOLDS.members().iter().any(|one| one.is_active() && !ends(one) && devices.contains(&one.device))
}

pub(super) fn at_most(time: Duration, deadline: &Deadline) -> Deadline {
    Deadline::after(time.min(deadline.remaining()))
}
