//! How one rank of a program does something else than the others, so that all must end with an error.

use fastrand::Rng;
use gpucomm::{Backend, DeviceBuffer, ElementKind, InPlace, ReduceOp, Result};

use crate::carried::Carried;
use crate::generator::SPARE;
use crate::message::Message;
use crate::model::Model;
use crate::number::{Buffer, Number, typed};
use crate::operation::{Operation, Region, Target};
use crate::rank::{Rank, Way};
use crate::step::Step;

/// What a rank does in place of a step.
#[derive(Debug)]
pub enum Change {
    Instead(Box<dyn Step>),
    Before(Box<dyn Step>),
    Skip,
    Twice,
}

#[derive(Debug)]
pub struct Deviation {
    /// What differs, in a word.
    pub name: &'static str,
    pub change: Change,
    /// Whether all ranks come together afterwards. Where a rank does one collective less, its next one might be the same as what it
    /// left out, and then its program is another right one. And a rank whose buffers are not what they should be must not look at
    /// them before the others can have noticed.
    pub fence: bool,
    /// Whether ranks that compare before they launch anything find it then, whatever comes of messages.
    pub at_once: bool,
}

impl Deviation {
    pub fn instead(name: &'static str, step: impl Step + 'static) -> Self {
        Self { name, change: Change::Instead(Box::new(step)), fence: false, at_once: true }
    }

    pub fn fenced(name: &'static str, change: Change) -> Self {
        Self { name, change, fence: true, at_once: true }
    }

    /// A receive that nobody sends, or a send that nobody receives.
    pub fn unmatched(rng: &mut Rng, who: usize, ranks: usize, sends: bool) -> Self {
        let peer = (who + rng.usize(1..ranks)) % ranks;
        // No other message has so many elements. NCCL takes some megabytes that nobody receives, and says nothing.
        let len = if sends && gpucomm::backend() == Backend::Nvidia { 400 << 20 } else { 4111 };
        let message = Message {
            kind: ElementKind::U8,
            carried: Carried::Itself,
            from: if sends { who } else { peer },
            to: if sends { peer } else { who },
            send: Region { slot: SPARE[0], at: 0, len },
            target: Target::whole(SPARE[1]),
            recv: Region { slot: SPARE[1], at: 0, len },
            streams: [0, 1],
        };
        let change = Change::Before(Box::new(Stray(Operation::Message(message))));
        Self { name: if sends { "one send more" } else { "one receive more" }, change, fence: false, at_once: false }
    }
}

/// A program's deviation.
#[derive(Debug)]
pub struct Deviant {
    pub rank: usize,
    pub step: usize,
    pub deviation: Deviation,
}

impl Deviant {
    /// Runs a step, this one's way where it is its turn.
    pub fn run(&self, at: usize, step: &dyn Step, rank: &mut Rank<'_>) -> Result<()> {
        if at != self.step {
            return step.run(rank);
        }
        if rank.number() != self.rank {
            step.run(rank)?;
        } else {
            match &self.deviation.change {
                Change::Skip => {}
                Change::Instead(other) => other.run(rank)?,
                Change::Before(other) => {
                    other.run(rank)?;
                    step.run(rank)?;
                }
                Change::Twice => {
                    step.run(rank)?;
                    step.run(rank)?;
                }
            }
        }
        if self.deviation.fence { all_here(rank, 4099) } else { Ok(()) }
    }
}

/// A sum over all ranks of so many elements: after it, everybody has come so far.
pub fn all_here(rank: &Rank<'_>, elements: usize) -> Result<()> {
    let stream = &rank.streams[0];
    let mut ones = DeviceBuffer::from_slice(stream, &vec![1u32; elements])?;
    rank.comm.all_reduce(InPlace(&mut ones), ReduceOp::Sum, stream)?;
    assert_eq!(ones.to_vec(stream)?, vec![rank.comm.size() as u32; elements]);
    Ok(())
}

/// An operation on buffers of its own.
#[derive(Debug)]
pub struct Stray(pub Operation);

impl Step for Stray {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let me = rank.number();
        let regions = [self.0.read(me), self.0.written(me).map(|(_, region)| region)];
        for region in regions.into_iter().flatten() {
            let stream = &rank.streams[0];
            rank.slots[region.slot] = Some(typed!(self.0.kind(), T => {
                T::into_memory(Buffer::Device(DeviceBuffer::<T>::zeroed(stream, region.at + region.len)?))
            }));
        }
        let issued = rank.issue(&[&self.0], Way::OneByOne);
        SPARE.iter().for_each(|slot| rank.slots[*slot] = None);
        issued
    }
}
