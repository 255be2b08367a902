//! Puts and gets between all PEs, in every way.

mod batches;
mod blocks;
mod far;
mod nonblocking;
mod pinned;
mod refused;
mod strided;
mod values;
