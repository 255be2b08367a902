//! Making windows, over memory of NCCL or of others.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::Allocation;
use crate::error::Result;
use crate::known_bugs::ENDLESS_WINDOWS;
use crate::nccl::enqueue::point;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::windows::Handle;
use crate::nccl::raw::check;
use crate::nccl::raw::group::grouped;
use crate::nccl::validate::signature::Signature;
use crate::nccl::wait::begin_call::{LockedRanks, begin_visits};
use crate::sys;

/// Memory of one rank that is to be a window.
pub(super) struct Piece {
    pub(super) ptr: *mut c_void,
    pub(super) bytes: usize,
    /// The number of the window, and what the ranks have come to it as.
    pub(super) number: u64,
    pub(super) entry: Option<u64>,
    /// Of others: what keeps it alive, and where that begins which was mapped as one.
    pub(super) over: Option<(Arc<Allocation>, usize)>,
}

/// Whether windows are made, or missed for what is known of them, or because two runs are to be equal.
pub(super) fn makes_windows(members: &[&Arc<Inner>]) -> bool {
    let is_wanted = |inner: &&Arc<Inner>| !inner.local_ranks.is_deterministic();
    members.iter().all(is_wanted) && (!ENDLESS_WINDOWS.is_running() || members.iter().all(|inner| inner.force_windows))
}

/// The number of a window that ranks have come to as `entry` in their sequence, or, where they do not compare, of the next one.
pub(super) fn number(entry: Option<u64>) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
    entry.map_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed), |entry| entry + 1)
}

/// Wraps `ncclCommWindowRegister`, in one group for all members. The number of each window, and what NCCL says, which may be an error
/// although there are some; it answers no window, without an error, where the ranks cannot reach each other's memory.
pub(super) fn together(
    operation: &'static str,
    members: &[&Arc<Inner>],
    locked: &LockedRanks<'_>,
    pieces: Vec<Piece>,
    signature: impl Fn(usize) -> Signature,
) -> Result<(Vec<Option<u64>>, Result<()>)> {
    const FUNCTION: &str = "ncclCommWindowRegister";
    let flags = sys::NCCL_WIN_COLL_SYMMETRIC as c_int;
    let mut windows: Vec<sys::ncclWindow_t> = vec![ptr::null_mut(); members.len()];
    for (at, ((inner, (guard, _)), piece)) in members.iter().zip(locked).zip(&pieces).enumerate() {
        // Windows were taken away since the ranks met, each in a visit of its own.
        point::write_down(inner, guard, operation, &signature(at), piece.entry);
    }
    begin_visits(members.iter().map(|inner| &***inner), operation)?;
    let result = grouped(FUNCTION, || {
        locked.iter().zip(&pieces).zip(&mut windows).try_for_each(|(((_, handle), piece), window)| {
            // SAFETY: a live communicator during a visit, memory that was mapped as one and is there until the window is taken away, and
            // a place for the window, which is written when the group ends.
            let code = unsafe { sys::ncclCommWindowRegister(*handle, piece.ptr, piece.bytes, window, flags) };
            check::check(FUNCTION, code)
        })
    });
    let known = members.iter().zip(windows).zip(pieces).map(|((inner, window), piece)| {
        // Before the visit ends: an abort takes those off that it finds.
        let number = piece.number;
        let made = (!window.is_null()).then(|| match piece.over {
            None => inner.windows.add(number, window),
            Some((memory, base)) => inner.windows.keep(number, Handle::Window(window), base, memory),
        });
        inner.end_visit();
        made.map(|()| number)
    });
    Ok((known.collect(), result))
}
