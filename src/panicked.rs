//! Panics of user code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What was thrown says this, where it is a text.
pub(crate) fn said(payload: &(dyn Any + Send)) -> Option<&str> {
    payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// What `run` returns, or what its panic says, which ends here.
pub(crate) fn caught<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = said(&*payload).unwrap_or("(no message)").to_owned();
        forget(payload);
        text
    })
}

/// Leaves alone what was thrown: its destructor may panic in its turn.
pub(crate) fn forget(payload: Box<dyn Any + Send>) {
    std::mem::forget(payload);
}
