//! Reductions of requests.

use std::fmt;

use super::at::At;
use crate::element::Reduce;
use crate::error::Result;
use crate::nccl::{PreMulSum, ReduceOp};

/// What a reducing request does with the elements of the ranks: [`ReduceOp`], which needs no communicator to be named.
///
/// ```
/// use gpucomm::world::{Op, World};
/// use gpucomm::{Device, DeviceBuffer, InPlace, Stream};
///
/// # fn main() -> gpucomm::Result<()> {
/// let world = World::new(&Device::all()?)?;
/// let fill = |device| DeviceBuffer::from_slice(&Stream::new(device)?, &[2f32; 4]).map(InPlace);
/// let own = world.devices().into_iter().map(fill).collect::<gpucomm::Result<Vec<_>>>()?;
/// // The sum of the halves.
/// let sums = world.all_reduce(own, Op::PreMul(0.5)).wait()?;
/// assert_eq!(sums[0].to_vec(&Stream::new(sums[0].device())?)?, [world.size() as f32; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op<T: Reduce> {
    /// [`ReduceOp::Sum`].
    Sum,
    /// [`ReduceOp::Prod`].
    Prod,
    /// [`ReduceOp::Min`].
    Min,
    /// [`ReduceOp::Max`].
    Max,
    /// [`ReduceOp::Avg`].
    Avg,
    /// The sum of what each rank has multiplied by its own factor, which is this one: [`Communicator::pre_mul_sum`](crate::Communicator::pre_mul_sum).
    PreMul(T),
}

/// One, and what the communicator of the rank has made of it.
pub(super) struct Reducing<T: Reduce> {
    op: Op<T>,
    made: Option<PreMulSum<'static, T>>,
}

impl<T: Reduce> From<Op<T>> for Reducing<T> {
    fn from(op: Op<T>) -> Self {
        Self { op, made: None }
    }
}

/// For another rank, which makes its own.
impl<T: Reduce> Clone for Reducing<T> {
    fn clone(&self) -> Self {
        self.op.into()
    }
}

impl<T: Reduce> Reducing<T> {
    /// What NCCL is told.
    pub(super) fn at<'a>(&'a mut self, at: &At<'a>) -> Result<ReduceOp<'a, T>> {
        Ok(match self.op {
            Op::Sum => ReduceOp::Sum,
            Op::Prod => ReduceOp::Prod,
            Op::Min => ReduceOp::Min,
            Op::Max => ReduceOp::Max,
            Op::Avg => ReduceOp::Avg,
            // To find out whether all else is right, it does not matter.
            Op::PreMul(_) if at.is_rehearsal() => ReduceOp::Sum,
            Op::PreMul(factor) => {
                let communicator = at.shared();
                let made = communicator.pre_mul_sum(factor)?.into_shared(communicator)?;
                ReduceOp::PreMul(self.made.insert(made))
            }
        })
    }
}

impl<T: Reduce> fmt::Debug for Reducing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            Op::PreMul(_) => f.write_str("PreMul"),
            _ => write!(f, "{:?}", self.op),
        }
    }
}
