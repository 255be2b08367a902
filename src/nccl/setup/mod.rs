//! What a communicator is made from: its options, its id, and what the environment says.

pub(crate) mod begun;
pub(crate) mod choices;
pub(crate) mod config;
pub(crate) mod determinism;
pub(crate) mod environment;
mod fields;
pub(crate) mod init_options;
pub(crate) mod local_memory;
mod numbers;
pub(crate) mod rank_device;
pub(crate) mod unique_id;
