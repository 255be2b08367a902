//! A store behind a server in rank 0's process, over TCP.

mod answer;
mod client;
mod connection;
mod dial;
mod events;
mod message;
mod place;
mod resolve;
mod server;
mod service;

pub use client::Tcp;
pub use place::TcpPlace;
#[cfg(feature = "nccl")]
pub(crate) use resolve::resolve;
