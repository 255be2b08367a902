//! A rank and its buffers, with guard zones around what the operation may touch.

use std::sync::Arc;

use gpucomm::nccl::{CommBuffer, Communicator, PreMulSum, Reduction, Registration};
use gpucomm::{Device, Error, ReduceOp, Stream};

use super::data::factor;
use super::number::Number;
use super::operation::{Operation, Shape};
use crate::failure::{Failure, Result};
use crate::options::{Buffers, RedOp};

/// Bytes before and after the data in each buffer that no operation may write.
pub const GUARD: usize = 4096;

/// Memory from NCCL, in both cases, as nccl-tests takes it: a `DeviceBuffer` is of a memory pool, which every launch pays for.
fn buffer<'c, T: Number>(
    comm: &'c Communicator,
    stream: &Stream,
    len: usize,
    buffers: Buffers,
) -> Result<CommBuffer<'c, T>> {
    if buffers != Buffers::Windows {
        return Ok(comm.alloc_local(stream, len)?.into_fitting());
    }
    match comm.alloc_symmetric(stream, len) {
        Ok(buffer) => Ok(buffer.into_fitting()),
        Err(Error::Unsupported { needs, .. }) => {
            Err(Failure::run(format!("there are no symmetric windows here (-R 2): they take {needs}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Tells NCCL of a buffer. A table that says so where it is without effect would mislead.
fn register<'c, T: Number>(comm: &'c Communicator, buffer: &CommBuffer<'c, T>) -> Result<Registration<'c>> {
    let registration = comm.register(buffer)?;
    match registration.without_effect() {
        Some(reason) => Err(Failure::run(format!("buffers cannot be registered here (-R 1): {reason}"))),
        None => Ok(registration),
    }
}

/// A rank that this thread drives.
#[derive(Debug)]
pub struct Rank<'c, T: Number> {
    pub comm: &'c Communicator,
    pub stream: Arc<Stream>,
    pub send: CommBuffer<'c, T>,
    pub recv: CommBuffer<'c, T>,
    /// Elements that each rank gets from this one, and that this one gets from each, in an all_to_all_v.
    pub counts: (Vec<usize>, Vec<usize>),
    scale: Option<PreMulSum<'c, T>>,
    /// Of both buffers, where that is asked for.
    _registered: Option<[Registration<'c>; 2]>,
}

impl<'c, T: Number> Rank<'c, T> {
    /// Elements in a guard zone.
    pub const GUARD: usize = GUARD / size_of::<T>();

    /// Takes buffers for up to `bytes` of data. All ranks must do so at the same time if they want windows, or register.
    pub fn new(comm: &'c Communicator, bytes: usize, buffers: Buffers, redops: &[Option<RedOp>]) -> Result<Self> {
        let device: Device = comm.device();
        let stream = Arc::new(Stream::new(device)?);
        let len = (bytes / size_of::<T>())
            .checked_add(2 * Self::GUARD)
            .filter(|len| len.checked_mul(size_of::<T>()).is_some())
            .ok_or_else(|| Failure::usage("the largest size (-e) is too large"))?;
        let mut send = buffer(comm, &stream, len, buffers)?;
        let mut recv = buffer(comm, &stream, len, buffers)?;
        let registered = match buffers {
            Buffers::Registered => Some([register(comm, &send)?, register(comm, &recv)?]),
            _ => None,
        };
        // Written once, so that no timed call is the first to touch a page.
        for buffer in [&mut send, &mut recv] {
            buffer.slice_mut(0..len).fill(&stream, T::POISON)?;
        }
        let scale = match redops.contains(&Some(RedOp::MulSum)) {
            true => Some(comm.pre_mul_sum(T::of(factor(comm.rank())))?),
            false => None,
        };
        Ok(Self { comm, stream, send, recv, counts: (Vec::new(), Vec::new()), scale, _registered: registered })
    }

    /// Works out what an all_to_all_v of this shape exchanges.
    pub fn lay_out(&mut self, operation: Operation, shape: &Shape) {
        if operation == Operation::AllToAllV {
            let me = self.comm.rank();
            self.counts = (
                (0..shape.ranks).map(|peer| shape.uneven(me, peer)).collect(),
                (0..shape.ranks).map(|peer| shape.uneven(peer, me)).collect(),
            );
        }
    }

    /// The parts that an operation needs at the same time.
    pub fn parts(&mut self, redop: Option<RedOp>) -> Parts<'_, 'c, T> {
        let op = match redop {
            None => ReduceOp::Sum.into(),
            Some(RedOp::Op(op)) => op.into(),
            Some(RedOp::MulSum) => match &self.scale {
                Some(scale) => scale.into(),
                None => unreachable!("made in `new` when any reduction is mulsum"),
            },
        };
        Parts { comm: self.comm, send: &self.send, recv: &mut self.recv, op, counts: (&self.counts.0, &self.counts.1) }
    }
}

/// The pieces of a [`Rank`], borrowed apart.
#[derive(Debug)]
pub struct Parts<'a, 'c, T: Number> {
    pub comm: &'a Communicator,
    pub send: &'a CommBuffer<'c, T>,
    pub recv: &'a mut CommBuffer<'c, T>,
    pub op: Reduction<'a, T>,
    pub counts: (&'a [usize], &'a [usize]),
}
