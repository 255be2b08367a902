//! Nothing cannot be sent.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Nothing;

gpucomm::element!(Nothing);

fn main() {}
