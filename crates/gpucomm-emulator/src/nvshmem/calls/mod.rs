//! What the functions do.

pub(crate) mod batches;
pub(crate) mod collectives;
pub(crate) mod life;
pub(crate) mod local;
pub(crate) mod memory;
pub(crate) mod order;
pub(crate) mod queue_pairs;
pub(crate) mod reduce;
pub(crate) mod registration;
pub(crate) mod rma;
pub(crate) mod signals;
pub(crate) mod stream;
mod switches;
pub(crate) mod teams;
pub(crate) mod waits;
