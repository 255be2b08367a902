//! The core of the driver: devices, streams, their work, events and graphs.

pub(crate) mod capture;
pub(crate) mod channel;
mod crew;
pub(crate) mod device;
pub(crate) mod driver_lock;
pub(crate) mod event;
pub(crate) mod fork;
pub(crate) mod frees;
pub(crate) mod graph;
pub(crate) mod handle;
pub(crate) mod lanes;
pub(crate) mod line;
mod per_device;
pub(crate) mod plan;
mod precedence;
mod queue;
pub(crate) mod stream;
pub(crate) mod task;
mod unordered;
pub(crate) mod work;
