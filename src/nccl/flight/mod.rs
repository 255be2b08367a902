//! The flight recorder: what each rank has issued last, and how far that is, for who asks why a program hangs.

pub(crate) mod dump;
pub(crate) mod ended;
mod entries;
pub(crate) mod entry;
pub(crate) mod files;
mod json;
pub(crate) mod panic;
pub(crate) mod ras;
#[cfg(feature = "signals")]
pub(crate) mod signal;
