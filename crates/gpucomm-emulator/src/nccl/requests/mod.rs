//! What is asked of a communicator: checked, and not run yet.

pub(crate) mod batch;
pub(crate) mod beside;
pub(crate) mod location;
pub(crate) mod operation;
pub(crate) mod order;
pub(crate) mod registered;
pub(crate) mod request;
pub(crate) mod signature;
