//! What either way of binding is told.

use std::path::{Path, PathBuf};

use super::find::Found;

/// What is to be bound.
pub struct Wanted<'a> {
    /// The root of this package.
    pub root: &'a Path,
    /// Where bindings go.
    pub out: &'a Path,
    /// Directories of headers.
    pub includes: &'a [PathBuf],
    /// What was found.
    pub all: &'a [&'a Found],
    /// How to do without all this.
    pub instead: &'static str,
}
