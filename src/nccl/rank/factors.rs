//! Pre-multiplied sums in place of NCCL's own reductions: with factor 1 they are the sum, with
//! factor 1/size the average.

use std::ffi::c_void;
use std::sync::OnceLock;

#[cfg(feature = "float8")]
use float8::{F8E4M3, F8E5M2};
#[cfg(feature = "half")]
use half::{bf16, f16};

use crate::element::ElementKind;
use crate::nccl::raw::data_type;
use crate::sys;

/// The factor by which every element is multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    /// 1: the sum.
    One,
    /// 1/size: the average, as NCCL computes it outside of windows.
    Share,
}

/// The operators of one communicator, by factor and element. Each is made when it is first needed,
/// and ends with the communicator.
#[derive(Debug, Default)]
pub(crate) struct Factors([[OnceLock<sys::ncclRedOp_t>; 5]; 2]);

impl Factors {
    /// The operator for a floating-point type of at most four bytes in a communicator of `size`
    /// ranks; `Err` is NCCL's error.
    ///
    /// # Safety
    ///
    /// `handle` is the live communicator that these belong to, and the caller holds its lock.
    pub(crate) unsafe fn get(
        &self,
        factor: Factor,
        element: ElementKind,
        size: usize,
        handle: sys::ncclComm_t,
    ) -> Result<sys::ncclRedOp_t, sys::ncclResult_t> {
        let value = match factor {
            Factor::One => 1.0,
            Factor::Share => (1.0 / size as f64) as f32,
        };
        let (place, mut scalar) = match element {
            #[cfg(feature = "half")]
            ElementKind::F16 => (0, u32::from(f16::from_f32(value).to_bits())),
            #[cfg(feature = "half")]
            ElementKind::Bf16 => (1, u32::from(bf16::from_f32(value).to_bits())),
            ElementKind::F32 => (2, value.to_bits()),
            #[cfg(feature = "float8")]
            ElementKind::F8E4M3 => (3, u32::from(F8E4M3::from_f32(value).to_bits())),
            #[cfg(feature = "float8")]
            ElementKind::F8E5M2 => (4, u32::from(F8E5M2::from_f32(value).to_bits())),
            _ => return Err(sys::ncclResult_t::ncclInvalidArgument),
        };
        let place = &self.0[factor as usize][place];
        if let Some(op) = place.get() {
            return Ok(*op);
        }
        // Its first bytes are the element: CUDA's hosts are little-endian.
        let scalar: *mut u32 = &mut scalar;
        let scalar: *mut c_void = scalar.cast();
        let mut op = sys::ncclRedOp_t(0);
        let residence = sys::ncclScalarResidence_t::ncclScalarHostImmediate;
        // SAFETY: a live communicator under its lock; NCCL reads one element at `scalar` during the
        // call.
        let code =
            unsafe { sys::ncclRedOpCreatePreMulSum(&mut op, scalar, data_type::raw(element), residence, handle) };
        if code != sys::ncclResult_t::ncclSuccess {
            return Err(code);
        }
        Ok(*place.get_or_init(|| op))
    }
}
