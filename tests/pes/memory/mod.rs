//! Symmetric memory.

mod allocate;
mod drops;
mod room;
mod views;
