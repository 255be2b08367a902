//! File descriptors between the processes of one host.

mod credentials;
mod message;
mod post;
mod socket;

pub use post::FdSocket;
pub use socket::MAX_FDS;
