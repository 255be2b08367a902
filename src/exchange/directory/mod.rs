//! A store in a directory that all ranks share.

mod file;
mod lock;
mod names;
mod presence;
mod store;

#[cfg(any(test, fuzzing))]
pub(super) use names::file;
pub use store::Directory;
