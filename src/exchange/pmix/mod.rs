//! Where the ranks of a launcher with PMIx meet.
//!
//! PMIx has values that are put once, and no compare-and-set: it tells the others where rank 0 is, and who has ended meanwhile. All else goes
//! over TCP.

mod asked;
mod library;
mod meeting;
mod place;
mod session;

pub use place::PmixPlace;
