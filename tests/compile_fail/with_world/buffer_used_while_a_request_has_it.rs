//! Who has submitted a buffer has it no more, until the answer gives it back.
use gpucomm::world::{Op, World};
use gpucomm::{DeviceBuffer, InPlace, Result, Stream};

fn read(world: &World, x: DeviceBuffer<f32>, stream: &Stream) -> Result<Vec<f32>> {
    let _answer = world.rank(0)?.all_reduce(InPlace(x), Op::Sum);
    x.to_vec(stream)
}

fn main() {}
