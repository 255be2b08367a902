//! PyTorch's TCPStore of c10d, as a client and as a server, in the two versions of its protocol.

mod client;
mod codec;
#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/harness/c10d.rs"]
pub(super) mod fuzz;
mod link;
mod place;
mod server;

pub use client::C10d;
pub use place::C10dPlace;
