//! What the functions do.

pub(crate) mod collectives;
pub(crate) mod life;
pub(crate) mod local;
pub(crate) mod memory;
pub(crate) mod order;
pub(crate) mod rma;
pub(crate) mod signals;
pub(crate) mod stream;
pub(crate) mod teams;
