//! The requests of this crate: one for each operation of a communicator, and groups of them.

pub(super) mod alike;
pub(super) mod barrier;
pub(super) mod message;
pub(super) mod reducing;
pub(super) mod rooted;
pub(super) mod several;
pub(super) mod variable;
mod whole;
