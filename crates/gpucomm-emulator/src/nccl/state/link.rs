//! What ranks connect once and for all.

use std::collections::HashSet;

use crate::nccl::basics::kind::Kind;

/// What is connected once and for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// All ranks, for that collective of that class of sizes.
    All(Kind, u8),
    /// Messages to that rank.
    To(usize),
    /// Messages from that rank.
    From(usize),
}

/// What a communicator has connected so far.
pub(crate) type Links = HashSet<Link>;
