//! What a panic said.

use std::any::Any;

/// What was thrown says this, where it is a text.
pub(crate) fn said(payload: &(dyn Any + Send)) -> Option<&str> {
    payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}
