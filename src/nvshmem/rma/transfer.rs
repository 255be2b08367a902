//! The operands of a transfer, checked: what is wrong with them the library would answer by the end of the process.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use crate::cuda::{Access, Lend, LentUses};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::memory::local::Local;
use crate::nvshmem::memory::slice::SymmetricSlice;
use crate::nvshmem::memory::there::{There, check_len};
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::call::TRANSFER;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::place::Place;
use crate::nvshmem::state::wait_idle::IdleGuard;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// The memory of a put or a get.
pub(crate) struct Transfer<'m> {
    local: Local<'m>,
    /// The access to the local operand. The remote operand has the opposite one.
    access: Access,
    there: There<'m>,
}

impl<'m> Transfer<'m> {
    /// Of `source` to `dest` on `pe`.
    pub(crate) fn put<T: Element>(
        inner: &Inner,
        operation: &'static str,
        dest: SymmetricSlice<'m, T>,
        source: Local<'m>,
        pe: Pe,
    ) -> Result<Self> {
        same_length(operation, ("source", source.len()), ("dest", dest.len()))?;
        Self::of(inner, operation, ("source", source, Access::Read), ("dest", dest), pe)
    }

    /// Of `source` on `pe` to `dest`.
    pub(crate) fn get<T: Element>(
        inner: &Inner,
        operation: &'static str,
        dest: Local<'m>,
        source: SymmetricSlice<'m, T>,
        pe: Pe,
    ) -> Result<Self> {
        same_length(operation, ("dest", dest.len()), ("source", source.len()))?;
        Self::of(inner, operation, ("dest", dest, Access::Write), ("source", source), pe)
    }

    /// The same of parts, whose lengths the caller compares.
    pub(crate) fn of<T: Element>(
        inner: &Inner,
        operation: &'static str,
        (what, local, access): (&'static str, Local<'m>, Access),
        remote: (&'static str, SymmetricSlice<'m, T>),
        pe: Pe,
    ) -> Result<Self> {
        let there = There::new(inner, operation, remote, pe)?;
        if !local.serves(inner.device, access) {
            let expected = format!("memory of {}, the device of this PE", inner.device);
            return Err(Error::argument(operation, what, expected, local.who()));
        }
        let known = inner.own.has(local.key());
        if !known && !inner.near[pe.0] && local.bytes() > 0 {
            let expected =
                format!("symmetric memory, or memory that is registered, as PE {} is reached over the network", pe.0);
            return Err(Error::argument(operation, what, expected, local.who()));
        }
        let region = &there.region;
        if there.own && overlap(span(local.ptr(), local.bytes()), span(region.ptr(), region.bytes)) {
            let expected = "memory apart from that at the other end, which is this PE";
            return Err(Error::argument(operation, what, expected, "memory that overlaps it"));
        }
        Ok(Self { local, access, there })
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.local.bytes() == 0
    }

    /// What is done at the other end.
    fn other(&self) -> Access {
        if self.puts() { Access::Write } else { Access::Read }
    }

    /// Waits until no stream of this PE does anything with the memory that conflicts.
    pub(crate) fn wait_idle(&self, inner: &Inner, operation: &'static str) -> Result<IdleGuard<'m>> {
        self.local.check_access(operation)?;
        let local = (self.local.used(), self.access);
        match self.there.own {
            true => inner.wait_idle(operation, [local, (self.there.region.alloc, self.other())]),
            false => inner.wait_idle(operation, [local]),
        }
    }

    /// Does the transfer in its place, if there is anything to do.
    pub(crate) fn run(&self, inner: &Inner, place: Place<'_>) -> Result<()> {
        let near = |Ends { to, from, bytes, pe }| {
            let call = if self.puts() { sys::nvshmem_putmem } else { sys::nvshmem_getmem };
            // SAFETY: symmetric memory of so many bytes, local memory of as many that nobody uses and that is borrowed for this access, and a PE.
            unsafe { call(to, from, bytes, pe) };
        };
        self.run_by(inner, place, near, |_, stream| self.enqueue(stream))
    }

    /// Enqueues it. The caller has the memory ordered, and the stream is one of the PE's device.
    pub(crate) fn enqueue(&self, stream: sys::cudaStream_t) {
        let Ends { to, from, bytes, pe } = self.raw();
        let call = if self.puts() { sys::nvshmemx_putmem_on_stream } else { sys::nvshmemx_getmem_on_stream };
        // SAFETY: symmetric memory of so many bytes, local memory of as many that is ordered and borrowed for this access, a PE, and a stream of its device.
        unsafe { call(to, from, bytes, pe, stream) };
    }

    /// Begins it on the host, with memory that nobody uses. It is borrowed until after a quiet.
    pub(crate) fn begin(&self) {
        let Ends { to, from, bytes, pe } = self.raw();
        let call = if self.puts() { sys::nvshmem_putmem_nbi } else { sys::nvshmem_getmem_nbi };
        // SAFETY: as above, and borrowed until after that quiet.
        unsafe { call(to, from, bytes, pe) };
    }

    /// Enqueues the non-blocking form. The caller enqueues the quiet.
    pub(crate) fn enqueue_nbi(&self, stream: sys::cudaStream_t) {
        let Ends { to, from, bytes, pe } = self.raw();
        let call = if self.puts() { sys::nvshmemx_putmem_nbi_on_stream } else { sys::nvshmemx_getmem_nbi_on_stream };
        // SAFETY: as above, and lent until after that quiet.
        unsafe { call(to, from, bytes, pe, stream) };
    }

    /// Whether it writes to the other PE.
    fn puts(&self) -> bool {
        self.access == Access::Read
    }

    /// As [`run`](Self::run), by `near` on the host, or by `enqueue`. Some transports have their functions for
    /// streams only, and the library ends the process if the host calls those. So if the PE is not near, the host enqueues on the
    /// context's own stream, and waits for that.
    pub(crate) fn run_by(
        &self,
        inner: &Inner,
        Place { operation, stream }: Place<'_>,
        near: impl FnOnce(Ends),
        enqueue: impl FnOnce(Ends, sys::cudaStream_t),
    ) -> Result<()> {
        if self.is_empty() {
            inner.ready(operation)?;
            return stream.map_or(Ok(()), |stream| inner.check_stream(operation, stream));
        }
        let enqueue = |stream| enqueue(self.raw(), stream);
        if let Some(stream) = stream {
            return inner.on_stream(operation, stream, TRANSFER, self, enqueue);
        }
        inner.ready(operation)?;
        let _waits = SharedDeadline::begin();
        let beside = inner.wait_idle_beside(operation)?;
        if self.is_near(inner) {
            let _idle = self.wait_idle(inner, operation)?;
            return inner.on_host(operation, || near(self.raw()));
        }
        drop(beside);
        // The stream is ordered after what comes meanwhile.
        drop(self.wait_idle(inner, operation)?);
        inner.on_own_stream(operation, TRANSFER, self, enqueue)
    }

    /// Whether this PE gets at the memory of the other one directly.
    pub(crate) fn is_near(&self, inner: &Inner) -> bool {
        inner.near[self.there.pe as usize]
    }

    /// What a bracket is lent.
    pub(crate) fn add_to<'s>(&'s self, uses: &mut LentUses<'s>) {
        self.local.add_to(uses, self.access);
        self.there.add_to(uses, self.other());
    }

    /// For the library.
    pub(crate) fn raw(&self) -> Ends {
        let (there, here) = (self.there.region.ptr(), self.local.ptr());
        let (to, from) = if self.puts() { (there, here) } else { (here, there) };
        Ends { to, from, bytes: self.local.bytes(), pe: self.there.pe }
    }
}

/// A transfer as the library is told it.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) to: *mut c_void,
    pub(crate) from: *const c_void,
    pub(crate) bytes: usize,
    pub(crate) pe: c_int,
}

impl Lend for &Transfer<'_> {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        self.add_to(uses);
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}

fn same_length(
    operation: &'static str,
    (what, len): (&'static str, usize),
    (other, expected): (&'static str, usize),
) -> Result<()> {
    check_len(operation, what, expected, format_args!("as many as {other} has"), len)
}

fn span(ptr: *mut c_void, bytes: usize) -> Range<usize> {
    let start = ptr.addr();
    start..start + bytes
}

/// Whether they have an address in common.
fn overlap(one: Range<usize>, other: Range<usize>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps() {
        assert!(overlap(0..4, 3..5) && overlap(3..5, 0..4) && overlap(0..9, 2..3) && overlap(2..3, 2..3));
        assert!(!overlap(0..4, 4..5) && !overlap(4..5, 0..4) && !overlap(0..0, 0..4) && !overlap(2..2, 0..4));
    }

    #[test]
    fn lengths_are_named() {
        assert!(same_length("put", ("source", 3), ("dest", 3)).is_ok());
        let error = same_length("put", ("source", 2), ("dest", 3)).unwrap_err().to_string();
        assert!(error.contains("source") && error.contains("3 elements, as many as dest has"), "{error}");
    }
}
