//! A group of very many messages.

use gpucomm::{DeviceBuffer, Result, group};

use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::step::Step;

/// Every rank sends so many messages of a few bytes to the next one, and receives as many.
#[derive(Debug)]
struct Crowd {
    messages: usize,
    streams: Vec<usize>,
}

pub fn crowd(g: &mut Generator) -> Option<Box<dyn Step>> {
    // Beside what a stream or a ledger has room for, now and then.
    let most = if g.chance(3) { 1300 } else { 200 };
    Some(Box::new(Crowd { messages: g.rng.usize(1..most), streams: g.streams() }))
}

impl Step for Crowd {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (comm, stream) = (rank.comm, rank.stream(&self.streams));
        let (me, ranks) = (comm.rank(), comm.size());
        let text = |from: usize| -> Vec<u32> { (0..self.messages).map(|at| (at * 16 + from + 1) as u32).collect() };
        let sent = DeviceBuffer::from_slice(stream, &text(me))?;
        let mut came: Vec<_> =
            (0..self.messages).map(|_| DeviceBuffer::<u32>::zeroed(stream, 1)).collect::<Result<_>>()?;
        let (next, before) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        group(|group| {
            for (at, came) in came.iter_mut().enumerate() {
                group.send(comm, sent.slice(at..=at), next, stream)?;
                group.recv(comm, came, before, stream)?;
            }
            Ok(())
        })?;
        let mut all = DeviceBuffer::<u32>::zeroed(stream, self.messages)?;
        for (at, came) in came.iter().enumerate() {
            all.slice_mut(at..=at).copy_from(stream, came)?;
        }
        assert_eq!(all.to_vec(stream)?, text(before), "a group of {} messages", self.messages);
        Ok(())
    }
}
