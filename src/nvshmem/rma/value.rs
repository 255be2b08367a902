//! Single elements, whose values are on the host.

use crate::cuda::{Access, Lend, LentUses, values};
use crate::element::{self, Element};
use crate::error::{Error, Result};
use crate::nvshmem::life::context::Context;
use crate::nvshmem::life::on_stream::OnStream;
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::memory::there::There;
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::call::TRANSFER;
use crate::nvshmem::state::place::Place;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// An element that is written on its PE.
struct Written<'m>(There<'m>);

impl Lend for &Written<'_> {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        self.0.add_to(uses, Access::Write);
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}

impl Context {
    /// Wraps `nvshmem_uint8_p`, `nvshmem_uint16_p`, `nvshmem_uint32_p` and `nvshmem_uint64_p`: writes `value` to `dest`, one element, on `pe`. Elements have 1, 2, 4 or 8 bytes; what
    /// they mean does not matter.
    ///
    /// On `pe` it is there after a [`quiet`](Self::quiet) or a [barrier](Self::barrier_all) of this PE.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let flags = ctx.alloc::<f32>(3)?;
    /// ctx.put_value(flags.symmetric(1..2), 2.5, Pe(0))?;
    /// ctx.barrier_all()?;
    /// assert_eq!(ctx.get_value(flags.symmetric(1..2), Pe(0))?, 2.5);
    /// # drop(flags); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a PE that there is none, more or less than one element, elements of another size ([`put`](Self::put) has those), and
    /// memory of another context; [`Error::Timeout`] where streams use that memory of this PE for longer than the timeout.
    #[doc(alias("nvshmem_uint8_p", "nvshmem_uint16_p", "nvshmem_uint32_p", "nvshmem_uint64_p"))]
    pub fn put_value<'a, T: Element>(&self, dest: impl AsSymmetric<'a, T>, value: T, pe: Pe) -> Result<()> {
        self.on_host().put_value(dest, value, pe)
    }

    /// Wraps `nvshmem_uint8_g`, `nvshmem_uint16_g`, `nvshmem_uint32_g` and `nvshmem_uint64_g`: reads `source`, one element of 1, 2, 4 or 8 bytes, on `pe`.
    ///
    /// See [`put_value`](Self::put_value) for an example.
    ///
    /// # Errors
    /// As [`put_value`](Self::put_value); [`Error::Unsupported`] for a PE that [is not near](Self::is_near): [`get`](Self::get) reaches it.
    #[doc(alias("nvshmem_uint8_g", "nvshmem_uint16_g", "nvshmem_uint32_g", "nvshmem_uint64_g"))]
    pub fn get_value<'a, T: Element>(&self, source: impl AsSymmetric<'a, T>, pe: Pe) -> Result<T> {
        const OPERATION: &str = "Context::get_value";
        let inner = self.inner();
        let there = There::one(inner, OPERATION, ("source", source.into()), pe)?;
        inner.check_near(OPERATION, pe)?;
        let size = Bits::of(OPERATION, T::ZERO)?;
        inner.ready(OPERATION)?;
        let _waits = SharedDeadline::begin();
        let _beside = inner.wait_idle_beside(OPERATION)?;
        let _idle =
            if there.own { Some(inner.wait_idle(OPERATION, [(there.region.alloc, Access::Read)])?) } else { None };
        let (source, pe) = (there.region.ptr(), there.pe);
        // SAFETY: symmetric memory of one element of that size, and a PE that is near.
        let bits = inner.on_host(OPERATION, || unsafe {
            match size {
                Bits::U8(_) => Bits::U8(sys::nvshmem_uint8_g(source.cast(), pe)),
                Bits::U16(_) => Bits::U16(sys::nvshmem_uint16_g(source.cast(), pe)),
                Bits::U32(_) => Bits::U32(sys::nvshmem_uint32_g(source.cast(), pe)),
                Bits::U64(_) => Bits::U64(sys::nvshmem_uint64_g(source.cast(), pe)),
            }
        })?;
        bits.value(OPERATION)
    }
}

impl OnStream<'_> {
    /// Enqueues [`Context::put_value`]. The value is taken at once, so it is no part of a graph. Wraps `nvshmemx_uint8_p_on_stream`,
    /// `nvshmemx_uint16_p_on_stream`, `nvshmemx_uint32_p_on_stream` and `nvshmemx_uint64_p_on_stream`.
    ///
    /// # Errors
    /// See [`OnStream`]; [`Error::Unsupported`] for a PE that is not near: the library would have the device read the memory of the host;
    /// [`Error::InvalidUsage`] for a stream that is lent to a capture.
    #[doc(alias(
        "nvshmemx_uint8_p_on_stream",
        "nvshmemx_uint16_p_on_stream",
        "nvshmemx_uint32_p_on_stream",
        "nvshmemx_uint64_p_on_stream"
    ))]
    pub fn put_value<'a, T: Element>(&self, dest: impl AsSymmetric<'a, T>, value: T, pe: Pe) -> Result<()> {
        let (inner, Place { operation, stream }) = self.at("Context::put_value", "OnStream::put_value");
        let there = Written(There::one(inner, operation, ("dest", dest.into()), pe)?);
        let (dest, number, near) = (there.0.region.ptr(), there.0.pe, inner.near[pe.0]);
        if let Some(stream) = stream {
            inner.check_near(operation, pe)?;
            let value = Bits::of(operation, value)?;
            // A graph would read the value again, where it was on the stack.
            stream.no_part_of_capture(operation)?;
            // SAFETY: symmetric memory of one element of that size, a PE, and a stream of its device.
            return inner.on_stream(operation, stream, TRANSFER, &there, |stream| unsafe {
                match value {
                    Bits::U8(value) => sys::nvshmemx_uint8_p_on_stream(dest.cast(), value, number, stream),
                    Bits::U16(value) => sys::nvshmemx_uint16_p_on_stream(dest.cast(), value, number, stream),
                    Bits::U32(value) => sys::nvshmemx_uint32_p_on_stream(dest.cast(), value, number, stream),
                    Bits::U64(value) => sys::nvshmemx_uint64_p_on_stream(dest.cast(), value, number, stream),
                }
            });
        }
        let value = Bits::of(operation, value)?;
        inner.ready(operation)?;
        let _waits = SharedDeadline::begin();
        let beside = inner.wait_idle_beside(operation)?;
        if !near {
            // A transport may not do for the host what it does for streams; the library ends the process then.
            drop(beside);
            let (bits, bytes) = value.all();
            return inner.send(operation, bits, &there, |word, stream| {
                // SAFETY: symmetric memory of an element of so many bytes, a word of this PE that begins with them, a PE, and a stream of its device.
                unsafe { sys::nvshmemx_putmem_on_stream(dest, word, bytes, number, stream) };
            });
        }
        let _idle =
            there.0.own.then(|| inner.wait_idle(operation, [(there.0.region.alloc, Access::Write)])).transpose()?;
        // SAFETY: symmetric memory of one element of that size, and a PE.
        inner.on_host(operation, || unsafe {
            match value {
                Bits::U8(value) => sys::nvshmem_uint8_p(dest.cast(), value, number),
                Bits::U16(value) => sys::nvshmem_uint16_p(dest.cast(), value, number),
                Bits::U32(value) => sys::nvshmem_uint32_p(dest.cast(), value, number),
                Bits::U64(value) => sys::nvshmem_uint64_p(dest.cast(), value, number),
            }
        })
    }
}

/// An element, of which only the bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bits {
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
}

impl Bits {
    fn of<T: Element>(operation: &'static str, value: T) -> Result<Self> {
        let mut bytes = [0; 8];
        let size = size_of::<T>();
        if !matches!(size, 1 | 2 | 4 | 8) {
            let got = format!("{size}, those of {}", element::name::<T>());
            return Err(Error::argument(operation, "bytes of an element", "1, 2, 4 or 8", got));
        }
        // SAFETY: an element has so many bytes, all initialised; there is room for them.
        unsafe { std::ptr::copy_nonoverlapping((&raw const value).cast(), bytes.as_mut_ptr(), size) };
        Ok(match bytes {
            [a, ..] if size == 1 => Self::U8(a),
            [a, b, ..] if size == 2 => Self::U16(u16::from_ne_bytes([a, b])),
            [a, b, c, d, ..] if size == 4 => Self::U32(u32::from_ne_bytes([a, b, c, d])),
            all => Self::U64(u64::from_ne_bytes(all)),
        })
    }

    /// A word that begins with them, and how many bytes they are.
    fn all(self) -> (u64, usize) {
        match self {
            Self::U8(value) => (first(value.to_ne_bytes()), 1),
            Self::U16(value) => (first(value.to_ne_bytes()), 2),
            Self::U32(value) => (first(value.to_ne_bytes()), 4),
            Self::U64(value) => (value, 8),
        }
    }

    /// The element, where these bits are one.
    fn value<T: Element>(self, operation: &'static str) -> Result<T> {
        let (all, size) = self.all();
        let bytes = all.to_ne_bytes();
        assert_eq!(size, size_of::<T>(), "the bits are those of one element");
        values::check::<T>(operation, &bytes[..size])?;
        // SAFETY: so many bytes, which are a value, as was just checked.
        Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
    }
}

/// These bytes, followed by zeros.
fn first<const N: usize>(bytes: [u8; N]) -> u64 {
    let mut all = [0; 8];
    all[..N].copy_from_slice(&bytes);
    u64::from_ne_bytes(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back_as_what_they_were() {
        assert_eq!(Bits::of("put", -2i8).unwrap().value::<i8>("get").unwrap(), -2);
        assert_eq!(Bits::of("put", [1u8, 2]).unwrap().value::<[u8; 2]>("get").unwrap(), [1, 2]);
        assert_eq!(Bits::of("put", 'ß').unwrap().value::<char>("get").unwrap(), 'ß');
        assert_eq!(Bits::of("put", 2.5f64).unwrap(), Bits::U64(2.5f64.to_bits()));
        assert_eq!(Bits::of("put", 0x0102_0304u32).unwrap(), Bits::U32(0x0102_0304));
        assert!(Bits::U8(1).value::<bool>("get").unwrap());
    }

    #[test]
    fn what_is_no_value_is_an_error() {
        assert!(Bits::U8(2).value::<bool>("get").is_err());
        assert!(Bits::U32(0xd800).value::<char>("get").is_err());
        let error = Bits::of("put", [0u8; 3]).unwrap_err().to_string();
        assert!(error.contains("1, 2, 4 or 8") && error.contains("[u8; 3]"), "{error}");
    }
}
