//! Ids that one rank makes for all.

use super::handle::Exchange;
use crate::error::{Error, Result};

impl Exchange {
    /// The bytes that rank 0 has made, on all ranks, for `operation`.
    pub(crate) fn share_id<const N: usize>(
        &self,
        operation: &'static str,
        make: impl FnOnce() -> Result<[u8; N]>,
    ) -> Result<[u8; N]> {
        let own = if self.rank() == 0 { Some(make()?) } else { None };
        let bytes = self.broadcast(0, own.as_ref().map_or(&[][..], |id| id))?;
        <[u8; N]>::try_from(&*bytes).map_err(|_| Error::Exchange {
            operation,
            key: "the id".to_owned(),
            reason: format!("expected {N} bytes, got {}", bytes.len()),
        })
    }
}
