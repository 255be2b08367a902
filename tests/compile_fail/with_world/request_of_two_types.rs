//! What is sent and what is received are of one type.
use gpucomm::DeviceBuffer;
use gpucomm::world::{AllGather, Rank};

fn mix(rank: &Rank, send: DeviceBuffer<f32>, recv: DeviceBuffer<i32>) {
    let _ = rank.submit(AllGather::new((send, recv)));
}

fn main() {}
