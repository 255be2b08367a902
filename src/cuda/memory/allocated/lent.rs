//! Memory of others that is lent for a while.

use super::allocation::Allocation;
use super::known::Known;
use crate::cuda::devices::device::Device;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::order::ranged::Span;
use crate::cuda::order::stream::Stream;
use crate::cuda::order::uses::Access;
use crate::error::Result;

impl Allocation {
    /// Memory of others, who lend it until [`Allocation::return_to`]: uses are ordered and remembered; where its bytes come from is not known, and
    /// nobody can keep it for longer.
    pub(crate) fn lent(address: Address, bytes: usize, device: Device) -> Self {
        Self::unkept((address, bytes, device), Known::lent())
    }

    /// Memory that was lent is used no more: later work of `stream` comes after all uses.
    pub(crate) fn return_to(&mut self, stream: &Stream) -> Result<()> {
        self.order(Span::ALL, Access::Write, stream)?;
        self.forget_uses();
        Ok(())
    }
}
