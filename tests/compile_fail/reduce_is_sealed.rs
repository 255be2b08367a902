//! What NCCL reduces is known, and nobody can add to it.
use gpucomm::{Element, ElementKind, Reduce};

#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(transparent)]
struct Meters(f32);

// SAFETY: a float.
unsafe impl Element for Meters {}

impl Reduce for Meters {
    const KIND: ElementKind = ElementKind::F32;
}

fn main() {}
