//! The meeting of ranks that a launcher with PMIx has started.
//!
//! PMIx has no compare-and-set, and sets each value once. So it only announces the server of rank
//! 0, and reports ranks that have ended meanwhile. Everything else goes over TCP.

mod library;
mod place;
mod session;

pub use place::PmixPlace;
