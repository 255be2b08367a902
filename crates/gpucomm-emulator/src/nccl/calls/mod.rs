//! Calls of the host.

pub(crate) mod children;
pub(crate) mod connect;
pub(crate) mod group;
pub(crate) mod init;
pub(crate) mod lifecycle;
pub(crate) mod one_sided;
pub(crate) mod window;
pub(crate) mod wish;
