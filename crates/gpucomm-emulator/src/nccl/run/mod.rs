//! Work that streams do.

pub(crate) mod alone;
pub(crate) mod captured;
pub(crate) mod collective;
pub(crate) mod grouping;
pub(crate) mod inject;
pub(crate) mod launch;
mod message;
pub(crate) mod one_sided;
mod order;
pub(crate) mod p2p;
pub(crate) mod share;
pub(crate) mod turn;
