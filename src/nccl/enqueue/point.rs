//! Points in the sequence of collectives that are no operation on a device: there the ranks do something together, and compare it as they
//! compare operations.

use crate::error::Result;
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::{NOWHERE, Record};
use crate::nccl::rank::traced::Traced;
use crate::nccl::validate::signature::Signature;
use crate::nccl::validate::validator::Validator;

/// Comes to a point of `inner`, whose lock the caller holds, and compares it with the other ranks. Returns its number in the sequence of
/// collectives, or `None` if nothing is compared.
///
/// # Errors
/// What ends the communicator.
pub(crate) fn come(
    inner: &Inner,
    guard: &Guarded,
    operation: &'static str,
    signature: &Signature,
) -> Result<Option<u64>> {
    inner.issued.point(operation, signature.head(), signature.count());
    inner.trace(|| {
        let (head, count) = (signature.head(), signature.count());
        Traced { operation, head, count, stream: 0, captured: false }
    });
    let entry = inner.validation.before_point(inner, operation, signature)?;
    if entry.is_some() {
        write_down(inner, guard, operation, signature, entry);
    }
    Ok(entry)
}

/// Writes down the point that `inner` is about to come to.
pub(crate) fn write_down(
    inner: &Inner,
    guard: &Guarded,
    operation: &'static str,
    signature: &Signature,
    entry: Option<u64>,
) {
    // The next operation gets the number, too: no work is waited for by it. In the sequence it is numbered where it is kept among points.
    let record = inner.record(guard.works.next(), (signature.head(), signature.count()), operation, 0);
    inner.recent.keep(Record { agreed: entry.unwrap_or(NOWHERE), ..record });
}
