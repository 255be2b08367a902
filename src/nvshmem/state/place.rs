//! Where an operation is done.

use crate::cuda::Stream;

/// Where an operation is done, and the name that its errors have for it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'s> {
    pub(crate) operation: &'static str,
    /// `None` on the host, where the call waits.
    pub(crate) stream: Option<&'s Stream>,
}

impl<'s> Place<'s> {
    /// On the host or on `stream`, with the name of the operation there.
    #[inline]
    pub(crate) fn new(stream: Option<&'s Stream>, host: &'static str, enqueued: &'static str) -> Self {
        Self { operation: if stream.is_some() { enqueued } else { host }, stream }
    }
}
