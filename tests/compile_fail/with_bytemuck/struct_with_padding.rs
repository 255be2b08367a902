//! Padding is no value that could be sent.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Padded {
    mass: f32,
    charge: i8,
}

gpucomm::element!(Padded);

fn main() {}
