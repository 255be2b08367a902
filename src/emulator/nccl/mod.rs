//! The NCCL half of the emulator: NCCL 2.28.9 on the CPU, for ranks as threads and as processes.
//!
//! - The ranks of a communicator meet in a [`control`] segment of shared memory, and read and write each other's device
//!   memory, which is shared memory too.
//! - A call makes an [`operation`], a [`group`] collects operations, and at its end they are [`launch`]ed in batches that
//!   run on the threads of their streams: [`collective`] operations, and messages ([`p2p`]).
//! - Handles are numbers that a [`registry`] knows, so a stale one is an error.
//! - Whoever waits sleeps, and looks now and then for an abort, a dead peer or a [`deadlock`].

mod beside;
mod collective;
mod comm;
mod config;
mod connect;
mod control;
mod deadlock;
mod error;
pub mod exports;
mod futex;
mod group;
mod grouping;
mod host;
mod init;
mod inject;
mod inside;
mod kind;
mod launch;
mod lifecycle;
mod operation;
mod p2p;
mod process;
mod redop;
mod reduce;
pub(crate) mod registry;
mod share;
mod signature;
mod space;
mod stranded;
#[cfg(test)]
mod tests;
mod transfer;
mod waits;
mod window;
