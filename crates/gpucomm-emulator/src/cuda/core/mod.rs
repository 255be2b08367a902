//! The core of the driver: devices, streams, their work, events and graphs.

pub(crate) mod capture;
mod crew;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod frees;
pub(crate) mod graph;
pub(crate) mod handle;
pub(crate) mod line;
pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod stream;
pub(crate) mod work;
