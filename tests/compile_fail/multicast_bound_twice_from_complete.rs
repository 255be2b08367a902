//! With the first memory the object is bound: more is bound to that.
use gpucomm::Result;
use gpucomm::cuda::multicast::{Complete, Multicast, Part};
use gpucomm::cuda::vmm::PhysicalMemory;

fn bind(complete: Multicast<Complete>, a: &PhysicalMemory, b: &PhysicalMemory) -> Result<()> {
    let _bound = complete.bind(Part::memory(a))?;
    let _more = complete.bind(Part::memory(b))?;
    Ok(())
}

fn main() {}
