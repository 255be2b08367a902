//! Pre-multiplied sums whose factor is one: the sum, by another name.

use std::ffi::c_void;
use std::sync::OnceLock;

use half::{bf16, f16};

use super::data_type;
use crate::element::ElementKind;
use crate::sys;

/// Those of one communicator, made when they are first needed, and gone with it.
#[derive(Debug, Default)]
pub(crate) struct Ones {
    f16: OnceLock<sys::ncclRedOp_t>,
    bf16: OnceLock<sys::ncclRedOp_t>,
}

impl Ones {
    /// The one for an element type of two bytes that can be summed; `Err` is what NCCL says.
    ///
    /// # Safety
    ///
    /// `handle` is the live communicator that these belong to, and the caller holds its lock.
    pub(crate) unsafe fn get(
        &self,
        element: ElementKind,
        handle: sys::ncclComm_t,
    ) -> Result<sys::ncclRedOp_t, sys::ncclResult_t> {
        let (place, mut one) = match element {
            ElementKind::F16 => (&self.f16, f16::ONE.to_bits()),
            ElementKind::Bf16 => (&self.bf16, bf16::ONE.to_bits()),
            _ => return Err(sys::ncclResult_t::ncclInvalidArgument),
        };
        if let Some(op) = place.get() {
            return Ok(*op);
        }
        let one: *mut u16 = &mut one;
        let one: *mut c_void = one.cast();
        let mut op = sys::ncclRedOp_t(0);
        let residence = sys::ncclScalarResidence_t::ncclScalarHostImmediate;
        // SAFETY: a live communicator under its lock; NCCL reads one element at `one` during the call.
        let code = unsafe { sys::ncclRedOpCreatePreMulSum(&mut op, one, data_type::raw(element), residence, handle) };
        if code != sys::ncclResult_t::ncclSuccess {
            return Err(code);
        }
        Ok(*place.get_or_init(|| op))
    }
}
