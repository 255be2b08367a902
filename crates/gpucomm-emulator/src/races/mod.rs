//! Races: accesses to one piece of memory that nothing puts in order.
//!
//! Whoever enqueues work says which memory it reads and writes. What was before is remembered for each piece of memory, until
//! something comes that is behind it, or the host has seen it done. What is before what follows from the calls alone, not from the time at which
//! work happens to run: so a wait that is missing is found though the emulator's work is nearly always done at once.
//!
//! What one process does is seen, and that of its own streams. Not seen is what the host does with pinned memory.

pub(crate) mod course;
pub(crate) mod touches;
