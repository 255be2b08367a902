//! What ranks must agree on, packed into six words.

use super::backings;
use super::backings::Backings;
use super::code;
use super::code::{
    ALLOC_LARGE, ALLOCATED, GROW, LAUNCH, ONE_SIDED, PUT_SIGNAL, RECLAIM, RECV, REGISTER, RESUME, SEND, SHOW, SIGNAL,
    SIMULATED, SPLIT, SUSPEND, WAIT_SIGNAL, WINDOW,
};
use super::head::{ELEMENT, PRE_MUL, REDUCTION, ROOT, reduction, root};
use super::numbers::Numbers;
use super::types::Type;
use crate::element::ElementKind;
use crate::sys;

/// One operation as all its ranks must issue it: kind, element type, reduction, root, count, how many collectives its group
/// holds, and for operations that have a symmetric form, which window each buffer lies in and where.
///
/// NCCL sorts and merges the collectives of a group, so ranks must group them alike. That each collective says how many of
/// its communicator the group holds is enough: on every rank the first group begins with the first collective, and is as
/// long as that says; so the second begins at the same collective, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature(pub(crate) [u64; 6]);

/// What ranks compare of the memory of a collective.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Memory {
    /// Whether it lies in windows, or in registered memory.
    InWindows(bool),
    /// Where it lies: in place where both begin at one byte, as nothing else may.
    At { send: Place, recv: Place },
}

/// Of the number of a window: it is none, but memory that each rank has registered by itself.
pub(crate) const REGISTERED: u64 = 1 << 63;

/// Where in which window memory lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The number of the window, or of the registration, the same on all ranks; 0 outside of all.
    pub(crate) window: u64,
    /// Bytes from its start.
    pub(crate) offset: u64,
}

/// What ranks compare of memory that is to be a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Bytes of the window, and of what was mapped as one there: 0 where ranks may differ.
    pub(crate) bytes: u64,
    pub(crate) mapped: u64,
    /// How many bytes of that lie before the window.
    pub(crate) offset: u64,
    /// The number of another window over it; 0: there is none.
    pub(crate) beside: u64,
}

impl Place {
    pub(crate) const NONE: Self = Self { window: 0, offset: 0 };
}

/// Where the parts of the first word begin that a [`head`] does not have.
const GROUP: u32 = 40;
const IN_WINDOWS: u32 = 63;

/// Where the number of a configuration begins in the second word: no memory holds so many elements.
const CONFIG: u32 = 48;

/// In the second word, of what is captured into a graph.
const CAPTURED: u64 = 1 << (CONFIG - 1);

/// Collectives of one communicator that a group may hold.
pub(crate) const MAX_GROUP: usize = (1 << (IN_WINDOWS - GROUP)) - 1;

/// Element types whose maxima, minima and sums switches can reduce, and those whose sums only: a bit for each.
const INTEGERS_AND_HALVES: u64 = {
    use ElementKind::{Bf16, F16, I32, I64, U32, U64};
    1 << I32 as u64 | 1 << U32 as u64 | 1 << I64 as u64 | 1 << U64 as u64 | 1 << F16 as u64 | 1 << Bf16 as u64
};
const FLOATS: u64 = 1 << ElementKind::F32 as u64 | 1 << ElementKind::F64 as u64;

/// Bytes below which NCCL's choice does not depend on how many there are.
const SMALL: u64 = 32 << 10;

/// The codes of reductions.
const SUM: u64 = sys::ncclRedOp_t::ncclSum.0 as u64 + 1;
const MAX: u64 = sys::ncclRedOp_t::ncclMax.0 as u64 + 1;
const MIN: u64 = sys::ncclRedOp_t::ncclMin.0 as u64 + 1;

impl Signature {
    /// Of a collective of `count` elements, as its [`head`] says, whose group holds so many of its communicator, itself among them: 1
    /// outside of groups.
    #[inline]
    pub(crate) fn new(head: u64, count: usize, group: usize, memory: Memory) -> Self {
        let (head, count) = (head | (group as u64) << GROUP, count as u64);
        match memory {
            Memory::InWindows(is) => Self([head | u64::from(is) << IN_WINDOWS, count, 0, 0, 0, 0]),
            Memory::At { send, recv } => Self([head, count, send.window, send.offset, recv.window, recv.offset]),
        }
    }

    /// Registration of a window of so many bytes.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn register(bytes: usize) -> Self {
        Self([u64::from(REGISTER), bytes as u64, 0, 0, 0, 0])
    }

    /// An allocation of so many bytes that makes no window.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn alloc_large(bytes: usize) -> Self {
        Self([u64::from(ALLOC_LARGE), bytes as u64, 0, 0, 0, 0])
    }

    /// After an allocation: whether all ranks have the memory.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn allocated() -> Self {
        Self([u64::from(ALLOCATED), 0, 0, 0, 0, 0])
    }

    /// Windows that were dropped are taken away.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn reclaim() -> Self {
        Self([u64::from(RECLAIM), 0, 0, 0, 0, 0])
    }

    /// Registration of memory by each rank for itself, how much it may be; whether the ranks can reach it.
    #[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
    pub(crate) fn show(reachable: bool) -> Self {
        Self([u64::from(SHOW), u64::from(reachable), 0, 0, 0, 0])
    }

    /// A window over memory of each rank; `None` where that cannot be one.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn window(over: Option<Extent>) -> Self {
        let Some(Extent { bytes, offset, mapped, beside }) = over else {
            return Self([u64::from(WINDOW), 0, 0, 0, 0, 0]);
        };
        Self([u64::from(WINDOW), 1, bytes, offset, mapped, beside])
    }

    /// The first one-sided operation.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn one_sided() -> Self {
        Self([u64::from(ONE_SIDED), 0, 0, 0, 0, 0])
    }

    /// A split of the communicator: which rank asks for what part need not agree.
    pub(crate) fn split() -> Self {
        Self([u64::from(SPLIT), 0, 0, 0, 0, 0])
    }

    /// The communicator is suspended, as these flags say.
    #[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
    pub(crate) fn suspend(flags: u32) -> Self {
        Self([u64::from(SUSPEND), u64::from(flags), 0, 0, 0, 0])
    }

    /// The launch of a graph that holds these collectives of the communicator.
    pub(crate) fn launch(all: &Numbers) -> Self {
        Self([u64::from(LAUNCH), all.first & (CAPTURED - 1), all.digest, all.last, 0, all.count])
    }

    /// The same, captured into a graph, with such memory.
    pub(crate) fn captured(mut self, memory: Backings) -> Self {
        self.0[1] |= CAPTURED;
        for (at, word) in [3, 5].into_iter().zip(memory.words()) {
            // Of a window that says nothing.
            if self.0[at - 1] == 0 {
                self.0[at] = word;
            }
        }
        self
    }

    /// What it says of the memory of a captured call, as [`Backings::words`].
    fn backings(&self) -> [u64; 2] {
        let [_, count, send, send_offset, recv, recv_offset] = self.0;
        let of = |window: u64, offset: u64| if window == 0 && count & CAPTURED != 0 { offset } else { 0 };
        [of(send, send_offset), of(recv, recv_offset)]
    }

    /// The same of elements of this type.
    pub(crate) fn of(mut self, element: Type) -> Self {
        self.0[0] = self.0[0] & !(0xff << ELEMENT) | element.number() << ELEMENT;
        self
    }

    /// What [`head`] says of the same.
    pub(crate) fn head(&self) -> u64 {
        self.0[0] & ((1 << HEAD) - 1)
    }

    /// The elements, or bytes.
    pub(crate) fn count(&self) -> u64 {
        self.0[1] & (CAPTURED - 1)
    }

    /// The same, of a call with configuration `number`.
    #[cfg(nccl_ge_2_31)]
    pub(crate) fn configured(mut self, number: u16) -> Self {
        self.0[1] = self.0[1] & ((1 << CONFIG) - 1) | u64::from(number) << CONFIG;
        self
    }

    /// The number of the configuration of the call; 0 where it has none.
    fn config(&self) -> u64 {
        self.0[1] >> CONFIG
    }

    /// How many collectives the group holds; 0 for what is in no group.
    fn group(&self) -> u64 {
        self.0[0] >> GROUP & MAX_GROUP as u64
    }

    /// A number that collectives have in common which NCCL connects alike: it connects the ranks for each of its algorithms
    /// when that is first used, and chooses by operation, size (`bytes`; of all together in a group), whether switches can
    /// reduce the elements, and whether the buffers lie in windows.
    #[inline]
    pub(crate) fn class(&self, bytes: u64) -> u64 {
        let [head, _, send, send_offset, recv, recv_offset] = self.0;
        let reducible = match head >> REDUCTION & 0xff {
            SUM => INTEGERS_AND_HALVES | FLOATS,
            MAX | MIN => INTEGERS_AND_HALVES,
            _ => 0,
        };
        let by_switch = reducible >> (head >> ELEMENT & 0xff) & 1;
        let several = u64::from(self.group() > 1);
        let symmetric = u64::from(send != 0 && recv != 0);
        let registered = (send | recv) >> REGISTERED.trailing_zeros();
        // What is captured NCCL may register by itself, and then connects less.
        let in_graph = u64::from(self.backings() != [0; 2]);
        // Calls at such places may be made as others, for which NCCL connects other things.
        let odd = u64::from((send_offset | recv_offset) & 3 != 0);
        // Quarters of powers of two; what is small takes the same time.
        let bytes = bytes | (SMALL - 1);
        let top = bytes.leading_zeros();
        let size = u64::from(63 - top) << 2 | (bytes << top) >> 61 & 3;
        let how = in_graph << 13 | registered << 12 | size << 4 | by_switch << 3 | odd << 2 | symmetric << 1 | several;
        // Configurations choose between algorithms; what is simulated is connected as what is done.
        head & (u64::from(!SIMULATED) | 0xffff << ROOT) | self.config() << ELEMENT | how << GROUP
    }

    /// The signature in words, for an error that sets it against `other`.
    pub(crate) fn against(&self, other: &Self) -> String {
        let mut text = self.describe();
        let launches = [self, other].map(|one| one.0[0] as u8 == LAUNCH);
        if launches == [true; 2] && self.0[2] != other.0[2] && text == other.describe() {
            text.push_str(", not the same between");
        }
        if self.head() == other.head() {
            text.push_str(&backings::against(self.backings(), other.backings()));
        }
        if self.group() != other.group() {
            match self.group() {
                0 => {}
                1 => text.push_str(", by itself"),
                several => text.push_str(&format!(", in a group of {several} collectives")),
            }
        }
        text
    }

    /// The signature in words, whatever its group.
    pub(crate) fn describe(&self) -> String {
        let [head, _, send, send_offset, recv, recv_offset] = self.0;
        let mut text = describe(head, self.count());
        if head as u8 == LAUNCH {
            return format!("{text}, which holds {recv_offset} of them, up to collective {send_offset}");
        }
        if self.0[1] & CAPTURED != 0 {
            text.push_str(", captured into a graph");
        }
        if head as u8 == WINDOW {
            let [_, fits, bytes, offset, mapped, beside] = self.0;
            if fits != 0 {
                text.push_str(&format!(" {offset} bytes behind its start"));
            }
            if bytes != 0 {
                text.push_str(&format!(", of {bytes} bytes, out of {mapped} that were mapped as one"));
            }
            if beside != 0 {
                text.push_str(&format!(", beside window {beside}"));
            }
            return text;
        }
        for (what, window, offset) in [("sent", send, send_offset), ("received", recv, recv_offset)] {
            if window != 0 {
                let whose = if window & REGISTERED == 0 { "window" } else { "registration" };
                text.push_str(&format!(", {what} at byte {offset} of {whose} {}", window & !REGISTERED));
            }
        }
        if head >> IN_WINDOWS != 0 {
            text.push_str(", in windows or registered memory");
        }
        if recv != 0 && (send, send_offset) == (recv, recv_offset) {
            text.push_str(", in place");
        }
        if self.config() != 0 {
            text.push_str(&format!(", with configuration {}", self.config()));
        }
        text
    }
}

/// Bits of a [`head`].
pub(crate) const HEAD: u32 = GROUP;

/// The first of the words that say what an operation is: its [`code`], element type, reduction, and root or peer.
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
        WAIT_SIGNAL if other == u64::MAX => return format!("{name} for {count} signals of several ranks"),
        WAIT_SIGNAL => return format!("{name} for {count} signals of rank {other}"),
        SHOW if count == 0 => return format!("{name} of memory that has to be copied"),
        SHOW => return format!("{name} of memory that ranks can reach"),
        // It holds messages alone, or what nobody numbers.
        LAUNCH if count == CAPTURED - 1 => return "launch of the graph".to_owned(),
        LAUNCH => return format!("launch of the graph with collective {count}"),
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
    code::name(head as u8)
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
