//! Reductions that a program makes: a sum in which each rank's input is first multiplied by a scalar of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::lock::Mutex;
use crate::memory::access::Access;
use crate::memory::object::Location;
use crate::memory::usage::InUse;
use crate::memory::usage::locate;
use crate::memory::usage::reach;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::{Redop, element, element_name};
use crate::sys::{ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t};

/// The scalar of one `ncclRedOpCreatePreMulSum`.
#[derive(Debug, Clone, Copy)]
struct Made {
    datatype: ncclDataType_t,
    scalar: Residence,
}

/// Where a scalar is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Residence {
    /// The bits, read when the operator was made.
    Host(u64),
    /// The address, read when the operation runs.
    Device(usize),
}

/// The operators of one communicator.
#[derive(Debug, Default)]
pub(crate) struct Redops(Mutex<HashMap<u32, Made>>);

/// Numbers are never used twice, so an operator of another communicator, or a destroyed one, is always refused.
static NEXT: AtomicU32 = AtomicU32::new(ncclRedOp_t::ncclNumOps.0);

/// The scalar that goes with a reduction.
#[derive(Debug)]
pub(crate) enum Scalar {
    None,
    Bits(u64),
    /// It is read from there, which is kept until the operation is done.
    At(Location, InUse),
}

/// Makes an operator.
///
/// # Safety
/// With host residence, `scalar` points to an element of that type.
pub(crate) unsafe fn create(
    redops: &Redops,
    scalar: *const u8,
    datatype: ncclDataType_t,
    residence: ncclScalarResidence_t,
) -> Outcome<ncclRedOp_t> {
    let Some((size, name)) = element(datatype) else {
        return Err(Failure::argument(format!("{} is no element type", datatype.0)));
    };
    if scalar.is_null() {
        return Err(Failure::unnoticed("the scalar is null"));
    }
    let scalar = match residence {
        ncclScalarResidence_t::ncclScalarHostImmediate => {
            let mut bits = [0u8; 8];
            // SAFETY: the caller vouches for one element, of at most eight bytes.
            unsafe { std::ptr::copy_nonoverlapping(scalar, bits.as_mut_ptr(), size) };
            Residence::Host(u64::from_le_bytes(bits))
        }
        ncclScalarResidence_t::ncclScalarDevice => {
            locate(scalar.cast(), size)
                .map_err(|fault| Failure::unnoticed(format!("the {name} scalar: {}", fault.text)))?;
            Residence::Device(scalar.expose_provenance())
        }
        other => return Err(Failure::unnoticed(format!("{} is no residence of a scalar", other.0))),
    };
    let op = NEXT.fetch_add(1, Ordering::Relaxed);
    redops.0.lock().insert(op, Made { datatype, scalar });
    Ok(ncclRedOp_t(op))
}

/// Destroys an operator; operations that were issued keep their scalar.
pub(crate) fn destroy(redops: &Redops, op: ncclRedOp_t) -> Outcome {
    if Redop::builtin(op).is_some() {
        return Err(Failure::argument(format!("operator {} is built in and cannot be destroyed", op.0)));
    }
    match redops.0.lock().remove(&op.0) {
        Some(_) => Ok(()),
        None => Err(Failure::argument(format!("operator {} is unknown to this communicator", op.0))),
    }
}

/// Finds what `op` means for elements of `datatype`.
pub(crate) fn resolve(
    redops: &Redops,
    op: ncclRedOp_t,
    datatype: ncclDataType_t,
) -> Outcome<(Redop, Option<Residence>)> {
    if let Some(op) = Redop::builtin(op) {
        return Ok((op, None));
    }
    let made = redops.0.lock().get(&op.0).copied();
    let Some(made) = made else {
        return Err(Failure::argument(format!("operator {} is unknown to this communicator", op.0)));
    };
    if made.datatype != datatype {
        return Err(Failure::argument(format!(
            "operator {} is for {}, expected {}",
            op.0,
            element_name(made.datatype),
            element_name(datatype)
        )));
    }
    Ok((Redop::PreMulSum, Some(made.scalar)))
}

impl Scalar {
    /// That of one run of an operation of `device` on elements of `size` bytes.
    pub(crate) fn find(residence: Option<Residence>, size: usize, device: i32) -> Outcome<Self> {
        match residence {
            None => Ok(Self::None),
            Some(Residence::Host(bits)) => Ok(Self::Bits(bits)),
            Some(Residence::Device(address)) => {
                let (location, used) = locate(std::ptr::without_provenance(address), size)
                    .map_err(|fault| Failure::unnoticed(format!("the scalar of the reduction: {}", fault.text)))?;
                if !address.is_multiple_of(size) {
                    return Err(Failure::unnoticed(format!(
                        "the scalar of the reduction is at {address:#x}, expected a multiple of its {size} bytes"
                    )));
                }
                if used.access(device) < Access::Read {
                    return Err(Failure::unnoticed(format!(
                        "the scalar of the reduction is not open to device {device}"
                    )));
                }
                Ok(Self::At(location, used))
            }
        }
    }

    /// The scalar's bits, now.
    pub(crate) fn bits(&self, size: usize) -> Outcome<u64> {
        match self {
            Self::None => Ok(0),
            Self::Bits(bits) => Ok(*bits),
            Self::At(location, _) => {
                let at = reach(location, size).map_err(|e| Failure::system(format!("the scalar's memory: {e}")))?;
                let mut bits = [0u8; 8];
                // SAFETY: the location was checked to hold one element, and is kept from reuse while `self` lives.
                unsafe { std::ptr::copy_nonoverlapping(at.cast_const(), bits.as_mut_ptr(), size) };
                Ok(u64::from_le_bytes(bits))
            }
        }
    }
}
