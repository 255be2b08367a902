//! Names, failures and configuration.

pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod kind;
pub(crate) mod safety;
pub(crate) mod unique_id;
