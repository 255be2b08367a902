//! Reductions of values that the host has, and wants back.

use super::calls::buffers::Everywhere;
use super::calls::operator::Operator;
use super::calls::prepare;
use super::calls::site::Site;
use super::communicator::Communicator;
use super::enqueue::in_group;
use super::enqueue::submit;
use super::reduction::Reduction;
use crate::cuda::{DeviceBuffer, Stream};
use crate::deadline::Deadline;
use crate::element::Reduce;
use crate::error::Result;

/// Reductions of values of the host: losses, counts, votes. Each waits for the result, and for what came before it on `stream`.
impl Communicator {
    /// Wraps `ncclAllReduce`: reduces the values of all ranks, and gives every rank the result. Waits for it, no longer than
    /// [`Communicator::timeout`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let slowest = clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     let seconds = 1.5 + comm.rank() as f64;
    ///     comm.all_reduce_scalar(seconds, ReduceOp::Max, &stream)
    /// })?;
    /// assert_eq!(slowest, vec![0.5 + clique.size() as f64; clique.size()]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of operations, and of copies between the host and the device; [`Timeout`](crate::Error::Timeout) says which rank has not come;
    /// [`InvalidUsage`](crate::Error::InvalidUsage) within a [`group`](super::group), which cannot wait; [`OutOfMemory`](crate::Error::OutOfMemory).
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce_scalar<'a, T: Reduce>(
        &self,
        value: T,
        op: impl Into<Reduction<'a, T>>,
        stream: &Stream,
    ) -> Result<T> {
        self.reduce_values("all_reduce_scalar", [value], op.into().operator(), stream).map(|[value]| value)
    }

    /// Wraps `ncclAllReduce`: as [`Communicator::all_reduce_scalar`], for several values, which are reduced position by position: an array, a
    /// vector, or a slice, `&mut values[..]`, that is reduced where it is. Ranks pass as many.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let means = clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     let (loss, samples) = (10.0, 4.0);
    ///     let [loss, samples] = comm.all_reduce_scalars([loss, samples], ReduceOp::Sum, &stream)?;
    ///
    ///     let mut histogram = vec![1u64; 1000];
    ///     comm.all_reduce_scalars(&mut histogram[..], ReduceOp::Sum, &stream)?;
    ///     assert_eq!(histogram, [comm.size() as u64; 1000]);
    ///     Ok(loss / samples)
    /// })?;
    /// assert_eq!(means[0], 2.5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_scalar`]; of a slice, a first part may have been written then.
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce_scalars<'a, T: Reduce, V: AsMut<[T]>>(
        &self,
        values: V,
        op: impl Into<Reduction<'a, T>>,
        stream: &Stream,
    ) -> Result<V> {
        self.reduce_values("all_reduce_scalars", values, op.into().operator(), stream)
    }

    /// The reduction of `operation`.
    fn reduce_values<T: Reduce, V: AsMut<[T]>>(
        &self,
        operation: &'static str,
        mut values: V,
        op: Operator<'_>,
        stream: &Stream,
    ) -> Result<V> {
        let deadline = Deadline::after(self.timeout());
        let site = Site::new(operation, self.inner(), stream)?;
        in_group::outside_of_groups(operation)?;
        let values_here = values.as_mut();
        let mut buffer = DeviceBuffer::from_slice(stream, values_here)?;
        submit::prepared(prepare::all_reduce(site, Everywhere::InPlace(buffer.as_slice_mut().into()), op))?;
        buffer.as_slice().copy_to_slice_until(operation, stream, values_here, &deadline)?;
        Ok(values)
    }
}
