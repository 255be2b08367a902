//! What ranks compare of a call, in numbers that they have in common.

use super::call::Call;
use crate::cuda::Region;
use crate::nccl::validate::signature::{Memory, Place, Signature};

impl Call<'_> {
    /// Of a collective whose group holds so many of its communicator, itself among them: 1 outside of groups.
    #[inline]
    pub(crate) fn signature(&self, group: usize) -> Signature {
        let memory = if self.kind.symmetric() {
            let recv = self.place(self.recv.as_ref());
            Memory::At { send: self.send.as_ref().map_or(recv, |send| self.place(Some(send))), recv }
        } else {
            Memory::InWindows(self.is_in_window())
        };
        let signature = Signature::new(self.head, self.elements, group, memory);
        let signature = if self.stream.records() { signature.captured(self.backings.get()) } else { signature };
        #[cfg(nccl_ge_2_31)]
        if let Some(config) = self.config {
            return signature.configured(config.number());
        }
        signature
    }

    /// Whether it is done in a window, or in registered memory. An empty one lies nowhere. The buffers of what is not compared by place
    /// are all registered or none is, see [`mixed`](super::mixed); so one is looked at.
    #[inline]
    pub(crate) fn is_in_window(&self) -> bool {
        self.count > 0 && self.source().is_some_and(|region| self.comm.windows.of(region) != 0)
    }

    #[inline]
    fn place(&self, region: Option<&Region<'_>>) -> Place {
        region.map_or(Place::NONE, |region| match self.comm.windows.place(region) {
            (0, _) => Place::NONE,
            (window, offset) => Place { window, offset: offset as u64 },
        })
    }
}
