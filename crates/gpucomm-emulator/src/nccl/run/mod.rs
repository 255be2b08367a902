//! Work that streams do.

pub(crate) mod batch;
pub(crate) mod collective;
pub(crate) mod inject;
pub(crate) mod one_sided;
mod order;
pub(crate) mod p2p;
