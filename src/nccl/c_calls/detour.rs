//! Calls between windows that NCCL gets wrong, made as other calls that do the same.
//!
//! NCCL has kernels for symmetric windows, and takes them by operation, reduction, type and size. Which size still counts as small
//! depends on the device and on variables, so all sizes are taken for small here. Two things go wrong with them:
//!
//! - Those of 2.27.3 to 2.29.7 for small messages read what is sent in packs of eight bytes. Where an address is no multiple of four,
//!   and elements have fewer than four bytes, the pack is put together from words of which one is never read. That concerns all_gather,
//!   which moves bytes whatever the type, and the sums of floats of one and two bytes by all_reduce and reduce_scatter.
//! - From 2.30.3 on NCCL looks for one for averages of floating-point numbers by all_reduce, and there is none.
//!
//! So an all_gather is made as a broadcast from each rank, in one group; a sum as a pre-multiplied sum whose factor is one, which
//! multiplies exactly; an average as a pre-multiplied sum, which is what NCCL does outside of windows.
//!
//! All ranks must decide alike, so nothing is asked that only one rank knows: which buffers are windows, and where in them the data lies,
//! is the same on all ranks. That is compared in a clique, and promised across processes. Since 2.29.2 NCCL takes the kernels also where
//! only one buffer is a window, if that seems quicker; nobody else knows how the other one is aligned, so all such calls are made
//! otherwise. The same goes for memory outside of windows where a variable makes NCCL take the kernels for it.

use std::ffi::c_void;
use std::sync::OnceLock;

use crate::cuda::Region;
use crate::element::ElementKind;
use crate::known_bugs::{MISALIGNED_WINDOWS, MISALIGNED_WITH_ONE_WINDOW, WINDOW_AVERAGES};
use crate::nccl::calls::call::Call;
use crate::nccl::calls::kind::Kind;
use crate::nccl::rank::factors::Factor;
use crate::sys;
use crate::version;

/// What the kernels read at once, and what addresses must be a multiple of.
const WORD: usize = 4;

/// Whether NCCL may get this wrong. Called for communicators of more than one rank.
#[inline]
pub(crate) fn hits(call: &Call<'_>) -> bool {
    match call.kind {
        Kind::AllGather => is_beside(call),
        Kind::AllReduce { op } if op == sys::ncclRedOp_t::ncclAvg => is_average_in_windows(call),
        Kind::AllReduce { op } | Kind::ReduceScatter { op } => {
            op == sys::ncclRedOp_t::ncclSum && is_small_float(call.element) && is_beside(call)
        }
        _ => false,
    }
}

/// Whether it is a float that takes less than a word.
#[inline]
fn is_small_float(element: ElementKind) -> bool {
    matches!(element, ElementKind::F16 | ElementKind::Bf16) || element.is_float8()
}

/// Whether it is an average for which NCCL misses a kernel.
fn is_average_in_windows(call: &Call<'_>) -> bool {
    let has_type = call.element == ElementKind::F32 || is_small_float(call.element);
    let taken = match windows(call) {
        0 => widest().without_windows,
        _ => true,
    };
    has_type && taken && WINDOW_AVERAGES.is_running()
}

/// How many of its two buffers are windows; what is in place is two.
fn windows(call: &Call<'_>) -> usize {
    let is_window =
        |region: Option<&Region<'_>>| usize::from(region.is_some_and(|region| call.comm.windows.is_window(region)));
    is_window(call.source()) + is_window(call.recv.as_ref())
}

/// Whether small elements are read at an address that is no multiple of a word, by kernels that cannot.
#[inline]
fn is_beside(call: &Call<'_>) -> bool {
    call.element.size() < WORD && reads_beside(call) && MISALIGNED_WINDOWS.is_running()
}

/// Whether some rank reads at an address that is no multiple of a word, as far as all ranks can tell.
fn reads_beside(call: &Call<'_>) -> bool {
    match windows(call) {
        2 => {
            let part = call.count * call.element.size();
            // Where ranks, or one rank for its peers, read one part after the other.
            let stride = match call.kind {
                Kind::ReduceScatter { .. } => part,
                Kind::AllGather if call.send.is_none() => part,
                _ => 0,
            };
            let start = call.source().map_or(0, |region| call.comm.windows.place(region).1);
            !(start | stride).is_multiple_of(WORD)
        }
        1 => widest().with_one_window,
        _ => widest().without_windows,
    }
}

/// Which memory the kernels are for, beside that where both buffers are windows.
#[derive(Debug, Clone, Copy)]
struct WideAnswer {
    with_one_window: bool,
    without_windows: bool,
}

/// Asked once: NCCL reads its variables once, too.
fn widest() -> WideAnswer {
    static WIDEST: OnceLock<WideAnswer> = OnceLock::new();
    *WIDEST.get_or_init(|| {
        let newer = version::running_nccl().map_or(true, |version| version >= MISALIGNED_WITH_ONE_WINDOW);
        let asked_for = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let wanted = asked_for("NCCL_SYM_NOWIN_ENABLE") || asked_for("NCCL_SYM_KERNEL");
        WideAnswer { with_one_window: newer, without_windows: newer && wanted }
    })
}

/// Makes the call as another one that does the same.
///
/// # Safety
///
/// As [`Call::make`], for a call that [`hits`], with the pointers that C would get.
#[cold]
pub(crate) unsafe fn make(
    call: &Call<'_>,
    send: *const c_void,
    recv: *mut c_void,
    handle: sys::ncclComm_t,
) -> sys::ncclResult_t {
    let factor = match call.kind {
        Kind::AllReduce { op } if op == sys::ncclRedOp_t::ncclAvg => Factor::Share,
        Kind::AllReduce { .. } | Kind::ReduceScatter { .. } => Factor::One,
        // SAFETY: the caller upholds the contract.
        _ => return unsafe { broadcasts(call, send, recv, handle) },
    };
    // SAFETY: the caller holds the lock of the live communicator.
    let op = match unsafe { call.comm.factors.get(factor, call.element, call.comm.size, handle) } {
        Ok(op) => op,
        Err(code) => return code,
    };
    let kind = match call.kind {
        Kind::AllReduce { .. } => Kind::AllReduce { op },
        _ => Kind::ReduceScatter { op },
    };
    // SAFETY: the caller upholds the contract; all ranks come here, see above, and the arguments mean the same for this kind.
    unsafe { call.make_as(kind, send, recv, call.count, handle) }
}

/// An all_gather as one broadcast from each rank.
///
/// # Safety
///
/// As [`make`], for an all_gather.
unsafe fn broadcasts(
    call: &Call<'_>,
    send: *const c_void,
    recv: *mut c_void,
    handle: sys::ncclComm_t,
) -> sys::ncclResult_t {
    let part = call.count * call.element.size();
    // SAFETY: ended below, whatever happens in between: nothing there panics or returns. Within a group this is a part of it.
    let mut result = unsafe { sys::ncclGroupStart() };
    if result != sys::ncclResult_t::ncclSuccess {
        return result;
    }
    for root in 0..call.comm.size {
        let to = recv.wrapping_byte_add(root * part);
        // Only the root reads `send`, but NCCL looks on all ranks whether it is registered, which must be so on all or on none.
        // SAFETY: `recv` has a part for each rank, and `send` is one part; all ranks come here, see above.
        let code = unsafe { call.make_as(Kind::Broadcast { root }, send, to, call.count, handle) };
        if result == sys::ncclResult_t::ncclSuccess {
            result = code;
        }
    }
    // SAFETY: this thread has opened the group above.
    let ended = unsafe { sys::ncclGroupEnd() };
    if result == sys::ncclResult_t::ncclSuccess { ended } else { result }
}
