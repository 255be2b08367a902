//! One reduction over many buffers, as trainers have for their gradients.

use super::calls::buffers::Everywhere;
use super::calls::call::Calls;
use super::calls::forms::{AllRanks, IntoBuffers};
use super::calls::operator::Operator;
use super::calls::prepare;
use super::calls::site::Site;
use super::communicator::Communicator;
use super::enqueue::submit;
use super::group::Group;
use super::reduction::Reduction;
use crate::cuda::Stream;
use crate::element::Reduce;
use crate::error::Result;

/// Reductions of many buffers.
impl Communicator {
    /// Wraps `ncclAllReduce`, once a buffer, in one group: NCCL launches them together. Each is in place or out of place, as
    /// [`Communicator::all_reduce`] is; ranks pass as many, of the same lengths, in the same order.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Result, Stream};
    /// # fn main() -> Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let shapes = [1024, 10, 4096];
    /// let mut gradients: Vec<_> =
    ///     shapes.into_iter().map(|len| DeviceBuffer::from_slice(&stream, &vec![1f32; len])).collect::<Result<_>>()?;
    /// comm.all_reduce_many(gradients.iter_mut().map(InPlace), ReduceOp::Avg, &stream)?;
    ///
    /// let mut sums: Vec<_> = shapes.into_iter().map(|len| DeviceBuffer::zeroed(&stream, len)).collect::<Result<_>>()?;
    /// comm.all_reduce_many(gradients.iter().zip(&mut sums), ReduceOp::Sum, &stream)?;
    /// assert_eq!(sums[1].to_vec(&stream)?, [comm.size() as f32; 10]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of operations; of an argument, its text says which buffer it is about, counted from 0. Nothing was submitted then.
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce_many<'a, T: Reduce>(
        &'a self,
        buffers: impl IntoIterator<Item = impl IntoBuffers<'a, T, AllRanks>>,
        op: impl Into<Reduction<'a, T>>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_reduce_many", self.inner(), stream)?;
        let mut calls = Calls::new();
        prepare_all(site, buffers, op.into().operator(), &mut calls)?;
        submit::all(&calls)
    }
}

impl<'a> Group<'a> {
    /// Records [`Communicator::all_reduce_many`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream, group};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut sums = vec![DeviceBuffer::from_slice(&stream, &[1f32; 10])?, DeviceBuffer::from_slice(&stream, &[2f32; 3])?];
    /// let mut seed = DeviceBuffer::from_slice(&stream, &[comm.rank() as u64])?;
    /// group(|g| {
    ///     g.all_reduce_many(comm, sums.iter_mut().map(InPlace), ReduceOp::Avg, &stream)?;
    ///     g.broadcast(comm, InPlace(&mut seed), 0, &stream)
    /// })?;
    /// assert_eq!((sums[1].to_vec(&stream)?, seed.to_vec(&stream)?), (vec![2.0; 3], vec![0]));
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce_many<T: Reduce>(
        &mut self,
        comm: &'a Communicator,
        buffers: impl IntoIterator<Item = impl IntoBuffers<'a, T, AllRanks>>,
        op: impl Into<Reduction<'a, T>>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_reduce_many", comm.inner(), stream)?;
        prepare_all(site, buffers, op.into().operator(), self.calls())
    }
}

/// Adds the calls to `calls`, or none.
fn prepare_all<'a, T: Reduce>(
    site: Site<'a>,
    buffers: impl IntoIterator<Item = impl IntoBuffers<'a, T, AllRanks>>,
    op: Operator<'a>,
    calls: &mut Calls<'a>,
) -> Result<()> {
    let before = calls.len();
    for (at, io) in buffers.into_iter().enumerate() {
        let call = Everywhere::new(site.operation, io.into_buffers()).and_then(|io| prepare::all_reduce(site, io, op));
        match call {
            Ok(call) => calls.push(call),
            Err(error) => {
                calls.truncate(before);
                return Err(error.noted(format_args!("of buffer {at}")));
            }
        }
    }
    Ok(())
}
