//! A store behind a server in rank 0's process, over TCP.

mod answer;
mod client;
mod connection;
mod dial;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod gate;
mod greeting;
mod link;
mod message;
mod place;
mod proof;
mod requests;
#[cfg(feature = "secret")]
mod secret;
#[cfg(not(feature = "secret"))]
#[path = "no_secret.rs"]
mod secret;
mod server;
mod service;

pub use client::Tcp;
pub use place::TcpPlace;
