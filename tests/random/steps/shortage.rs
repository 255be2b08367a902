//! More memory than there is: an error on all ranks that ask for it together, and all go on.

use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::{Device, DeviceBuffer, Error, PinnedBuffer, Result, Stream};

use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::step::Step;

/// Who asks for memory, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Alloc,
    Symmetric,
    Local,
    Nccl,
    Device,
    Mapped,
    Pinned,
}

impl Ask {
    const ALL: [Self; 7] =
        [Self::Alloc, Self::Symmetric, Self::Local, Self::Nccl, Self::Device, Self::Mapped, Self::Pinned];

    /// Whether all ranks ask together.
    fn is_collective(self) -> bool {
        matches!(self, Self::Alloc | Self::Symmetric)
    }

    fn make(self, rank: &Rank<'_>, stream: &Stream, bytes: usize) -> Result<()> {
        let (comm, device) = (rank.comm, rank.comm.device());
        match self {
            Self::Alloc => comm.alloc::<u8>(stream, bytes).map(drop),
            Self::Symmetric => comm.alloc_symmetric::<u8>(stream, bytes).map(drop),
            Self::Local => comm.alloc_local::<u8>(stream, bytes).map(drop),
            Self::Nccl => gpucomm::nccl::alloc::<u8>(stream, bytes).map(drop),
            Self::Device => DeviceBuffer::<u8>::uninit(stream, bytes).map(drop),
            Self::Mapped => PhysicalMemory::new(device, bytes)
                .and_then(|memory| memory.map(&[Access::read_write(device)]))
                .map(drop),
            Self::Pinned => PinnedBuffer::<u8>::zeroed(bytes).map(drop),
        }
    }
}

/// What is asked for where the device of some rank is full, and what is left there.
const MUCH: usize = 64 << 20;
const LEFT: usize = 16 << 20;

/// More than any device has.
const TOO_MUCH: usize = 1 << 50;

#[derive(Debug)]
struct Shortage {
    ask: Ask,
    /// The ranks whose devices are full meanwhile: others have what is asked for. If there is none, all ask for more than any device has.
    full: Vec<bool>,
    /// Which ranks ask, where they do not ask together.
    asks: Vec<bool>,
    times: usize,
    streams: Vec<usize>,
}

pub fn shortage(g: &mut Generator) -> Option<Box<dyn Step>> {
    let ask = g.choose(&Ask::ALL);
    // Memory of the host, and of pools, which keep what they had, is there all the same.
    let fills = g.rng.bool() && !matches!(ask, Ask::Device | Ask::Pinned);
    let (full, asks) = (g.each(|g| fills && g.rng.bool()), g.each(|g| g.rng.bool()));
    Some(Box::new(Shortage { ask, full, asks, times: g.rng.usize(1..4), streams: g.streams() }))
}

impl Step for Shortage {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (me, device, stream) = (rank.number(), rank.comm.device(), rank.stream(&self.streams));
        let collective = self.ask.is_collective();
        let fills = self.full.contains(&true);
        // Processes that do not compare cannot know that one rank has no memory for a window: that ends the communicator.
        if collective && !rank.together && (fills || self.ask == Ask::Symmetric) {
            return Ok(());
        }
        if !collective && if fills { !self.full[me] } else { !self.asks[me] } {
            return Ok(());
        }
        let _all = if self.full[me] { Some(all_but_some(device)?) } else { None };
        for _ in 0..self.times {
            let bytes = if fills { MUCH } else { TOO_MUCH };
            match self.ask.make(rank, stream, bytes).expect_err("there is no such memory") {
                Error::OutOfMemory { .. } => {}
                Error::Unsupported { .. } if self.ask == Ask::Symmetric => {}
                error => return Err(error),
            }
        }
        Ok(())
    }
}

/// Takes the memory of a device, of which some is left.
fn all_but_some(device: Device) -> Result<PhysicalMemory> {
    PhysicalMemory::new(device, device.memory_info()?.free.saturating_sub(LEFT).max(1))
}
