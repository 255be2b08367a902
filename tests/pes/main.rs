//! NVSHMEM, as the emulator and the library have it: one suite for both.
//!
//! `cargo test --features emulator,nvshmem --test pes` runs it on the emulator; without that feature it drives the library. Each test
//! starts this program again, once for each PE: as the same test, which does there what it is about. The starting process watches
//! them: where one fails, or all hang, it ends them and shows what each has printed.
//!
//! Where there are fewer devices than PEs, the larger numbers are skipped, and the test says so.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUCOMM_TEST_SEED` | the seed of all random inputs; printed at the start |
//! | `GPUCOMM_TEST_PES_PER_DEVICE` | so many PEs may share a device: NVSHMEM has no collectives then, unless CUDA's MPS runs |
//! | `GPUCOMM_TEST_SLOWER` | multiplies every time limit |

#[cfg(feature = "nccl")]
mod beside_nccl;
mod context;
#[cfg(nvshmem_ge_3_8)]
mod kernels;
mod memory;
mod nodes;
mod programs;
mod rma;
mod signals;
mod starts;
mod support;
mod teams;
mod together;
mod transfers;
mod typed;
mod views;
