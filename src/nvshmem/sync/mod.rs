//! What orders transfers, and who waits for them.

pub(crate) mod barrier;
pub(crate) mod comparison;
pub(crate) mod fence;
pub(crate) mod signal;
pub(crate) mod signal_calls;
pub(crate) mod signals;
pub(crate) mod wait;
pub(crate) mod waited;
