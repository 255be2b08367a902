//! The kinds of steps.

pub mod another;
pub mod bad;
pub mod barrier;
pub mod buckets;
pub mod buffer;
pub mod capture;
pub mod check;
pub mod copy;
pub mod crowd;
pub mod exchange;
#[cfg(nccl_ge_2_29)]
pub mod growth;
pub mod order;
pub mod part;
#[cfg(nccl_ge_2_29)]
pub mod put;
pub mod registration;
#[cfg(nccl_ge_2_28_7)]
pub mod rest;
pub mod scalar;
pub mod shortage;
#[cfg(nccl_ge_2_22)]
pub mod simulation;
#[cfg(nccl_ge_2_29_7)]
pub mod suspension;
