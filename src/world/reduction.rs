//! Reductions of requests.

use std::fmt;

use super::at::At;
use crate::element::Reduce;
use crate::error::Result;
use crate::nccl::{PreMulSum, Reduction};
use crate::reduce_op::ReduceOp;

/// A sum with a factor: the rank multiplies its elements by this factor before NCCL adds those of all ranks. The factors of the
/// ranks may differ. The rank makes a [`PreMulSum`] of it.
///
/// ```
/// use gpucomm::world::{PreMul, World};
/// use gpucomm::{Device, DeviceBuffer, InPlace, Stream};
///
/// # fn main() -> gpucomm::Result<()> {
/// let world = World::new(&Device::all()?)?;
/// let fill = |device| DeviceBuffer::from_slice(&Stream::new(device)?, &[2f32; 4]).map(InPlace);
/// let own = world.devices().into_iter().map(fill).collect::<gpucomm::Result<Vec<_>>>()?;
/// // The sum of the halves.
/// let sums = world.all_reduce(own, PreMul(0.5)).wait()?;
/// assert_eq!(sums[0].to_vec(&Stream::new(sums[0].device())?)?, [world.size() as f32; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias("PreMulSum", "ncclRedOpCreatePreMulSum"))]
pub struct PreMul<T>(pub T);

/// What a reducing request takes: a [`ReduceOp`] or a [`PreMul`], each of which converts into it. As
/// [`Reduction`](crate::nccl::Reduction), but it borrows nothing.
///
/// Name the type where a program chooses between the two:
///
/// ```
/// use gpucomm::ReduceOp;
/// use gpucomm::world::{PreMul, requests::OwnedReduction};
///
/// fn loss_reduction(factor: Option<f32>) -> OwnedReduction<f32> {
///     factor.map_or(ReduceOp::Avg.into(), |factor| PreMul(factor).into())
/// }
/// # let _ = loss_reduction(Some(0.5));
/// ```
pub struct OwnedReduction<T> {
    kind: Kind<T>,
    /// What the communicator of the rank has made of a factor.
    made: Option<PreMulSum<'static, T>>,
}

#[derive(Debug, Clone, Copy)]
enum Kind<T> {
    Op(ReduceOp),
    PreMul(T),
}

// For any type, so that the compiler's message about one that NCCL does not reduce comes once.
impl<T> From<ReduceOp> for OwnedReduction<T> {
    fn from(op: ReduceOp) -> Self {
        Self { kind: Kind::Op(op), made: None }
    }
}

impl<T> From<PreMul<T>> for OwnedReduction<T> {
    fn from(PreMul(factor): PreMul<T>) -> Self {
        Self { kind: Kind::PreMul(factor), made: None }
    }
}

/// For another rank, which makes its own.
impl<T: Clone> Clone for OwnedReduction<T> {
    fn clone(&self) -> Self {
        Self { kind: self.kind.clone(), made: None }
    }
}

impl<T: fmt::Debug> fmt::Debug for OwnedReduction<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Op(op) => op.fmt(f),
            Kind::PreMul(factor) => f.debug_tuple("PreMul").field(factor).finish(),
        }
    }
}

impl<T: Reduce> OwnedReduction<T> {
    /// What NCCL takes.
    pub(super) fn at<'a>(&'a mut self, at: &At<'a>) -> Result<Reduction<'a, T>> {
        Ok(match self.kind {
            Kind::Op(op) => Reduction::Op(op),
            // To find out whether all else is right, it does not matter.
            Kind::PreMul(_) if at.is_rehearsal() => Reduction::Op(ReduceOp::Sum),
            Kind::PreMul(factor) => {
                let communicator = at.shared();
                let made = communicator.pre_mul_sum(factor)?.into_shared(communicator)?;
                Reduction::PreMul(self.made.insert(made))
            }
        })
    }
}
