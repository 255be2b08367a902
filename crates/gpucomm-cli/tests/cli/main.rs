//! The program as a user runs it: tables, checks, JSON, several processes, and nonsense.

#[cfg(gpucomm_emulator)]
mod diagnose;
#[cfg(gpucomm_emulator)]
mod diagnose_broken;
#[cfg(gpucomm_emulator)]
mod diagnose_dumps;
#[cfg(gpucomm_emulator)]
mod diagnose_places;
mod doctor;
mod faults;
mod harness;
mod nonsense;
#[cfg(feature = "nvshmem")]
mod nvshmem;
#[cfg(gpucomm_emulator)]
mod place;
mod plots;
mod processes;
mod ras;
mod run;
mod run_ends;
mod run_print;
mod run_signals;
#[cfg(gpucomm_emulator)]
mod run_store;
#[path = "../../../../tests/support/slower.rs"]
mod slower;
mod tables;
