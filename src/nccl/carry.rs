//! What an operation leaves behind in memory: where the bytes that it writes come from.

use std::ptr;
use std::sync::Arc;

use super::call::{Call, Kind};
use crate::cuda::{Origins, Region, Work};

impl Call<'_> {
    /// After the enqueue, or an attempt, as operation `number` of `work`; `together` are the calls of its group, or it alone.
    #[inline]
    pub(crate) fn carry(&self, work: &Arc<Work>, number: u64, together: &[Call<'_>]) {
        let known = |region: &Option<Region<'_>>| region.as_ref().is_none_or(|r| r.alloc.lineage().is_only(work));
        let goes_on = |region: &Region<'_>| region.alloc.lineage().go_on(work, number);
        if !(known(&self.send) && known(&self.scalar) && self.recv.as_ref().is_none_or(goes_on)) {
            self.mix(work, number, together);
        }
    }

    /// The same where other works, or none, have a part in the memory.
    #[cold]
    fn mix(&self, work: &Arc<Work>, number: u64, together: &[Call<'_>]) {
        let mut origins = Origins::new();
        let read_there = self.recv.as_ref().filter(|_| self.reads_recv());
        for region in [self.send.as_ref(), self.scalar.as_ref(), read_there].into_iter().flatten() {
            origins.merge(&region.alloc.lineage().origins());
        }
        // Its waits tell what became of that, though they may never look at the result.
        self.stream.history().cover(&origins);
        if let Some(recv) = &self.recv {
            origins.add(work, number);
            recv.alloc.lineage().inherit(&origins, self.overwrites(together));
        }
    }

    /// Whether it reads what it is about to write, or leaves some of it.
    fn reads_recv(&self) -> bool {
        let receives = matches!(self.kind, Kind::Broadcast { root } if root != self.comm.rank);
        self.send_in_recv.is_some() && !receives
    }

    /// Whether this is the first call of its group to write to its allocation, and together they overwrite all of that.
    fn overwrites(&self, together: &[Call<'_>]) -> bool {
        let Some(Region { alloc, .. }) = &self.recv else { return false };
        let mut bytes = 0;
        for call in together.iter().filter(|call| call.count > 0) {
            if !call.recv.as_ref().is_some_and(|region| Arc::ptr_eq(region.alloc, alloc)) {
                continue;
            }
            if call.reads_recv() || (bytes == 0 && !ptr::eq(call, self)) {
                return false;
            }
            bytes += call.written();
        }
        bytes >= alloc.bytes()
    }

    /// Bytes that it writes on this rank.
    fn written(&self) -> usize {
        let parts = match self.kind {
            Kind::AllGather => self.comm.size,
            #[cfg(nccl_ge_2_28)]
            Kind::AllToAll | Kind::Gather { .. } => self.comm.size,
            _ => 1,
        };
        self.count * parts * self.element.size()
    }
}
