//! What a PE is and has.

pub(crate) mod boot;
pub(crate) mod heap;
pub(crate) mod internal;
pub(crate) mod life;
pub(crate) mod pe;
pub(crate) mod team;
