//! Of a struct somebody has to say that all bit patterns are values.
use gpucomm::PinnedBuffer;

#[derive(Clone, Copy)]
struct Particle {
    mass: f32,
    charge: i8,
}

fn particles() {
    let _ = PinnedBuffer::from_slice(&[Particle { mass: 1.0, charge: 2 }]);
}

fn main() {}
