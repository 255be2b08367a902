//! Streams and events: what comes after what, and how much is on its way.

pub(crate) mod busy;
pub(crate) mod capture;
pub(crate) mod captures;
pub(crate) mod done;
pub(crate) mod event;
mod foreign;
pub(crate) mod gate;
pub(crate) mod host_function;
pub(crate) mod in_flight;
pub(crate) mod lanes;
pub(crate) mod later;
mod left;
pub(crate) mod mark;
pub(crate) mod panics;
mod point;
pub(crate) mod queue;
pub(crate) mod ranged;
pub(crate) mod recording;
pub(crate) mod room;
pub(crate) mod stream;
pub(crate) mod thread_stream;
pub(crate) mod tracker;
mod turn;
pub(crate) mod turns;
pub(crate) mod uses;
pub(crate) mod wait;
pub(crate) mod watch;
