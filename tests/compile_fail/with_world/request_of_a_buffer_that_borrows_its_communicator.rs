//! A buffer of a communicator is one that keeps it alive.
use gpucomm::world::{Op, Rank};
use gpucomm::{CommBuffer, InPlace};

fn borrow(rank: &Rank, x: CommBuffer<'_, f32>) {
    let _ = rank.all_reduce(InPlace(x), Op::Sum);
}

fn main() {}
