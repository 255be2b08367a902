//! As an import, to receive shared memory is a promise.
use gpucomm::Result;
use gpucomm::cuda::vmm::PhysicalMemory;
use gpucomm::exchange::FdSocket;

fn receive(socket: &FdSocket) -> Result<PhysicalMemory> {
    PhysicalMemory::receive(socket, 0, "memory")
}

fn main() {}
