//! Puts and gets of elements that do not lie side by side.

use std::ffi::{c_int, c_void};

use super::transfer::{Ends, Transfer};
use crate::cuda::Access;
use crate::element::{self, Element};
use crate::error::{Error, Result};
use crate::nvshmem::life::context::Context;
use crate::nvshmem::life::on_stream::OnStream;
use crate::nvshmem::memory::local::{AsLocal, AsLocalMut, Local};
use crate::nvshmem::memory::slice::{AsSymmetric, SymmetricSlice};
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::place::Place;
use crate::sys;

/// The most bytes from one element to the next: what CUDA's copies take.
const MOST: usize = i32::MAX as usize;

/// From one element to the next, in elements: 1 where they lie side by side, 2 where every other one counts. At least 1.
///
/// ```
/// use gpucomm::nvshmem::Strides;
///
/// // Of a matrix with `columns` columns, one column, to places side by side.
/// let columns = 5;
/// let gathered = Strides { dest: 1, source: columns };
/// assert_ne!(gathered, Strides { dest: columns, source: 1 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Strides {
    /// Of the elements that are written.
    pub dest: usize,
    /// Of those that are read.
    pub source: usize,
}

type HostCall = unsafe extern "C" fn(*mut c_void, *const c_void, isize, isize, usize, c_int);
type StreamCall = unsafe extern "C" fn(*mut c_void, *const c_void, isize, isize, usize, c_int, sys::cudaStream_t);

macro_rules! calls {
    ($($bytes:literal => $put:ident, $get:ident, $put_on_stream:ident, $get_on_stream:ident;)*) => {
        /// Those of elements of so many bytes, by the access to the local operand.
        fn calls(bytes: usize, access: Access) -> Option<(HostCall, StreamCall)> {
            match (bytes, access) {
                $(($bytes, Access::Read) => Some((sys::$put, sys::$put_on_stream)),
                ($bytes, Access::Write) => Some((sys::$get, sys::$get_on_stream)),)*
                _ => None,
            }
        }
    };
}

calls! {
    1 => nvshmem_iput8, nvshmem_iget8, nvshmemx_iput8_on_stream, nvshmemx_iget8_on_stream;
    2 => nvshmem_iput16, nvshmem_iget16, nvshmemx_iput16_on_stream, nvshmemx_iget16_on_stream;
    4 => nvshmem_iput32, nvshmem_iget32, nvshmemx_iput32_on_stream, nvshmemx_iget32_on_stream;
    8 => nvshmem_iput64, nvshmem_iget64, nvshmemx_iput64_on_stream, nvshmemx_iget64_on_stream;
    16 => nvshmem_iput128, nvshmem_iget128, nvshmemx_iput128_on_stream, nvshmemx_iget128_on_stream;
}

/// A strided transfer, checked.
struct Strided<'m> {
    transfer: Transfer<'m>,
    calls: (HostCall, StreamCall),
    /// Of `dest` and `source`, as the library takes them.
    strides: (isize, isize),
    len: usize,
}

/// # Strided transfers
///
/// `len` elements, of 1, 2, 4, 8 or 16 bytes, from the first one of `source` on, to places from the first one of `dest` on. `pe` [is near](Self::is_near): the library
/// has no strided transfers over a network. Otherwise they are as [`put`](Self::put) and [`get`](Self::get).
impl Context {
    /// Wraps `nvshmem_iput8`, `nvshmem_iput16`, `nvshmem_iput32`, `nvshmem_iput64` and `nvshmem_iput128`: copies every `strides.source`-th element of `source`, `len` of them, to every
    /// `strides.dest`-th place of `dest` on `pe`. Waits until `source` may be used again.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Strides, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (matrix, column) = (ctx.alloc::<f32>(6)?, DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0])?);
    /// // The middle one of three columns.
    /// ctx.iput(matrix.symmetric(1..), &column, Strides { dest: 3, source: 1 }, 2, Pe(0))?;
    /// ctx.barrier_all()?;
    /// assert_eq!(matrix.to_vec(&stream)?, [0.0, 1.0, 0.0, 0.0, 2.0, 0.0]);
    /// # drop(matrix); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for strides that are 0, or of more than 2 GiB, operands that are too short, and elements of another size;
    /// [`Error::Unsupported`] for a PE that is not near; as [`put`](Self::put).
    #[doc(alias("nvshmem_iput8", "nvshmem_iput16", "nvshmem_iput32", "nvshmem_iput64", "nvshmem_iput128"))]
    pub fn iput<'a, T: Element>(
        &self,
        dest: impl AsSymmetric<'a, T>,
        source: impl AsLocal<'a, T>,
        strides: Strides,
        len: usize,
        pe: Pe,
    ) -> Result<()> {
        self.on_host().iput(dest, source, strides, len, pe)
    }

    /// Wraps `nvshmem_iget8`, `nvshmem_iget16`, `nvshmem_iget32`, `nvshmem_iget64` and `nvshmem_iget128`: copies every `strides.source`-th element of `source` on `pe`, `len` of them, to
    /// every `strides.dest`-th place of `dest`. They are there when it returns.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Strides, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let mut numbers = ctx.alloc::<u8>(5)?;
    /// numbers.copy_from_slice(&stream, &[1, 2, 3, 4, 5])?;
    /// stream.synchronize()?;
    /// ctx.barrier_all()?;
    /// let mut odd = DeviceBuffer::<u8>::zeroed(&stream, 3)?;
    /// ctx.iget(&mut odd, &numbers, Strides { dest: 1, source: 2 }, 3, Pe(0))?;
    /// assert_eq!(odd.to_vec(&stream)?, [1, 3, 5]);
    /// # drop(numbers); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`iput`](Self::iput).
    #[doc(alias("nvshmem_iget8", "nvshmem_iget16", "nvshmem_iget32", "nvshmem_iget64", "nvshmem_iget128"))]
    pub fn iget<'a, T: Element>(
        &self,
        dest: impl AsLocalMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        strides: Strides,
        len: usize,
        pe: Pe,
    ) -> Result<()> {
        self.on_host().iget(dest, source, strides, len, pe)
    }
}

impl OnStream<'_> {
    /// Enqueues [`Context::iput`]. Wraps `nvshmemx_iput8_on_stream`, and those of 16, 32, 64 and 128 bits.
    #[doc(alias(
        "nvshmemx_iput8_on_stream",
        "nvshmemx_iput16_on_stream",
        "nvshmemx_iput32_on_stream",
        "nvshmemx_iput64_on_stream",
        "nvshmemx_iput128_on_stream"
    ))]
    pub fn iput<'a, T: Element>(
        &self,
        dest: impl AsSymmetric<'a, T>,
        source: impl AsLocal<'a, T>,
        strides: Strides,
        len: usize,
        pe: Pe,
    ) -> Result<()> {
        let (inner, place) = self.at("Context::iput", "OnStream::iput");
        let operands = (dest.into(), source.local_operand());
        Strided::put(inner, place.operation, operands, (strides, len), pe)?.run(inner, place)
    }

    /// Enqueues [`Context::iget`]. Wraps `nvshmemx_iget8_on_stream`, and those of 16, 32, 64 and 128 bits.
    #[doc(alias(
        "nvshmemx_iget8_on_stream",
        "nvshmemx_iget16_on_stream",
        "nvshmemx_iget32_on_stream",
        "nvshmemx_iget64_on_stream",
        "nvshmemx_iget128_on_stream"
    ))]
    pub fn iget<'a, T: Element>(
        &self,
        dest: impl AsLocalMut<'a, T>,
        source: impl AsSymmetric<'a, T>,
        strides: Strides,
        len: usize,
        pe: Pe,
    ) -> Result<()> {
        let (inner, place) = self.at("Context::iget", "OnStream::iget");
        let operands = (dest.local_operand(), source.into());
        Strided::get(inner, place.operation, operands, (strides, len), pe)?.run(inner, place)
    }
}

impl<'m> Strided<'m> {
    fn run(&self, inner: &Inner, place: Place<'_>) -> Result<()> {
        let ((host, on_stream), (dest, source), len) = (self.calls, self.strides, self.len);
        // SAFETY: symmetric memory and local memory that nobody uses and that is borrowed for this access, with so many elements at these strides, and a
        // PE that is near.
        let near = |ends: Ends| unsafe { host(ends.to, ends.from, dest, source, len, ends.pe) };
        self.transfer.run_by(inner, place, near, |ends, stream| {
            // SAFETY: the same, with local memory that is ordered, and a stream of the PE's device.
            unsafe { on_stream(ends.to, ends.from, dest, source, len, ends.pe, stream) };
        })
    }

    fn put<T: Element>(
        inner: &Inner,
        operation: &'static str,
        (dest, source): (SymmetricSlice<'m, T>, Local<'m>),
        (strides, len): (Strides, usize),
        pe: Pe,
    ) -> Result<Self> {
        let dest = dest.slice(..extent::<T>(operation, ("dest", dest.len()), strides.dest, len)?);
        let source = source.first::<T>(extent::<T>(operation, ("source", source.len()), strides.source, len)?);
        let local = ("source", source, Access::Read);
        Self::new(inner, operation, local, ("dest", dest), (strides, len), pe)
    }

    fn get<T: Element>(
        inner: &Inner,
        operation: &'static str,
        (dest, source): (Local<'m>, SymmetricSlice<'m, T>),
        (strides, len): (Strides, usize),
        pe: Pe,
    ) -> Result<Self> {
        let source = source.slice(..extent::<T>(operation, ("source", source.len()), strides.source, len)?);
        let dest = dest.first::<T>(extent::<T>(operation, ("dest", dest.len()), strides.dest, len)?);
        let local = ("dest", dest, Access::Write);
        Self::new(inner, operation, local, ("source", source), (strides, len), pe)
    }

    fn new<T: Element>(
        inner: &Inner,
        operation: &'static str,
        local: (&'static str, Local<'m>, Access),
        remote: (&'static str, SymmetricSlice<'m, T>),
        (Strides { dest, source }, len): (Strides, usize),
        pe: Pe,
    ) -> Result<Self> {
        let calls = calls(size_of::<T>(), local.2).ok_or_else(|| {
            let got = format!("{}, those of {}", size_of::<T>(), element::name::<T>());
            Error::argument(operation, "bytes of an element", "1, 2, 4, 8 or 16", got)
        })?;
        inner.check_near(operation, pe)?;
        let transfer = Transfer::of(inner, operation, local, remote, pe)?;
        // They are small, as was looked at before.
        Ok(Self { transfer, calls, strides: (dest as isize, source as isize), len })
    }
}

/// From the first of `len` elements at `stride` to behind the last one, in elements, where there are as many.
fn extent<T: Element>(
    operation: &'static str,
    (what, there): (&'static str, usize),
    stride: usize,
    len: usize,
) -> Result<usize> {
    let most = MOST / size_of::<T>();
    if stride == 0 || stride > most {
        return Err(Error::argument(operation, "strides", format_args!("1 to {most} for {what}"), stride));
    }
    let Some(before) = len.checked_sub(1) else { return Ok(0) };
    match before.checked_mul(stride).and_then(|last| last.checked_add(1)) {
        Some(extent) if extent <= there => Ok(extent),
        _ => {
            let expected = format!("at least {len} elements, each {stride} behind the one before");
            Err(Error::argument(operation, what, expected, format_args!("{there} elements")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents() {
        let extent = |there, stride, len| extent::<u32>("iput", ("dest", there), stride, len).ok();
        assert_eq!(
            [extent(5, 2, 3), extent(4, 2, 3), extent(3, 1, 3), extent(0, 7, 0)],
            [Some(5), None, Some(3), Some(0)]
        );
        assert_eq!([extent(1, 1000, 1), extent(1000, 1000, 2), extent(1001, 1000, 2)], [Some(1), None, Some(1001)]);
        assert_eq!([extent(5, 0, 1), extent(5, 0, 0), extent(5, MOST / 4 + 1, 1)], [None; 3]);
        assert_eq!([extent(5, MOST / 4, 1), extent(usize::MAX, MOST / 4, usize::MAX)], [Some(1), None]);
    }

    #[test]
    fn sizes() {
        let have: Vec<usize> = (0..40).filter(|bytes| calls(*bytes, Access::Read).is_some()).collect();
        assert_eq!(have, [1, 2, 4, 8, 16]);
    }
}
