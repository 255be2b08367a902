//! What a communicator is made from: its options, its id, and what the environment says.

pub(crate) mod config;
pub(crate) mod environment;
pub(crate) mod unique_id;
