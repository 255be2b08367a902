//! How NVSHMEM starts and ends in a process.

mod again;
mod busy;
mod deaths;
mod destructors;
mod ends;
mod late;
mod starts;
mod watchdog;
