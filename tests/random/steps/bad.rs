//! What must be refused, and change nothing.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use gpucomm::{
    Communicator, DeviceBuffer, Element, Error, InPlace, Layout, ReduceOp, Result, SendOnly, Stream, group as grouped,
};

use crate::generator::Generator;
use crate::model::Model;
use crate::number::{Buffer, Number, typed};
use crate::rank::Rank;
use crate::record::outcome;
use crate::step::Step;

macro_rules! mistakes {
    ($($mistake:ident)*) => {
        #[derive(Debug, Clone, Copy)]
        enum Mistake { $($mistake),* }

        impl Mistake {
            const ALL: &[Self] = &[$(Self::$mistake),*];
        }
    };
}

mistakes! {
    Root
    Peer
    Part
    Short
    StreamOfAnother
    MemoryOfAnother
    UncountableLayout
    LayoutOfAnotherSize
    Overlap
    SendOnlyAtRoot
    Length
}

/// Bad arguments, on all ranks or on one.
#[derive(Debug)]
struct Argument {
    mistake: Mistake,
    only: Option<usize>,
    slot: usize,
    streams: Vec<usize>,
}

pub fn argument(g: &mut Generator) -> Option<Box<dyn Step>> {
    let mistake = g.choose(Mistake::ALL);
    let only = if g.rng.bool() { Some(g.rng.usize(..g.ranks())) } else { None };
    Some(Box::new(Argument { mistake, only, slot: g.live()?, streams: g.streams() }))
}

/// What the refusal says.
fn refused(what: Mistake, result: Result<()>) -> String {
    assert!(matches!(result, Err(Error::InvalidArgument { .. })), "{what:?}: InvalidArgument, not {result:?}");
    outcome(&result)
}

impl Step for Argument {
    fn apply(&self, _: &mut Model) {}

    fn slots(&self) -> Vec<usize> {
        vec![self.slot]
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let me = rank.number();
        if self.only.is_some_and(|only| only != me) {
            return Ok(());
        }
        let (comm, stranger, stream) = (rank.comm, rank.stranger.take(), rank.stream(&self.streams).clone());
        let memory = rank.memory_mut(self.slot);
        let said = typed!(memory.kind(), T => self.mistake.make(comm, stranger.as_ref(), T::of_mut(memory), &stream)?);
        rank.stranger = stranger;
        rank.sees(|| format!("{:?}: {}", self.mistake, said.as_deref().unwrap_or("cannot be made")));
        Ok(())
    }
}

impl Mistake {
    /// Makes it, and returns how it was refused, where these ranks can make it.
    fn make<T: Number>(
        self,
        comm: &Communicator,
        stranger: Option<&(Stream, DeviceBuffer<u8>)>,
        buffer: &mut Buffer<'_, T>,
        stream: &Stream,
    ) -> Result<Option<String>> {
        let (ranks, len) = (comm.size(), buffer.len());
        let all = 0..len;
        let result = match self {
            Self::Root => comm.broadcast(InPlace(buffer.slice_mut(all)), ranks, stream),
            Self::Peer => comm.send(buffer.slice(all), ranks + 3, stream),
            Self::Part if !len.is_multiple_of(ranks) => comm.all_gather(InPlace(buffer.slice_mut(all)), stream),
            Self::Short => {
                let longer = DeviceBuffer::<T>::zeroed(stream, len + 1)?;
                comm.all_reduce((&longer, buffer.slice_mut(all)), ReduceOp::Sum, stream)
            }
            Self::StreamOfAnother => match stranger {
                Some((stream, _)) => comm.all_reduce(InPlace(buffer.slice_mut(all)), ReduceOp::Max, stream),
                None => return Ok(None),
            },
            Self::MemoryOfAnother => match stranger {
                Some((_, memory)) => {
                    let foreign = memory.slice(..len * size_of::<T>()).cast::<T>()?;
                    comm.all_reduce((&foreign, buffer.slice_mut(all)), ReduceOp::Max, stream)
                }
                None => return Ok(None),
            },
            Self::UncountableLayout => {
                comm.all_gather_v(InPlace(buffer.slice_mut(all)), &vec![usize::MAX; ranks], stream)
            }
            Self::LayoutOfAnotherSize => comm.all_gather_v(InPlace(buffer.slice_mut(all)), &vec![0; ranks + 1], stream),
            Self::Overlap if ranks > 1 => {
                let (counts, offsets) = (vec![1; ranks], vec![0; ranks]);
                comm.all_gather_v(InPlace(buffer.slice_mut(all)), Layout::new(&counts, &offsets), stream)
            }
            Self::SendOnlyAtRoot => comm.gather(SendOnly(buffer.slice(all)), comm.rank(), stream),
            Self::Length => buffer.slice_mut(all).copy_from_slice(stream, &vec![<T as Element>::ZERO; len + 1]),
            Self::Part | Self::Overlap => return Ok(None),
        };
        Ok(Some(refused(self, result)))
    }
}

#[derive(Debug, Clone, Copy)]
enum Failure {
    Error,
    Panic,
    Nested,
}

/// A group whose closure fails, on all ranks or on one.
#[derive(Debug)]
struct FailedGroup {
    failure: Failure,
    only: Option<usize>,
    slot: usize,
    streams: Vec<usize>,
}

pub fn group(g: &mut Generator) -> Option<Box<dyn Step>> {
    let failure = g.choose(&[Failure::Error, Failure::Panic, Failure::Nested]);
    let only = if g.rng.bool() { Some(g.rng.usize(..g.ranks())) } else { None };
    Some(Box::new(FailedGroup { failure, only, slot: g.live()?, streams: g.streams() }))
}

impl Step for FailedGroup {
    fn apply(&self, _: &mut Model) {}

    fn slots(&self) -> Vec<usize> {
        vec![self.slot]
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        if self.only.is_some_and(|only| only != rank.number()) {
            return Ok(());
        }
        let (comm, stream) = (rank.comm, rank.stream(&self.streams).clone());
        let memory = rank.memory_mut(self.slot);
        let said = typed!(memory.kind(), T => {
            let len = memory.len();
            let mut buffer = T::of_mut(memory).slice_mut(0..len);
            let mut fail = |end: &dyn Fn() -> Result<()>| {
                grouped(|group| {
                    group.all_reduce(comm, InPlace(buffer.reborrow()), ReduceOp::Sum, &stream)?;
                    end()
                })
            };
            let panic = || resume_unwind(Box::new("a closure that panics"));
            match self.failure {
                Failure::Error => {
                    let end = || Err(Error::InvalidUsage { operation: "random", reason: "a closure that fails".into() });
                    let result = fail(&end);
                    assert!(matches!(result, Err(Error::InvalidUsage { operation: "random", .. })));
                    outcome(&result)
                }
                Failure::Panic => {
                    let caught = catch_unwind(AssertUnwindSafe(|| fail(&panic)));
                    assert!(caught.is_err());
                    "panics".to_owned()
                }
                Failure::Nested => {
                    let result = fail(&|| grouped(|_| Ok(())));
                    assert!(matches!(result, Err(Error::InvalidUsage { .. })));
                    outcome(&result)
                }
            }
        });
        rank.sees(|| said);
        Ok(())
    }
}
