//! Communicators that give their memory back for a while.

use gpucomm::nccl::Suspend;
use gpucomm::{DeviceBuffer, Error, InPlace, ReduceOp, Result};

use super::part::works;
use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::step::Step;

/// All ranks suspend the communicator of the program, or a part of its ranks what they split off, and resume it.
#[derive(Debug)]
struct Break {
    /// Who suspends a part.
    part: Option<Vec<bool>>,
    streams: Vec<usize>,
    /// Whether there is work on its way that is not waited for.
    behind: bool,
    /// How often.
    times: usize,
}

pub fn suspend(g: &mut Generator) -> Option<Box<dyn Step>> {
    let part = g.chance(2).then(|| g.each(|g| g.chance(2)));
    let (behind, times) = (g.chance(2), g.rng.usize(1..3));
    Some(Box::new(Break { part, streams: g.streams(), behind, times }))
}

impl Step for Break {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (me, stream) = (rank.number(), rank.stream(&self.streams));
        let part = match &self.part {
            Some(who) => rank.comm.split(who[me].then_some(0), 0)?,
            None => None,
        };
        if self.part.is_some() && part.is_none() {
            return Ok(());
        }
        let comm = part.as_ref().unwrap_or(rank.comm);
        let takes = |other: &usize| self.part.as_ref().is_none_or(|who| who[*other]);
        let there: Vec<_> = (0..rank.comm.size()).filter(takes).collect();
        let most = there.iter().max().map_or(0, |&most| most as u32);
        // Its memory stays: a window, where there are any.
        let mut of_all = comm.alloc_from(stream, &[me as u32; 129])?;
        let mut own = DeviceBuffer::from_slice(stream, &[me as u32; 77])?;
        for _ in 0..self.times {
            if self.behind {
                comm.all_reduce(InPlace(&mut own), ReduceOp::Max, stream)?;
            }
            let suspended = match comm.suspend(Suspend::MEMORY, "the program has a break") {
                Ok(suspended) => suspended,
                // An older NCCL; what shares its resources.
                Err(Error::Unsupported { .. } | Error::InvalidUsage { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            let refused = comm.all_reduce(InPlace(&mut own), ReduceOp::Min, stream);
            match refused {
                Err(Error::Suspended { .. }) => {}
                // Another rank has ended it.
                Err(error @ Error::Aborted { .. }) => return Err(error),
                other => panic!("a suspended communicator: {other:?}"),
            }
            let (expected, used) = (if self.behind { most } else { me as u32 }, own.to_vec(stream)?);
            assert_eq!(used, [expected; 77], "beside a suspended communicator");
            own.copy_from_slice(stream, &[me as u32; 77])?;
            suspended.resume()?;
        }
        comm.all_reduce(InPlace(&mut of_all), ReduceOp::Max, stream)?;
        assert_eq!(of_all.to_vec(stream)?, [most; 129], "after a break");
        works(comm, stream, me, &there)
    }
}
