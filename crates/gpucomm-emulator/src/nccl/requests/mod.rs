//! What is asked of a communicator: checked, and not run yet.

pub(crate) mod beside;
pub(crate) mod operation;
pub(crate) mod order;
pub(crate) mod request;
