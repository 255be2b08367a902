//! An operation in one word: a number for what ranks come to, the element type, the reduction, and
//! the root or peer.

use super::element_type::Type;

use crate::sys;

pub(crate) const ALL_REDUCE: u8 = 1;
pub(crate) const REDUCE: u8 = 2;
pub(crate) const REDUCE_SCATTER: u8 = 3;
pub(crate) const BROADCAST: u8 = 4;
pub(crate) const ALL_GATHER: u8 = 5;
pub(crate) const ALL_TO_ALL: u8 = 6;
pub(crate) const GATHER: u8 = 7;
pub(crate) const SCATTER: u8 = 8;
pub(crate) const SEND: u8 = 9;
pub(crate) const RECV: u8 = 10;

/// Operations that involve no other rank.
pub(crate) const PUT_SIGNAL: u8 = 11;
pub(crate) const SIGNAL: u8 = 12;
pub(crate) const WAIT_SIGNAL: u8 = 13;

/// The registration of a window.
pub(crate) const REGISTER: u8 = 32;

/// An allocation of all ranks that makes no window, for its size.
pub(crate) const ALLOC_LARGE: u8 = 40;

/// After an allocation by checked ranks: whether all have the memory.
pub(crate) const ALLOCATED: u8 = 43;

/// A point at which windows retire, and nothing else happens.
pub(crate) const RECLAIM: u8 = 33;

/// The registration of memory, by each rank for itself.
pub(crate) const SHOW: u8 = 35;

/// A window over memory that there is, by each rank over its own.
pub(crate) const WINDOW: u8 = 36;

/// The first one-sided operation, of all ranks.
pub(crate) const ONE_SIDED: u8 = 37;

/// The split of a communicator.
pub(crate) const SPLIT: u8 = 34;

/// A communicator gives back memory.
pub(crate) const SUSPEND: u8 = 38;

/// A grow.
pub(crate) const GROW: u8 = 41;

/// A resume.
pub(crate) const RESUME: u8 = 42;

/// The launch of a graph.
pub(crate) const LAUNCH: u8 = 39;

/// Added to the number of an operation that is simulated: ranks come to it as to a point.
pub(crate) const SIMULATED: u8 = 0x80;

/// The method of what has this number.
fn method(code: u8) -> &'static str {
    match code & !SIMULATED {
        ALL_REDUCE => "all_reduce",
        REDUCE => "reduce",
        REDUCE_SCATTER => "reduce_scatter",
        BROADCAST => "broadcast",
        ALL_GATHER => "all_gather",
        ALL_TO_ALL => "all_to_all",
        GATHER => "gather",
        SCATTER => "scatter",
        SEND => "send",
        RECV => "recv",
        PUT_SIGNAL => "put_signal",
        SIGNAL => "signal",
        WAIT_SIGNAL => "wait_signal",
        ONE_SIDED => "prepare_one_sided",
        REGISTER | ALLOC_LARGE | ALLOCATED => "alloc",
        RECLAIM => "reclaim",
        SPLIT => "split",
        SHOW => "register",
        SUSPEND => "suspend",
        GROW => "grow",
        RESUME => "resume",
        WINDOW => "window",
        LAUNCH => "Graph::launch",
        _ => "an unknown operation",
    }
}

/// Where the parts of the word begin. A clique has fewer than 2^16 ranks.
pub(super) const ELEMENT: u32 = 8;
pub(super) const REDUCTION: u32 = 16;
pub(super) const ROOT: u32 = 24;

/// The reduction code of every pre-multiplied sum: each rank has a handle and a factor of its own.
pub(super) const PRE_MUL: u64 = 0xff;

/// Its reduction, where it has one.
pub(crate) fn reduction(head: u64) -> Option<&'static str> {
    match head >> REDUCTION & 0xff {
        0 => None,
        PRE_MUL => Some("pre-multiplied sum"),
        op => Some(["sum", "prod", "max", "min", "avg"].get(op as usize - 1).unwrap_or(&"?")),
    }
}

/// Its root, where it has one. What stands in that place of a message is the peer.
pub(crate) fn root(head: u64) -> Option<usize> {
    let is_message = matches!(head as u8 & !SIMULATED, SEND | RECV | PUT_SIGNAL | SIGNAL | WAIT_SIGNAL);
    let root = (head >> ROOT & 0xffff).wrapping_sub(1);
    (!is_message && root != u64::MAX).then_some(root as usize)
}

/// Where the number of a configuration begins in the second word: no memory holds so many elements.
pub(super) const CONFIG: u32 = 48;

/// In the second word, of what is captured into a graph.
pub(super) const CAPTURED: u64 = 1 << (CONFIG - 1);

/// Bits of a [`head`].
pub(crate) const HEAD: u32 = 40;

/// The first of the words that say what an operation is: its [`code`], element type, reduction, and
/// root or peer.
#[inline]
pub(crate) fn head(code: u8, element: Type, reduction: Option<sys::ncclRedOp_t>, other: Option<usize>) -> u64 {
    let reduction = match reduction {
        None => 0,
        Some(op) if op.0 >= sys::ncclRedOp_t::ncclNumOps.0 => PRE_MUL,
        Some(op) => u64::from(op.0) + 1,
    };
    let other = other.map_or(0, |rank| (rank as u64 + 1) & 0xffff);
    u64::from(code) | element.number() << ELEMENT | reduction << REDUCTION | other << ROOT
}

/// The [`head`] of a message; `peer` is the other rank.
pub(crate) fn head_of_message(receives: bool, element: Type, peer: usize) -> u64 {
    u64::from(if receives { RECV } else { SEND }) | element.number() << ELEMENT | (peer as u64 + 1) << ROOT
}

/// That of the same operation, simulated.
#[cfg(nccl_ge_2_22)]
pub(crate) fn simulated(head: u64) -> u64 {
    head | u64::from(SIMULATED)
}

/// Of a [`head`]: the element type.
#[inline]
pub(crate) fn element(head: u64) -> Type {
    Type::numbered(head >> ELEMENT & 0xff)
}

/// Of the [`head`] of a message: whether it is received, and the other rank.
pub(crate) fn peer(head: u64) -> Option<(bool, usize)> {
    let peer = (head >> ROOT & 0xffff).wrapping_sub(1) as usize;
    match head as u8 {
        SEND => Some((false, peer)),
        RECV => Some((true, peer)),
        _ => None,
    }
}

/// Of the [`head`] of a wait for signals: the rank that gives them, if it is one.
pub(crate) fn signaller(head: u64) -> Option<Option<usize>> {
    let rank = (head >> ROOT & 0xffff).checked_sub(1).map(|rank| rank as usize);
    (head as u8 == WAIT_SIGNAL).then_some(rank)
}

/// Whether this is the [`head`] of a point that ranks come to, and no operation on a device.
pub(crate) fn is_point(head: u64) -> bool {
    head as u8 & SIMULATED != 0
        || matches!(
            head as u8,
            REGISTER | ALLOC_LARGE | ALLOCATED | RECLAIM | SPLIT | SHOW | WINDOW | ONE_SIDED | SUSPEND | GROW | RESUME
        )
}

/// An operation in words: by the lower bits of its [`head`], and its count.
pub(crate) fn describe(head: u64, count: u64) -> String {
    let name = name(head);
    let other = (head >> ROOT & 0xffff).wrapping_sub(1);
    let mut text = match head as u8 {
        REGISTER => return format!("{name} of {count} bytes"),
        ALLOC_LARGE => return format!("{name} of {count} bytes, too many for a symmetric window,"),
        ALLOCATED => return format!("{name}, whether all ranks have the memory"),
        RECLAIM | SPLIT | ONE_SIDED | SUSPEND | RESUME => return name.to_owned(),
        GROW => return format!("{name} by {count}"),
        SIGNAL => return format!("{name} to rank {other}"),
        WAIT_SIGNAL => {
            let s = if count == 1 { "" } else { "s" };
            let of = if other == u64::MAX { "several ranks".to_owned() } else { format!("rank {other}") };
            return format!("{name} for {count} signal{s} of {of}");
        }
        SHOW if count == 0 => return format!("{name} of memory that has to be copied"),
        SHOW => return format!("{name} of memory that ranks can reach"),
        // It holds messages alone, or what nobody numbers.
        LAUNCH if count == CAPTURED - 1 => return "launch of the graph".to_owned(),
        LAUNCH => return format!("launch of the graph with collective {}", count + 1),
        WINDOW if count == 0 => return format!("{name} over memory that NCCL makes none of"),
        WINDOW => return format!("{name} over mapped memory"),
        code if code & SIMULATED != 0 => format!("simulated {name} of {count} {}", element(head)),
        _ => format!("{name} of {count} {}", element(head)),
    };
    if let Some(reduction) = reduction(head) {
        text.push_str(&format!(", {reduction}"));
    }
    match head as u8 {
        SEND | PUT_SIGNAL => text.push_str(&format!(" to rank {other}")),
        RECV => text.push_str(&format!(" from rank {other}")),
        _ => root(head).into_iter().for_each(|root| text.push_str(&format!(", root {root}"))),
    }
    text
}

/// The method of an operation, by its [`head`].
pub(crate) fn name(head: u64) -> &'static str {
    method(head as u8)
}
