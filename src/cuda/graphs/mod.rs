//! Graphs: what was captured once, and is launched as often as one likes.

mod capture;
mod captured;
pub(crate) mod executable;
pub(crate) mod graph;
mod launch;
mod life;
pub(crate) mod pinned;
mod update;
