//! The macro asks bytemuck, and makes nothing safe that is not.
#[derive(Clone, Copy)]
struct Flag(bool);

gpucomm::element!(Flag);

fn main() {}
