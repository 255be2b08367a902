//! A store in a directory that all ranks share.

mod lock;
mod names;
mod presence;
mod store;

pub use store::Directory;
