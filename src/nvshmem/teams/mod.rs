//! Teams: PEs that do things together.

pub(crate) mod barrier;
pub(crate) mod config;
pub(crate) mod enqueue;
pub(crate) mod kept;
pub(crate) mod on_stream;
pub(crate) mod plane;
pub(crate) mod split;
pub(crate) mod team;
#[cfg(nvshmem_ge_3_3)]
pub(crate) mod unique_id;
