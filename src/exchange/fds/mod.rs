//! File descriptors between the processes of one host.

mod credentials;
mod message;
mod post;
mod socket;

#[cfg(any(test, fuzzing))]
pub(super) use message::Header;
pub use post::FdSocket;
pub use socket::MAX_FDS;
