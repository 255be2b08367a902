//! A request owns its buffers: who only borrows one could be gone when the device writes it.
use gpucomm::world::{Op, Rank};
use gpucomm::{DeviceBuffer, InPlace};

fn borrow(rank: &Rank, x: &mut DeviceBuffer<f32>) {
    let _ = rank.all_reduce(InPlace(x), Op::Sum);
}

fn main() {}
