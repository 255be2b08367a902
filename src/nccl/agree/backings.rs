//! What ranks compare of the memory of a captured call.
//!
//! What a graph moves NCCL registers by itself (`NCCL_GRAPH_REGISTER`, which is on): each rank alone, where its memory was mapped as one, so
//! that the other ranks can map it too. Who has registered its memory takes it that the others have; where they have not, data goes astray, or
//! they wait for each other. No variable of the environment is asked whether it does: what ranks issue is right or wrong whatever stands there.

use crate::cuda::Backing;

/// What lies behind the memory of a captured call; nothing of that counts where no other rank has to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Backings {
    /// That which is read, and that which is written; of calls that are compared by one of both, that one is both.
    pub(crate) send: Backing,
    pub(crate) recv: Backing,
    /// Whether both begin at one byte, where NCCL looks at that before it registers.
    pub(crate) in_place: bool,
}

/// Bits of a [`number`].
pub(crate) const BITS: u32 = 2;

/// In the offset of memory that lies in no window, of which nobody asks where it lies. The two bits below say where an address is not aligned.
const SHIFT: u32 = 2;
const IN_PLACE: u64 = 1 << (SHIFT + BITS);

/// A number that is not 0 for what NCCL may register.
#[inline]
pub(crate) fn number(backing: Backing) -> u64 {
    match backing {
        Backing::Apart => 0,
        Backing::Allocated => 1,
        Backing::Mapped => 2,
    }
}

impl Backings {
    /// As two offsets.
    pub(crate) fn words(self) -> [u64; 2] {
        let [send, recv] = [self.send, self.recv].map(|backing| number(backing) << SHIFT);
        // Of what is not registered it is not asked.
        let in_place = self.in_place && self.recv != Backing::Apart;
        [send, recv | if in_place { IN_PLACE } else { 0 }]
    }
}

/// What lies behind memory, in words, by its [`number`].
pub(crate) fn describe(number: u64) -> &'static str {
    match number {
        0 => "memory that NCCL cannot register for a graph (of a pool, or mapped in pieces)",
        1 => "memory of cudaMalloc, which NCCL registers for a graph (NCCL_LEGACY_CUDA_REGISTER)",
        _ => "mapped memory, which NCCL registers for a graph",
    }
}

/// How the memory that `own` speaks of differs from that of `other`, both as [`Backings::words`], to be set behind a call in words.
pub(crate) fn against(own: [u64; 2], other: [u64; 2]) -> String {
    let number = |word: u64| word >> SHIFT & ((1 << BITS) - 1);
    let mut text = String::new();
    for (what, own, other) in [(", sent from ", own[0], other[0]), (", received in ", own[1], other[1])] {
        if number(own) != number(other) {
            text.push_str(what);
            text.push_str(describe(number(own)));
        }
    }
    if (own[1] ^ other[1]) & IN_PLACE != 0 && text.is_empty() {
        text.push_str(if own[1] & IN_PLACE != 0 { ", in place" } else { ", not in place" });
        text.push_str(", in mapped memory, which NCCL registers for a graph only where that is not in place");
    }
    text
}
