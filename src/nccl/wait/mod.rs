//! Waits for other ranks, and explains which rank is missing.

pub(crate) mod begin_call;
pub(crate) mod comparison;
pub(crate) mod explanation;
pub(crate) mod left_ranks;
pub(crate) mod needed;
pub(crate) mod patience;
