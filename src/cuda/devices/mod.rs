//! Devices, and what the process keeps for each.

pub(crate) mod attribute;
pub(crate) mod check;
mod cores;
pub(crate) mod current;
pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod owners;
mod peers;
pub(crate) mod pool;
pub(crate) mod properties;
pub(crate) mod scarce;
pub(crate) mod settle;
pub(crate) mod thread;
pub(crate) mod versions;
