//! What all collectives have in common: how they are enqueued, and waited for.

use std::ffi::{c_int, c_void};

use super::blocks::Blocks;
use crate::cuda::{Quiet, Slice, SliceMut, Stream, undisturbing};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::memory::slice::{AsSymmetric, SymmetricSlice};
use crate::nvshmem::memory::slice_mut::{AsSymmetricMut, SymmetricSliceMut};
use crate::nvshmem::state::place::Place;
use crate::nvshmem::teams::team::Team;
use crate::sys;

/// The two operands, which the compiler sees to it that they do not overlap: one is borrowed as `&mut`. A source that is the target is `None`.
pub(super) struct Operands<'a, T: Element> {
    pub(super) dest: SymmetricSliceMut<'a, T>,
    pub(super) source: Option<SymmetricSlice<'a, T>>,
}

impl<'a, T: Element> Operands<'a, T> {
    pub(super) fn new(dest: impl AsSymmetricMut<'a, T>, source: impl AsSymmetric<'a, T>) -> Self {
        Self { dest: dest.into(), source: Some(source.into()) }
    }

    /// How many elements the source has.
    pub(super) fn source_len(&self) -> usize {
        self.source.map_or(self.dest.len(), |source| source.len())
    }

    /// The addresses of both.
    pub(super) fn places(&self) -> (usize, usize) {
        let dest = self.dest.as_symmetric();
        (dest.local().as_raw().addr(), self.source.unwrap_or(dest).local().as_raw().addr())
    }
}

/// One collective.
pub(super) struct Work<'w> {
    pub(super) operation: &'static str,
    /// The C function.
    pub(super) c: &'static str,
    pub(super) blocks: Blocks,
    /// What counts for these.
    pub(super) bytes: usize,
    /// Whether switches read what the members have, without waiting for them.
    pub(super) pulls: bool,
    pub(super) stream: &'w Stream,
}

impl Team<'_> {
    /// Fails where this team has no collectives, or not on these operands.
    pub(super) fn check_operands<T: Element>(&self, operation: &'static str, operands: &Operands<'_, T>) -> Result<()> {
        let inner = &self.inner;
        inner.ready(operation)?;
        inner.check_whole(operation)?;
        operands.dest.as_symmetric().check(operation, "dest", inner)?;
        operands.source.map_or(Ok(()), |source| source.check(operation, "source", inner))
    }

    /// Enqueues `work` by `f`, which gets the team, the addresses of dest and source, and the stream. The operands have elements.
    pub(super) fn work<T: Element>(
        &mut self,
        work: &Work<'_>,
        mut operands: Operands<'_, T>,
        f: impl FnOnce(sys::nvshmem_team_t, *mut c_void, *const c_void, sys::cudaStream_t) -> c_int,
    ) -> Result<()> {
        let Work { operation, c, blocks, bytes, pulls, stream } = *work;
        let (inner, state) = (self.inner.clone(), self.state.clone());
        let grows = blocks.grows(&state, operation, bytes)?;
        let quiet = if grows {
            // It waits for the stream, and for the whole device.
            stream.no_part_of_capture(operation)?;
            Quiet::check(operation, &[inner.device])?;
            let (deadline, devices) = (inner.deadline(), [inner.device]);
            inner.idle_together(operation, Some(&state), &state.awaited(), &devices, &deadline)?;
            let quiet = Quiet::keep(operation, &devices, &deadline, || None);
            Some(blocks.agree(&inner, &state, operation, bytes, quiet)?)
        } else {
            None
        };
        let dest: SliceMut<'_, T> = operands.dest.local();
        let to = dest.as_raw();
        let source: Option<Slice<'_, T>> = operands.source.map(|source| source.local());
        let from = source.as_ref().map_or(to.cast_const(), |source| source.as_raw());
        let memory = (dest, source);
        let meets = pulls && state.multicast;
        let enqueue = |team, stream| {
            if meets {
                // Behind what writes the source here, and before a switch reads it for another member.
                // SAFETY: the team is there, and all members enqueue it as their next one.
                let code = unsafe { sys::nvshmemx_barrier_on_stream(team, stream) };
                if code != sys::NVSHMEMX_SUCCESS {
                    return code;
                }
            }
            f(team, to.cast(), from.cast(), stream)
        };
        let together = || self.together(operation, c, stream, memory, enqueue);
        // Teams that the library makes meanwhile are no part of what other threads capture.
        if grows {
            undisturbing(together)?
        } else {
            together()?
        }
        drop(quiet);
        if grows {
            blocks.grown(&inner, &state);
        }
        Ok(())
    }

    /// Does `enqueue` in its place. For the host that is the context's own stream, for which it waits, no longer than the timeout of the context: that error
    /// says who is missing.
    pub(super) fn run(
        &mut self,
        Place { operation, stream }: Place<'_>,
        enqueue: impl FnOnce(&mut Self, &Stream) -> Result<()>,
    ) -> Result<()> {
        if let Some(stream) = stream {
            return enqueue(self, stream);
        }
        let (inner, awaited) = (self.inner.clone(), self.state.awaited());
        enqueue(self, &inner.stream)?;
        let deadline = inner.deadline();
        inner.watchdog.during_wait(operation, inner.timeout, &awaited, |waiting| {
            let waited = inner.stream.wait_unless(operation, &deadline, || waiting.departure_error());
            waited.map_err(|error| match error {
                Error::Timeout { operation, timeout, .. } => {
                    let detail = format!("PE {} of {}: not all members have come", self.state.pe, self.n_pes());
                    // The context goes on: a member that is late may still come.
                    let late = Error::Timeout { operation, timeout, detail, rank: None, peer: None };
                    waiting.late(late.waited_by(self.state.pe))
                }
                other => other,
            })
        })
    }
}

/// So many elements for each of so many members.
pub(super) fn for_each(operation: &'static str, what: &'static str, count: usize, n_pes: usize) -> Result<usize> {
    count.checked_mul(n_pes).ok_or_else(|| {
        Error::argument(operation, what, format_args!("a length that fits into memory {n_pes} times"), count)
    })
}
