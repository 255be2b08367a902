//! Physical memory that is mapped twice would be two buffers over the same bytes.
use gpucomm::cuda::vmm::PhysicalMemory;

fn twice(memory: &PhysicalMemory) -> (PhysicalMemory, PhysicalMemory) {
    (memory.clone(), memory.clone())
}

fn main() {}
