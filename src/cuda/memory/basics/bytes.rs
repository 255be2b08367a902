//! Lengths in bytes.

use crate::element::{Element, must_fit};
use crate::error::{Error, Result};

/// How many bytes `len` elements are.
pub(crate) fn bytes_of<T: Element>(operation: &'static str, len: usize) -> Result<usize> {
    must_fit::<T>();
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| {
        let most = isize::MAX.unsigned_abs() / size_of::<T>();
        Error::argument(operation, "length", format_args!("at most {most}"), len)
    })
}
