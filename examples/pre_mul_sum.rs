//! A weighted mean in one pass: `PreMulSum` multiplies what a rank contributes by a factor of its own before adding up.
//!
//! Rank r processed r + 1 samples. To get the mean over all samples, its mean must weigh in with its share of them.
//!
//! Without a GPU: `cargo run --example pre_mul_sum --features emulator`.

use gpucomm::{Clique, Device, DeviceBuffer, InPlace, Result, Stream};

fn main() -> Result<()> {
    let mut devices = Device::all()?;
    devices.truncate(4);
    let clique = Clique::init_all(&devices)?;
    let samples: usize = (1..=clique.size()).sum();

    let means = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let own = 10.0 * comm.rank() as f64;
        let mut mean = DeviceBuffer::from_slice(&stream, &[own, -own, 1.0])?;
        // The factor belongs to the communicator, which cannot go away while it is in use.
        let share = comm.pre_mul_sum((comm.rank() + 1) as f64 / samples as f64)?;
        comm.all_reduce(InPlace(&mut mean), &share, &stream)?;
        mean.to_vec(&stream)
    })?;

    let sum: f64 = (0..clique.size()).map(|rank| 10.0 * rank as f64 * (rank + 1) as f64).sum();
    let expected = sum / samples as f64;
    for (rank, got) in means.iter().enumerate() {
        for (got, want) in got.iter().zip([expected, -expected, 1.0]) {
            assert!((got - want).abs() < 1e-12 * (1.0 + want.abs()), "rank {rank}: {got} instead of {want}");
        }
    }
    println!("the mean over {samples} samples on {} ranks is {expected:.3}", clique.size());
    Ok(())
}
