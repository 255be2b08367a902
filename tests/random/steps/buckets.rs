//! One reduction over many buffers.

use gpucomm::{DeviceBuffer, InPlace, ReduceOp, Result};

use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::step::Step;

/// Buffers of these lengths, in which every rank has its number beside that of the buffer.
#[derive(Debug)]
struct Buckets {
    lens: Vec<usize>,
    in_place: Vec<bool>,
    streams: Vec<usize>,
}

pub fn buckets(g: &mut Generator) -> Option<Box<dyn Step>> {
    let most = if g.chance(4) { 160 } else { 12 };
    let lens = (0..g.rng.usize(..most)).map(|_| g.rng.usize(..300)).collect();
    Some(Box::new(Buckets { lens, in_place: g.each(|g| g.rng.bool()), streams: g.streams() }))
}

impl Step for Buckets {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (comm, stream) = (rank.comm, rank.stream(&self.streams));
        let of = |bucket: usize, rank: usize| (bucket * 64 + rank) as i32;
        let full = |value: i32| move |len: &usize| DeviceBuffer::from_slice(stream, &vec![value; *len]);
        let mut x: Vec<_> = self
            .lens
            .iter()
            .enumerate()
            .map(|(bucket, len)| full(of(bucket, comm.rank()))(len))
            .collect::<Result<_>>()?;
        if self.in_place[comm.rank()] {
            comm.all_reduce_many(x.iter_mut().map(InPlace), ReduceOp::Sum, stream)?;
        } else {
            let mut y: Vec<_> = self.lens.iter().map(full(-1)).collect::<Result<_>>()?;
            comm.all_reduce_many(x.iter().zip(&mut y), ReduceOp::Sum, stream)?;
            x = y;
        }
        for (bucket, x) in x.iter().enumerate() {
            let want = (0..comm.size()).map(|rank| of(bucket, rank)).sum();
            assert_eq!(x.to_vec(stream)?, vec![want; self.lens[bucket]], "buffer {bucket} of {self:?}");
        }
        Ok(())
    }
}
