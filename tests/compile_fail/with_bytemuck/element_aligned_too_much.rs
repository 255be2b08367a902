//! Device memory begins at multiples of 256 bytes, not more.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(512))]
struct Page([u8; 512]);

gpucomm::element!(Page);

fn main() {}
