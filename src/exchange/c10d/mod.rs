//! PyTorch's TCPStore of c10d, as a client and as a server.
//!
//! What is said, in both protocols: a query of one byte, and what it is about, texts and values with a length of eight bytes before
//! each. Today's begins with a hello of five bytes, which nobody answers; before that there was none, and other numbers of queries.

mod client;
mod connection;
mod dialect;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod place;
mod queries;
mod scan;
mod sealed;
mod service;
mod talk;
mod values;
mod waits;

pub use client::C10d;
pub use place::C10dPlace;
