//! The CUDA half of the emulator.
//!
//! A device is a slice of the CPU: memory with a [`heap`](super::memory::heap), streams with a worker thread each, and an
//! error that sticks. [`core`] has devices, streams, events and graphs, [`tasks`] what is done with memory; [`exports`] are the C
//! functions, thin over them.
//!
//! Locks are taken in this order: an event's record or the last launch of a graph, the captures, a device's list of streams, a
//! stream's queue, a device's list of frees that are on their way, its heap, its free ranges, the map of addresses, the registers
//! of handles and of pinned memory. No lock is held while work runs, but that of `driver_lock`, which comes before all others.
#![cfg_attr(not(feature = "nccl"), allow(dead_code, reason = "some of it serves the NCCL half"))]

pub(crate) mod core;
pub(crate) mod error;
pub(crate) mod exports;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
