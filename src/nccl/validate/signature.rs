//! What ranks must agree on, packed into six words.
//!
//! NCCL registers by itself the memory that a graph moves (`NCCL_GRAPH_REGISTER`, which is on).
//! Each rank does so alone, if its memory was mapped as one, so that the other ranks can map it
//! too, and takes it that the others have done the same. If they have not, data goes astray, or the
//! ranks wait for each other. So the signature of a captured call also says what lies behind its
//! memory. It does so whatever the environment says: the same program is right or wrong with any
//! settings.

use super::element_type::Type;
use super::operation::*;
use crate::cuda::Backing;
use crate::element::ElementKind;
use crate::sys;

/// One operation as all its ranks must issue it: kind, element type, reduction, root, count, how
/// many collectives its group holds, and for operations that have a symmetric form, which window
/// each buffer lies in and where.
///
/// NCCL sorts and merges the collectives of a group, so ranks must group them alike. That each
/// collective says how many of its communicator the group holds is enough: on every rank the first
/// group begins with the first collective, and is as long as that says; so the second begins at the
/// same collective, and so on.
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

/// A bit in the number of a window: the memory is no window. Each rank registered it by itself.
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
const GROUP: u32 = HEAD;
const IN_WINDOWS: u32 = 63;

/// Collectives of one communicator that a group may hold.
pub(crate) const MAX_GROUP: usize = (1 << (IN_WINDOWS - GROUP)) - 1;

/// Element types whose maxima, minima and sums switches can reduce, and those whose sums only: a
/// bit for each.
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
    /// Of a collective of `count` elements, as its [`head`] says, whose group holds so many of its
    /// communicator, itself among them: 1 outside of groups.
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

    /// Whether it has a number among the collectives: the second round of an allocation has none.
    pub(crate) fn is_numbered(&self) -> bool {
        self.head() as u8 != ALLOCATED
    }

    /// Windows that were dropped are taken away.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn reclaim() -> Self {
        Self([u64::from(RECLAIM), 0, 0, 0, 0, 0])
    }

    /// Registration of memory by each rank for itself, how much it may be; whether the ranks can
    /// reach it.
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

    /// A number that collectives have in common which NCCL connects alike: it connects the ranks
    /// for each of its algorithms when that is first used, and chooses by operation, size (`bytes`;
    /// of all together in a group), whether switches can reduce the elements, and whether the
    /// buffers lie in windows.
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
            text.push_str(&backings_against(self.backings(), other.backings()));
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
            return format!("{text}, which holds {recv_offset} of them, up to collective {}", send_offset + 1);
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

/// What lies behind the memory of a captured call; nothing of that counts where no other rank has
/// to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Backings {
    /// The backing of the memory that is read, and of that which is written. If ranks compare only one
    /// of the two, both are that one.
    pub(crate) send: Backing,
    pub(crate) recv: Backing,
    /// Whether both begin at one byte, where NCCL looks at that before it registers.
    pub(crate) in_place: bool,
}

/// Bits of a [`backing_number`].
pub(crate) const BACKING_BITS: u32 = 2;

/// In the offset of memory that lies in no window, of which nobody asks where it lies. The two bits
/// below say where an address is not aligned.
const SHIFT: u32 = 2;
const IN_PLACE: u64 = 1 << (SHIFT + BACKING_BITS);

/// A number that is not 0 for what NCCL may register.
#[inline]
pub(crate) fn backing_number(backing: Backing) -> u64 {
    match backing {
        Backing::Apart => 0,
        Backing::Allocated => 1,
        Backing::Mapped => 2,
    }
}

impl Backings {
    /// As two offsets.
    pub(crate) fn words(self) -> [u64; 2] {
        let [send, recv] = [self.send, self.recv].map(|backing| backing_number(backing) << SHIFT);
        // Of what is not registered it is not asked.
        let in_place = self.in_place && self.recv != Backing::Apart;
        [send, recv | if in_place { IN_PLACE } else { 0 }]
    }
}

/// What lies behind memory, in words, by its [`backing_number`].
pub(crate) fn describe_backing(number: u64) -> &'static str {
    match number {
        0 => "memory that NCCL cannot register for a graph (of a pool, or mapped in pieces)",
        1 => "memory of cudaMalloc, which NCCL registers for a graph (NCCL_LEGACY_CUDA_REGISTER)",
        _ => "mapped memory, which NCCL registers for a graph",
    }
}

/// How the memory that `own` speaks of differs from that of `other`, both as [`Backings::words`],
/// to be set behind a call in words.
fn backings_against(own: [u64; 2], other: [u64; 2]) -> String {
    let number = |word: u64| word >> SHIFT & ((1 << BACKING_BITS) - 1);
    let mut text = String::new();
    for (what, own, other) in [(", sent from ", own[0], other[0]), (", received in ", own[1], other[1])] {
        if number(own) != number(other) {
            text.push_str(what);
            text.push_str(describe_backing(number(own)));
        }
    }
    if (own[1] ^ other[1]) & IN_PLACE != 0 && text.is_empty() {
        text.push_str(if own[1] & IN_PLACE != 0 { ", in place" } else { ", not in place" });
        text.push_str(", in mapped memory, which NCCL registers for a graph only where that is not in place");
    }
    text
}

/// The numbers, in the order of all ranks, of collectives, or of messages of one pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) count: u64,
    /// Differs where others lie between: captures that are under way at once take what is issued in
    /// turns.
    pub(crate) digest: u64,
}

impl Numbers {
    pub(crate) const NONE: Self = Self { first: u64::MAX, last: 0, count: 0, digest: 0 };

    /// One more.
    pub(crate) fn add(&mut self, number: u64) {
        self.first = self.first.min(number);
        self.last = self.last.max(number);
        self.count += 1;
        let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.digest = self.digest.wrapping_add((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9));
    }
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
