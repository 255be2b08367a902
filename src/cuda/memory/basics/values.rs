//! Bytes that a device may have written, as values.

use crate::element::{self, Element};
use crate::error::{Error, Result};

/// Bytes of a wrong value that an error shows.
const SHOWN: usize = 16;

/// Whether these bytes, of elements one behind the other, are values.
#[inline]
pub(crate) fn check<T: Element>(operation: &'static str, bytes: &[u8]) -> Result<()> {
    match T::CHECK {
        Some(are_values) if !are_values(bytes) => Err(wrong::<T>(operation, bytes, are_values)),
        _ => Ok(()),
    }
}

#[cold]
fn wrong<T: Element>(operation: &'static str, bytes: &[u8], are_values: fn(&[u8]) -> bool) -> Error {
    let mut each = bytes.chunks_exact(size_of::<T>()).enumerate();
    let (at, value) = each.find(|(_, value)| !are_values(value)).unwrap_or((0, bytes));
    let shown = &value[..value.len().min(SHOWN)];
    let more = if shown.len() < value.len() { ", …" } else { "" };
    let expected = format!("values of {}", element::name::<T>());
    Error::argument(operation, "memory", expected, format!("bytes {shown:02x?}{more} as element {at}"))
}
