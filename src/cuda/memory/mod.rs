//! Memory of devices and of the host, and what moves between them.

pub(crate) mod allocated;
pub(crate) mod basics;
pub(crate) mod bracket;
pub(crate) mod buffers;
pub(crate) mod cast;
pub(crate) mod copy;
pub(crate) mod fill;
pub(crate) mod foreign;
pub(crate) mod host;
pub(crate) mod launch;
pub(crate) mod methods;
pub(crate) mod pinned_copy;
pub(crate) mod views;
pub(crate) mod way;
