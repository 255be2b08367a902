//! Where threads and processes of one machine meet.
//!
//! Ranks meet in a [`segment`] of shared memory, whose [`layout`] is all atomics, and to which they add a [`plan`] of their own; they [`join`] it by their numbers, and the [`register`] knows those of this process. They
//! wait on [`futex`]es, ask whether a [`process`] still lives, and tell each other in [`meeting`]s what they must agree on. A
//! [`watch`] says who waits for whom, and ends waits. Nothing here knows what they meet for.

pub(crate) mod futex;
pub(crate) mod join;
pub(crate) mod layout;
pub(crate) mod meeting;
pub(crate) mod plan;
pub(crate) mod process;
pub(crate) mod register;
pub(crate) mod segment;
pub(crate) mod trouble;
pub(crate) mod waits;
pub(crate) mod watch;
