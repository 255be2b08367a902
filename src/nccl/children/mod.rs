//! Communicators that are made of others, where all ranks come.

pub(crate) mod split;
