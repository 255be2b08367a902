//! The exchange's own store over TCP: its server is in the process of rank 0, or in one that is no
//! rank.

mod client;
mod codec;
#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/harness/tcp.rs"]
pub(super) mod fuzz;
mod greeting;
mod host;
mod jobs;
mod place;
mod secret;
mod server;

pub use client::Tcp;
pub use host::TcpServer;
pub use place::TcpPlace;
