//! The CUDA half of the emulator.
//!
//! A device is a slice of the CPU: an [`arena`] of memory, streams with a worker thread each, and an error that sticks. The
//! modules below hold one noun each; [`exports`] are the C functions, thin over them.
//!
//! Locks are taken in this order: an event's record, a device's list of streams, a stream's queue, a device's blocks,
//! the registers of handles and of pinned memory. No lock is held while work runs, but that of `driver_lock`, which comes
//! before all others.
#![cfg_attr(not(feature = "nccl"), allow(dead_code, reason = "some of it serves the NCCL half"))]

mod allocator;
pub(in crate::emulator) mod arena;
mod capture;
mod channel;
mod copy;
pub(in crate::emulator) mod device;
mod driver;
mod driver_lock;
pub(in crate::emulator) mod error;
mod event;
pub mod exports;
mod fork;
mod handle;
mod host;
pub(in crate::emulator) mod memory;
mod memset;
mod poison;
mod ranges;
pub(in crate::emulator) mod stream;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic elsewhere: what the locks here guard is consistent between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
