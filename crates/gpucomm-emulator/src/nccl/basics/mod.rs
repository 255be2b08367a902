//! Names, failures and configuration.

pub(crate) mod coll_config;
pub(crate) mod config;
pub(crate) mod encryption;
pub(crate) mod error;
pub(crate) mod graphs;
pub(crate) mod kind;
pub(crate) mod parameters;
pub(crate) mod unique_id;
pub(crate) mod variables;
