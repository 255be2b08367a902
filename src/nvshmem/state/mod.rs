//! What a context knows, and what all of its calls go through.

pub(crate) mod board;
pub(crate) mod call;
pub(crate) mod code;
pub(crate) mod copies;
pub(crate) mod cursor;
pub(crate) mod dropped;
pub(crate) mod environment;
pub(crate) mod extent;
pub(crate) mod idle;
pub(crate) mod inner;
pub(crate) mod lateness;
pub(crate) mod left;
pub(crate) mod meeting;
mod notes;
pub(crate) mod order;
pub(crate) mod own;
mod questions;
mod say;
pub(crate) mod settle;
mod slots;
pub(crate) mod status;
pub(crate) mod teams;
pub(crate) mod watchdog;
