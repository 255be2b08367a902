//! Multicast objects: what is written to their addresses goes to memory of each of their devices.
//!
//! What all processes know of an object stands in [`control`], a file of its own: which devices it is for, and what is bound where. An
//! [`object`] is one process's end of it. A write finds its [`targets`] when it is enqueued: the memory of each device, mapped as it is bound, on
//! its own of several [`sides`].

pub(crate) mod control;
pub(crate) mod object;
mod sides;
pub(crate) mod targets;
