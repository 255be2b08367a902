//! The program as a user runs it: tables, checks, JSON, several processes, and nonsense.

#[cfg(gpucomm_emulator)]
mod diagnose;
mod faults;
mod harness;
mod nonsense;
mod plots;
mod processes;
mod ras;
mod tables;
