//! The NCCL half of the emulator: NCCL 2.28.9 on the CPU, for ranks as threads and as processes.
//!
//! - The ranks of a communicator meet in a control [`segment`](super::meet::segment) of shared memory, and read and write each
//!   other's device memory, which is shared memory too.
//! - A call makes an [`operation`](requests::operation), a [`group`](calls::group) collects operations, and at its end they are
//!   launched in [`batch`](run::batch)es that run on the threads of their streams: [`collective`](run::collective)
//!   operations, and messages ([`p2p`](run::p2p)).
//! - Handles are numbers that a [`registry`](state::registry) knows, so a stale one is an error.
//! - Whoever waits sleeps, and looks now and then for an abort, a dead peer or a deadlock: see [`watch`](super::meet::watch).

pub(crate) mod basics;
pub(crate) mod bytes;
pub(crate) mod calls;
pub(crate) mod exports;
pub(crate) mod requests;
pub(crate) mod run;
pub(crate) mod state;
#[cfg(test)]
mod tests;
pub(crate) mod wait;
