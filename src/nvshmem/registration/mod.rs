//! Memory of this PE alone that the library is told of.

pub(crate) mod pinned;
pub(crate) mod registered;
pub(crate) mod registrable;
