//! Reductions of values of the host.

use gpucomm::{ReduceOp, Result};

use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::step::Step;

/// The values of each rank, some ranks' as an array.
#[derive(Debug)]
struct Scalar {
    values: Vec<u64>,
    least: bool,
    array: bool,
    streams: Vec<usize>,
}

pub fn scalar(g: &mut Generator) -> Option<Box<dyn Step>> {
    let values = g.each(|g| g.rng.u64(..));
    let (least, array) = (g.rng.bool(), g.rng.bool());
    Some(Box::new(Scalar { values, least, array, streams: g.streams() }))
}

impl Step for Scalar {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (comm, stream, mine) = (rank.comm, rank.stream(&self.streams), self.values[rank.number()]);
        let values = self.values.iter().copied();
        let (op, want) = if self.least {
            (ReduceOp::Min, values.min().unwrap_or_default())
        } else {
            (ReduceOp::Sum, values.fold(0, u64::wrapping_add))
        };
        if self.array {
            let [one, two] = comm.all_reduce_scalars([7, mine], op, stream)?;
            let sevens = if self.least { 7 } else { 7 * comm.size() as u64 };
            assert_eq!((one, two), (sevens, want), "{self:?}");
        } else {
            assert_eq!(comm.all_reduce_scalar(mine, op, stream)?, want, "{self:?}");
        }
        Ok(())
    }
}
