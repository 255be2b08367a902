//! Teams: those that are there, and those that are made of them.

#[cfg(nvshmem_ge_3_3)]
mod by_id;
mod ends;
mod kept;
mod splits;
mod switches;
mod waits;
