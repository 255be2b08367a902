//! The operands of a transfer, checked: what is wrong with them the library would answer by the end of the process.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use crate::cuda::{Access, Lend, LentUses, Stream};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::memory::local::Local;
use crate::nvshmem::memory::slice::SymmetricSlice;
use crate::nvshmem::memory::there::{There, check_len};
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::call::TRANSFER;
use crate::nvshmem::state::inner::Inner;
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
        if self.access == Access::Read { Access::Write } else { Access::Read }
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

    /// Calls `f` with the place at the other end, the local one, bytes and the PE; nothing where there are none.
    pub(crate) fn on_host(&self, inner: &Inner, operation: &'static str, f: impl FnOnce(Ends)) -> Result<()> {
        if self.is_empty() {
            return inner.ready(operation);
        }
        inner.ready(operation)?;
        let _waits = SharedDeadline::begin();
        let _beside = inner.wait_idle_beside(operation)?;
        let _idle = self.wait_idle(inner, operation)?;
        inner.on_host(operation, || f(self.raw()))
    }

    /// As [`on_host`](Self::on_host), for functions that some transports have for streams only: the library ends the process if the host
    /// calls those. If the PE is not near, enqueues `far` on the context's own stream, and waits for that.
    pub(crate) fn now(
        &self,
        inner: &Inner,
        operation: &'static str,
        f: impl FnOnce(Ends),
        far: impl FnOnce(Ends, sys::cudaStream_t),
    ) -> Result<()> {
        if self.is_near(inner) || self.is_empty() {
            return self.on_host(inner, operation, f);
        }
        inner.ready(operation)?;
        let _waits = SharedDeadline::begin();
        drop(inner.wait_idle_beside(operation)?);
        // The stream is ordered after what comes meanwhile.
        drop(self.wait_idle(inner, operation)?);
        inner.on_own_stream(operation, TRANSFER, self, |stream| far(self.raw(), stream))
    }

    /// Whether this PE gets at the memory of the other one directly.
    pub(crate) fn is_near(&self, inner: &Inner) -> bool {
        inner.near[self.there.pe as usize]
    }

    /// The same of a call that enqueues on `stream`.
    pub(crate) fn on_stream(
        &self,
        inner: &Inner,
        operation: &'static str,
        stream: &Stream,
        f: impl FnOnce(Ends, sys::cudaStream_t),
    ) -> Result<()> {
        if self.is_empty() {
            inner.ready(operation)?;
            return inner.check_stream(operation, stream);
        }
        inner.on_stream(operation, stream, TRANSFER, self, |stream| f(self.raw(), stream))
    }

    /// What a bracket is lent.
    pub(crate) fn add_to<'s>(&'s self, uses: &mut LentUses<'s>) {
        self.local.add_to(uses, self.access);
        self.there.add_to(uses, self.other());
    }

    /// For the library.
    pub(crate) fn raw(&self) -> Ends {
        Ends { remote: self.there.region.ptr(), local: self.local.ptr(), bytes: self.local.bytes(), pe: self.there.pe }
    }
}

/// A transfer as the library is told it.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) remote: *mut c_void,
    pub(crate) local: *mut c_void,
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
