//! How NVSHMEM starts and ends in a process.

mod again;
mod ends;
mod starts;
mod watchdog;
