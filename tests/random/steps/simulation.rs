//! Collectives of which only the time is asked.

use gpucomm::{DeviceBuffer, InPlace, ReduceOp, Result, nccl};

use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::step::Step;

/// All ranks simulate a few sums and broadcasts, of buffers that have something else on their way.
#[derive(Debug)]
struct Simulate {
    /// How many elements each of them has.
    lens: Vec<usize>,
    /// A sum, or a broadcast from this rank.
    root: Option<usize>,
    streams: Vec<usize>,
}

pub fn simulate(g: &mut Generator) -> Option<Box<dyn Step>> {
    let ranks = g.each(|_| ()).len();
    if ranks < 2 {
        return None;
    }
    let lens = (0..g.rng.usize(1..4)).map(|_| g.rng.usize(..20_000)).collect();
    let root = g.chance(2).then(|| g.rng.usize(..ranks));
    Some(Box::new(Simulate { lens, root, streams: g.streams() }))
}

impl Step for Simulate {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (comm, stream, me) = (rank.comm, rank.stream(&self.streams), rank.number() as u32);
        let made = self.lens.iter().map(|&len| DeviceBuffer::from_slice(stream, &vec![me; len]));
        let mut buffers: Vec<_> = made.collect::<Result<_>>()?;
        let time = nccl::simulate(|g| {
            buffers.iter_mut().try_for_each(|buffer| match self.root {
                Some(root) => g.broadcast(comm, InPlace(buffer), root, stream),
                None => g.all_reduce(comm, InPlace(buffer), ReduceOp::Sum, stream),
            })
        })?;
        assert_eq!(time.is_some(), self.lens.iter().any(|len| *len > 0), "an estimate for {:?}", self.lens);
        for buffer in &buffers {
            assert!(buffer.to_vec(stream)?.iter().all(|one| *one == me), "what was simulated has happened");
        }
        Ok(())
    }
}
