//! Where threads and processes of one machine meet.
//!
//! Ranks meet in a [`segment`] of shared memory, which is all atomics, and to which each library adds parts of its own. The
//! [`register`] knows the segments of this process, and has ranks join them by their numbers. Ranks wait on [`futex`]es, and show
//! each other in [`meeting`]s what they must agree on. A [`watch`] says who waits for whom, and ends waits. Nothing here knows what
//! they meet for.

pub(crate) mod futex;
pub(crate) mod meeting;
pub(crate) mod register;
pub(crate) mod segment;
pub(crate) mod watch;
