//! How the threads and processes of one machine synchronize.
//!
//! - [`segment`]: shared memory that all ranks map. It holds atomics only. Each library adds its own
//!   fields.
//! - [`register`]: the segments of this process, and how a rank joins one.
//! - [`futex`]: waiting for a change in shared memory.
//! - [`meeting`]: an exchange of a few words between ranks, to check that they agree.
//! - [`watch`]: reports which rank waits for which, and ends waits.
//!
//! This module does not know NCCL or NVSHMEM.

pub(crate) mod futex;
pub(crate) mod meeting;
pub(crate) mod register;
pub(crate) mod segment;
pub(crate) mod watch;
