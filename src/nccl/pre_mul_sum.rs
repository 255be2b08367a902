//! Sums of what each rank has multiplied by a factor of its own.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::calls::operator::Operator;
use super::communicator::Communicator;
use super::rank::inner::Inner;
use super::raw::check::check;
use super::raw::data_type;
use super::raw::outside::outside_of_host_functions;
use crate::cuda::{self, Access, AsSlice, Region, Slice};
use crate::element::Reduce;
use crate::error::{Error, Result};
use crate::sys;

/// Wraps `ncclRedOpCreatePreMulSum`: a reduction that multiplies what this rank contributes by a factor, then sums.
///
/// Made by [`Communicator::pre_mul_sum`] and [`Communicator::pre_mul_sum_device`]; borrows the communicator, and the
/// factor where it lies on the device. Every rank has its own, and the factors may differ. Dropping it wraps
/// `ncclRedOpDestroy`, later where another thread is inside a call on the communicator: it waits for nobody. Operations that
/// were enqueued with it go on.
#[doc(alias = "ncclRedOpCreatePreMulSum")]
pub struct PreMulSum<'a, T> {
    // Dropped before the communicator that it may keep.
    op: Op,
    factor: Option<Region<'a>>,
    _shared: Option<Arc<Communicator>>,
    _element: PhantomData<(&'a Communicator, T)>,
}

/// The operation of NCCL, and the communicator that it is of.
struct Op {
    raw: sys::ncclRedOp_t,
    inner: Arc<Inner>,
}

/// Factors for sums.
impl Communicator {
    /// Wraps `ncclRedOpCreatePreMulSum` with `ncclScalarHostImmediate`: a sum of what each rank has multiplied by its
    /// `factor`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[1f32; 10])?;
    /// let weighted = comm.pre_mul_sum(0.5)?;
    /// comm.all_reduce(InPlace(&mut x), &weighted, &stream)?;
    /// assert_eq!(x.to_vec(&stream)?, [0.5 * comm.size() as f32; 10]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Aborted`] where the communicator has ended; [`Error::Timeout`] where another thread's call on it does not end;
    /// [`Error::InvalidUsage`] within a host function; what NCCL says.
    #[doc(alias("ncclRedOpCreatePreMulSum", "ncclScalarHostImmediate"))]
    pub fn pre_mul_sum<T: Reduce>(&self, factor: T) -> Result<PreMulSum<'_, T>> {
        PreMulSum::with_host_factor(self.inner(), factor)
    }

    /// Wraps `ncclRedOpCreatePreMulSum` with `ncclScalarDevice`: like [`Communicator::pre_mul_sum`], with a factor of one
    /// element in device memory that is read when an operation runs.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // The factor is made on the device, and read there.
    /// let factor = DeviceBuffer::from_slice(&stream, &[2f32])?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[1f32; 10])?;
    /// let weighted = comm.pre_mul_sum_device(&factor)?;
    /// comm.all_reduce(InPlace(&mut x), &weighted, &stream)?;
    /// assert_eq!(x.to_vec(&stream)?, [2.0 * comm.size() as f32; 10]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where `factor` is not one element, or lies on another device; as [`Communicator::pre_mul_sum`].
    #[doc(alias("ncclRedOpCreatePreMulSum", "ncclScalarDevice"))]
    pub fn pre_mul_sum_device<'a, T: Reduce>(&'a self, factor: impl AsSlice<'a, T>) -> Result<PreMulSum<'a, T>> {
        PreMulSum::with_device_factor(self.inner(), factor.into())
    }
}

impl<'a, T: Reduce> PreMulSum<'a, T> {
    fn with_host_factor(inner: &Arc<Inner>, mut factor: T) -> Result<Self> {
        let factor: *mut T = &mut factor;
        // SAFETY: NCCL reads one element at `factor` during the call.
        unsafe {
            Self::create("pre_mul_sum", inner, factor.cast(), sys::ncclScalarResidence_t::ncclScalarHostImmediate, None)
        }
    }

    fn with_device_factor(inner: &Arc<Inner>, factor: Slice<'a, T>) -> Result<Self> {
        const OPERATION: &str = "pre_mul_sum_device";
        if factor.len() != 1 {
            return Err(Error::argument(OPERATION, "factor", "1 element", format!("{} elements", factor.len())));
        }
        let region = factor.region();
        if !region.alloc.serves(inner.device, Access::Read) {
            return Err(Error::argument(OPERATION, "factor", inner.device, region.alloc.who()));
        }
        // SAFETY: the device reads the element when an operation runs. It stays borrowed for as long as this value is
        // there, and each operation is noted as a read of it.
        unsafe {
            Self::create(OPERATION, inner, region.ptr(), sys::ncclScalarResidence_t::ncclScalarDevice, Some(region))
        }
    }

    /// # Safety
    ///
    /// `factor` is one element where `residence` says, for as long as NCCL reads it.
    unsafe fn create(
        operation: &'static str,
        inner: &Arc<Inner>,
        factor: *mut c_void,
        residence: sys::ncclScalarResidence_t,
        region: Option<Region<'a>>,
    ) -> Result<Self> {
        const FUNCTION: &str = "ncclRedOpCreatePreMulSum";
        outside_of_host_functions(operation)?;
        let (_guard, handle) = inner.begin_call(operation)?;
        let mut raw = sys::ncclRedOp_t(0);
        let result = inner.inside(operation, || {
            destroy_dropped(inner, handle);
            // SAFETY: a live communicator during a visit, and a factor as the caller promises.
            unsafe { sys::ncclRedOpCreatePreMulSum(&mut raw, factor, data_type::raw(T::KIND), residence, handle) }
        })?;
        check(FUNCTION, result)?;
        let op = Op { raw, inner: Arc::clone(inner) };
        Ok(Self { op, factor: region, _shared: None, _element: PhantomData })
    }

    /// The same reduction, which keeps its communicator alive instead of borrowing it: for who puts both into one struct.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where it is one of another communicator; [`Error::InvalidUsage`] where its factor lies on the device,
    /// which it borrows. It is gone then.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use gpucomm::nccl::PreMulSum;
    /// use gpucomm::{Clique, Communicator, Device, Result};
    ///
    /// struct Rank {
    ///     comm: Arc<Communicator>,
    ///     halves: PreMulSum<'static, f32>,
    /// }
    ///
    /// fn rank(comm: Communicator) -> Result<Rank> {
    ///     let comm = Arc::new(comm);
    ///     let halves = comm.pre_mul_sum(0.5)?.into_shared(&comm)?;
    ///     Ok(Rank { comm, halves })
    /// }
    /// # let devices = match Device::all() { Ok(devices) => devices, Err(_) => return };
    /// # for comm in Clique::init_all(&devices[..1]).unwrap().into_ranks() {
    /// #     rank(comm).unwrap();
    /// # }
    /// ```
    pub fn into_shared(self, communicator: &Arc<Communicator>) -> Result<PreMulSum<'static, T>> {
        const OPERATION: &str = "into_shared";
        if self.op.inner.id != communicator.inner().id {
            const EXPECTED: &str = "the communicator of the PreMulSum";
            return Err(Error::argument(OPERATION, "communicator", EXPECTED, "another one"));
        }
        if self.factor.is_some() {
            let reason = "the factor lies in device memory, which a PreMulSum borrows".into();
            return Err(Error::InvalidUsage { operation: OPERATION, reason });
        }
        let shared = Some(Arc::clone(communicator));
        Ok(PreMulSum { op: self.op, factor: None, _shared: shared, _element: PhantomData })
    }

    /// The `ncclRedOp_t`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let weighted = comm.pre_mul_sum(0.5f32)?;
    /// println!("{:?}, for calls of NCCL on the same communicator", weighted.as_raw());
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> sys::ncclRedOp_t {
        self.op.raw
    }

    pub(crate) fn operator(&self) -> Operator<'a> {
        Operator::PreMul { op: self.op.raw, communicator: self.op.inner.id, factor: self.factor }
    }
}

impl<T: Reduce> fmt::Debug for PreMulSum<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreMulSum")
            .field("element", &T::KIND)
            .field("rank", &self.op.inner.rank)
            .field("factor", &if self.factor.is_some() { "on the device" } else { "on the host" })
            .finish_non_exhaustive()
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        self.inner.dropped_ops().push(self.raw);
        // Where another thread is inside, the next one destroys it. After an abort the communicator has taken its operations
        // with it, as it does when it is closed.
        if !cuda::is_off_limits()
            && let Some((_guard, handle)) = self.inner.try_begin_call()
        {
            let _ = self.inner.inside("ncclRedOpDestroy", || destroy_dropped(&self.inner, handle));
        }
    }
}

/// Destroys the reductions that were dropped; called during a visit.
fn destroy_dropped(inner: &Inner, handle: sys::ncclComm_t) {
    for raw in std::mem::take(&mut *inner.dropped_ops()) {
        // SAFETY: a live communicator, whose visitor calls this, and an operation of it that is destroyed once.
        let _ = unsafe { sys::ncclRedOpDestroy(raw, handle) };
    }
}
