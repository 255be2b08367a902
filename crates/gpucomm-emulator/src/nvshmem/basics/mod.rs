//! What everything here uses: how calls fail, what they are called, and what kinds there are.

pub(crate) mod entry;
pub(crate) mod environment;
pub(crate) mod kind;
