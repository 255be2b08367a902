//! What a context knows, and what all of its calls go through.

pub(crate) mod abandoned;
pub(crate) mod block_teams;
pub(crate) mod board;
pub(crate) mod call;
pub(crate) mod code;
pub(crate) mod cursor;
pub(crate) mod death_watch;
pub(crate) mod dropped;
pub(crate) mod environment;
pub(crate) mod extent;
pub(crate) mod idle;
pub(crate) mod inner;
pub(crate) mod known_memory;
pub(crate) mod lateness;
pub(crate) mod meeting;
mod notes;
pub(crate) mod order;
pub(crate) mod place;
mod questions;
mod slots;
pub(crate) mod status;
pub(crate) mod teams;
pub(crate) mod wait_idle;
pub(crate) mod wait_state;
mod waiting;
pub(crate) mod watchdog;
mod word_exchange;
