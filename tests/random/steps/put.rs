//! One-sided operations: each rank writes to each, into windows over memory of users.

use gpucomm::{Backend, Error, ReduceOp, Result};

use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::step::Step;

/// The most elements that one rank writes to another at once.
const MOST: usize = 700;

/// What each rank has in the window of each: as many elements, and some around them that stay.
const PART: usize = MOST + 5;

const PAGE: usize = 4096 / 4;

const POISON: u32 = 0xfeed_f00d;

/// How many elements each rank writes to each, and on which streams.
#[derive(Debug)]
struct Puts {
    lens: Vec<Vec<usize>>,
    /// How many pages of the memory lie before the window.
    before: usize,
    puts: Vec<Vec<usize>>,
    waits: Vec<usize>,
    reads: Vec<usize>,
    salt: u32,
}

pub fn puts(g: &mut Generator) -> Option<Box<dyn Step>> {
    let ranks = g.ranks();
    let lens = g.each(|g| (0..ranks).map(|_| g.length(MOST)).collect());
    let puts = (0..ranks).map(|_| g.streams()).collect();
    let (before, waits, reads, salt) = (g.rng.usize(..3), g.streams(), g.streams(), g.rng.u32(..));
    Some(Box::new(Puts { lens, before, puts, waits, reads, salt }))
}

impl Puts {
    fn value(&self, from: usize, to: usize, at: usize) -> u32 {
        (at as u32).wrapping_mul(0x9e37_79b9) ^ self.salt ^ ((from * 16 + to) as u32) << 24
    }
}

impl Step for Puts {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        // A device waits for signals itself, and NCCL does not free it where a program is stopped.
        if gpucomm::backend() == Backend::Nvidia {
            return Ok(());
        }
        let (comm, me, ranks) = (rank.comm, rank.number(), rank.comm.size());
        let reads = rank.stream(&self.reads);
        let bytes = (ranks * PART).next_multiple_of(PAGE);
        let mut inbox = gpucomm::nccl::alloc::<u32>(reads, self.before * PAGE + bytes)?;
        let window = comm.window(inbox.slice(self.before * PAGE..))?;
        match comm.prepare_one_sided(reads) {
            Err(Error::Unsupported { .. }) => return Ok(()),
            prepared => prepared?,
        }
        if window.unsupported().is_some() {
            return Ok(());
        }
        let mine: Vec<u32> = (0..ranks * MOST).map(|at| self.value(me, at / MOST, at % MOST)).collect();
        let outbox = comm.alloc_from(reads, &mine)?;
        inbox.fill(reads, POISON)?;
        // All windows are as they shall be.
        comm.barrier_on_stream(reads)?;
        for (step, streams) in self.puts.iter().enumerate() {
            let to = (me + step) % ranks;
            let own = outbox.slice(to * MOST..to * MOST + self.lens[me][to]);
            let stream = rank.stream(streams);
            stream.wait_event(&reads.record()?)?;
            comm.put_signal(own, to, window.at(me * PART + 2), stream)?;
        }
        let all: Vec<_> = (0..ranks).map(|rank| (rank, 1)).collect();
        let from = self.before * PAGE;
        comm.wait_signal_for(&all, inbox.slice_mut(from..), rank.stream(&self.waits))?;
        let got = inbox.to_vec(reads)?;
        for (at, got) in got[from..from + ranks * PART].iter().enumerate() {
            let (from, at) = (at / PART, (at % PART).wrapping_sub(2));
            let want = if at < self.lens[from][me] { self.value(from, me, at) } else { POISON };
            assert_eq!(*got, want, "element {at} of rank {from}: {self:?}");
        }
        // It is a window to others too.
        comm.all_reduce((outbox.slice(..3), inbox.slice_mut(from..from + 3)), ReduceOp::Max, reads)?;
        let most = |at: usize| (0..ranks).map(|from| self.value(from, 0, at)).max().expect("a rank");
        assert_eq!(inbox.slice(from..from + 3).to_vec(reads)?, [most(0), most(1), most(2)]);
        Ok(())
    }
}
