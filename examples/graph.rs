//! A step of every rank, captured once and launched many times: values go in from pinned memory, are summed over the ranks, and come out.
//!
//! Without a GPU: `cargo run --example graph --features emulator`.

use gpucomm::{Clique, Device, DeviceBuffer, InPlace, PinnedBuffer, ReduceOp, Result, Stream};

const LEN: usize = 1000;
const STEPS: usize = 100;

fn main() -> Result<()> {
    let clique = Clique::init_all(&Device::all()?)?;
    clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let mut x = DeviceBuffer::<f32>::zeroed(&stream, LEN)?;
        let (input, output) = (PinnedBuffer::<f32>::zeroed(LEN)?, PinnedBuffer::<f32>::zeroed(LEN)?);
        let mut moved = None;
        let mut graph = stream.capture(|stream| {
            let (input, mut output) = (stream.move_in(input)?, stream.move_in(output)?);
            x.copy_from_pinned(stream, &input)?;
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
            x.copy_to_pinned(stream, &mut output)?;
            moved = Some((input, output));
            Ok(())
        })?;
        let (input, output) = moved.expect("the closure has run");
        for step in 0..STEPS {
            graph.pinned_mut(&input)?.fill((comm.rank() + step) as f32);
            graph.launch(&stream)?;
            let expected: usize = (0..comm.size()).map(|rank| rank + step).sum();
            // Waits until the launch is done.
            assert!(graph.pinned(&output)?.iter().all(|&sum| sum == expected as f32));
        }
        Ok(())
    })?;
    println!("{} ranks launched a graph {STEPS} times: all sums are right", clique.size());
    Ok(())
}
