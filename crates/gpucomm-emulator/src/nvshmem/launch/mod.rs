//! PEs that a launcher has started, to whom nobody sends an id.

pub(crate) mod bootstrap;
pub(crate) mod job;
pub(crate) mod place;
