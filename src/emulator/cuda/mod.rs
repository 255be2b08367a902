//! The CUDA half of the emulator.
//!
//! A device is a slice of the CPU: an [`arena`](super::memory::arena) of memory, streams with a worker thread each, and an error that sticks. The
//! modules below hold one noun each; [`exports`] are the C functions, thin over them.
//!
//! Locks are taken in this order: an event's record, a device's list of streams, a stream's queue, a device's blocks,
//! the registers of handles and of pinned memory. No lock is held while work runs, but that of `driver_lock`, which comes
//! before all others.
#![cfg_attr(not(feature = "nccl"), allow(dead_code, reason = "some of it serves the NCCL half"))]

pub(crate) mod core;
mod driver;
pub(in crate::emulator) mod error;
pub mod exports;
#[cfg(test)]
mod tests;
pub(crate) mod work;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic elsewhere: what the locks here guard is consistent between any two statements.
pub(in crate::emulator) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
