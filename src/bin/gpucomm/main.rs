//! The `gpucomm` program.

fn main() {}
