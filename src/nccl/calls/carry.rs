//! What an operation leaves behind in memory: where the bytes that it writes come from.

use std::ptr;
use std::sync::Arc;

use super::call::Call;
use super::kind::Kind;
use crate::cuda::carry;
use crate::cuda::{Form, Origins, Region, Work};
use crate::nccl::rank::works::Works;

impl Call<'_> {
    /// Before the call is ordered on its stream: where what it reads comes from, other than its own work.
    #[inline]
    pub(crate) fn origins(&self, works: &Works) -> Option<Origins> {
        if self.reads_own(works) { None } else { self.gather_origins(works) }
    }

    #[cold]
    fn gather_origins(&self, works: &Works) -> Option<Origins> {
        let in_place = self.recv.filter(|_| self.reads_recv());
        let lineages = [self.send, self.scalar, in_place].map(|region| region.map(|region| region.alloc.lineage()));
        carry::reads(works.of(self.stream), self.stream.history(), lineages)
    }

    /// Whether what it reads comes from its own work alone.
    #[inline]
    pub(crate) fn reads_own(&self, works: &Works) -> bool {
        let work = works.of(self.stream);
        let is_own = |region: &Option<Region<'_>>| match region {
            Some(region) => carry::is_own(work, region.alloc.lineage()),
            None => true,
        };
        is_own(&self.send) && is_own(&self.scalar) && (!self.reads_recv() || is_own(&self.recv))
    }

    /// After the enqueue, or an attempt, as operation `number` of `work`, of what comes from `read`; `together` are the calls of
    /// its group, or it alone.
    #[inline]
    pub(crate) fn carry(&self, (work, number): (&Arc<Work>, u64), read: Option<&Origins>, together: &[Call<'_>]) {
        let written = self.recv.as_ref().map(|region| region.alloc.lineage());
        carry::operation((work, number), read, written, self.stream.history(), || self.form(together));
    }

    pub(crate) fn form(&self, together: &[Call<'_>]) -> Form {
        if self.reads_recv() {
            Form::InPlace
        } else if self.overwrites(together) {
            Form::Whole
        } else {
            Form::Part
        }
    }

    /// Whether it reads what it is about to write, or leaves some of it.
    #[inline]
    fn reads_recv(&self) -> bool {
        let receives = matches!(self.kind, Kind::Broadcast { root } if root != self.comm.rank);
        self.send_in_recv.is_some() && !receives
    }

    /// Whether this is the first call of its group to write to its allocation, and together they overwrite all of that.
    fn overwrites(&self, together: &[Call<'_>]) -> bool {
        let Some(Region { alloc, .. }) = &self.recv else { return false };
        let mut bytes = 0;
        for call in together.iter().filter(|call| call.count > 0) {
            if !call.recv.as_ref().is_some_and(|region| ptr::eq(region.alloc, *alloc)) {
                continue;
            }
            if call.reads_recv() || (bytes == 0 && !ptr::eq(call, self)) {
                return false;
            }
            bytes += call.written();
        }
        alloc.is_all(bytes)
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
