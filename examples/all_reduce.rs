//! The shortest complete program: a thread for each GPU, each contributes its rank, all get the sum.
//!
//! Without a GPU: `cargo run --example all_reduce --features emulator`.

use gpucomm::{Clique, Device, InPlace, ReduceOp, Result, Stream};

fn main() -> Result<()> {
    let clique = Clique::init_all(&Device::all()?)?;
    let sums = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let mut x = comm.alloc_from(&stream, &[comm.rank() as f32; 1024])?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
        x.to_vec(&stream)
    })?;

    let expected: usize = (0..clique.size()).sum();
    assert!(sums.iter().flatten().all(|&sum| sum == expected as f32));
    println!("{} ranks agree: the sum is {expected}", clique.size());
    Ok(())
}
