//! How a context begins and ends.

pub(crate) mod context;
mod launcher;
pub(crate) mod on_stream;
mod once;
pub(crate) mod options;
mod start;
pub(crate) mod unique_id;
