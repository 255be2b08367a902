//! How a buffer is divided among ranks.

use crate::collective::What;
use crate::generator::Generator;

/// A part for each rank.
#[derive(Debug, Clone)]
pub struct Parts {
    pub counts: Vec<usize>,
    pub offsets: Vec<usize>,
    /// Whether the offsets are left out when it is passed.
    pub packed: bool,
}

#[derive(Debug, Clone)]
pub enum Layout {
    /// So many elements, undivided.
    Whole(usize),
    /// The same on all ranks.
    Parts(Parts),
    /// Each rank's own, for what it sends and what it receives.
    Matrix { send: Vec<Parts>, recv: Vec<Parts> },
}

impl Parts {
    pub fn packed(counts: Vec<usize>) -> Self {
        let offsets = (0..counts.len()).map(|rank| counts[..rank].iter().sum()).collect();
        Self { counts, offsets, packed: true }
    }

    /// Parts in any order, with gaps, within `room` elements.
    fn scattered(g: &mut Generator, counts: Vec<usize>, room: usize) -> Self {
        let mut slack = room - counts.iter().sum::<usize>();
        let mut order: Vec<usize> = (0..counts.len()).collect();
        g.rng.shuffle(&mut order);
        let mut offsets = vec![0; counts.len()];
        let mut next = 0;
        for rank in order {
            let gap = g.rng.usize(..=slack.min(9));
            slack -= gap;
            offsets[rank] = next + gap;
            next += gap + counts[rank];
        }
        Self { counts, offsets, packed: false }
    }

    fn draw(g: &mut Generator, counts: Vec<usize>, room: usize) -> Self {
        if g.rng.bool() { Self::packed(counts) } else { Self::scattered(g, counts, room) }
    }

    /// The rank, offset and length of each part.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        self.offsets.iter().zip(&self.counts).enumerate().map(|(rank, (&offset, &count))| (rank, offset, count))
    }

    /// Elements up to the end of the last part.
    pub fn end(&self) -> usize {
        self.iter().map(|(_, offset, count)| offset + count).max().unwrap_or_default()
    }

    pub fn as_layout(&self) -> gpucomm::Layout<'_> {
        if self.packed {
            gpucomm::Layout::packed(&self.counts)
        } else {
            gpucomm::Layout::new(&self.counts, &self.offsets)
        }
    }
}

impl Layout {
    /// A layout for buffers of so many elements.
    pub fn draw(g: &mut Generator, what: What, send: usize, recv: usize) -> Self {
        let (ranks, both) = (g.ranks(), send.min(recv));
        let each = |g: &mut Generator, most: usize| -> Vec<usize> { (0..ranks).map(|_| g.length(most)).collect() };
        match what {
            What::AllReduce | What::Reduce | What::Broadcast => Self::Whole(g.length(both)),
            What::AllGather | What::Gather => {
                let count = g.length(send.min(recv / ranks));
                Self::Parts(Parts::packed(vec![count; ranks]))
            }
            What::ReduceScatter | What::Scatter => {
                let count = g.length(both / ranks);
                Self::Parts(Parts::packed(vec![count; ranks]))
            }
            What::AllGatherV | What::GatherV => {
                let counts = each(g, send.min(recv / ranks));
                Self::Parts(Parts::draw(g, counts, recv))
            }
            What::ReduceScatterV | What::ScatterV => {
                let counts = each(g, both / ranks);
                Self::Parts(Parts::draw(g, counts, both))
            }
            What::AllToAll => {
                let parts = Parts::packed(vec![g.length(both / ranks); ranks]);
                Self::Matrix { send: vec![parts.clone(); ranks], recv: vec![parts; ranks] }
            }
            What::AllToAllV => {
                let counts: Vec<Vec<usize>> = (0..ranks).map(|_| each(g, both / ranks)).collect();
                let sent = counts.iter().map(|counts| Parts::draw(g, counts.clone(), send)).collect();
                let received = |rank: usize| counts.iter().map(|counts| counts[rank]).collect();
                let recv = (0..ranks).map(|rank| Parts::draw(g, received(rank), recv)).collect();
                Self::Matrix { send: sent, recv }
            }
        }
    }
}
