//! Captures operations into graphs.
//!
//! What is captured is agreed on like any other operation, marked as such; so a rank that captures and one that does not are told apart
//! at once. Nothing is noted of it: that comes with each [launch](super::replay).

use std::sync::{Arc, OnceLock};

use super::graph_usage;
use super::part::Part;
use crate::cuda::{Mortal, Recording, Stream};
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::calls::call::Call;

/// The communicators of a graph.
#[derive(Default)]
pub(crate) struct Captured {
    /// While it is captured.
    open: Mutex<Vec<Part>>,
    /// Afterwards, in the order in which locks are taken.
    parts: OnceLock<Box<[Part]>>,
}

/// A call was captured, which was agreed on.
pub(super) fn add(call: &Call<'_>) {
    let Some(recording) = Recording::of(call.stream) else { return };
    let party = recording.party(|| Arc::new(Captured::default()));
    if let Some(captured) = party.as_any().downcast_ref::<Captured>() {
        captured.add(call);
    }
}

/// Returns an error if the `graph_usage` of the communicator does not allow `call`: NCCL would not keep it in order.
#[inline]
pub(super) fn check(call: &Call<'_>) -> Result<()> {
    if call.stream.records() || call.comm.graphs.are_alone() { check_part(call) } else { Ok(()) }
}

#[cold]
fn check_part(call: &Call<'_>) -> Result<()> {
    graph_usage::check(call.comm, call.operation, is_part(call))?;
    // Before the ranks agree on it.
    if call.stream.records() {
        call.uses(|region, _| region.alloc.check_part())?;
        call.look_behind()?;
    }
    Ok(())
}

/// Checks the same again under the lock, and waits for launches of dropped graphs, for which NCCL does not wait.
#[inline]
pub(super) fn wait_for_launches(call: &Call<'_>) -> Result<()> {
    if call.comm.graphs.are_alone() {
        graph_usage::wait_for_launches(call.comm, call.operation, is_part(call))
    } else {
        Ok(())
    }
}

/// Whether the capture that `call` is to become part of has operations of its communicator; `None` where there is no capture.
fn is_part(call: &Call<'_>) -> Option<bool> {
    let party = Recording::of(call.stream)?.known_party();
    let captured = party.as_ref().and_then(|party| party.as_any().downcast_ref::<Captured>());
    Some(captured.is_some_and(|captured| captured.open().iter().any(|part| part.inner.id == call.comm.id)))
}

/// Orders captured calls behind earlier calls of their communicators, on all streams of the capture. NCCL may be configured not to do
/// that. Calls of one group stay together.
pub(super) fn put_in_order(calls: &[Call<'_>]) -> Result<()> {
    calls.iter().filter(|call| call.count > 0 && call.comm.graphs.are_alone()).try_for_each(|call| {
        let party = Recording::of(call.stream).and_then(Recording::known_party);
        let captured = party.as_ref().and_then(|party| party.as_any().downcast_ref::<Captured>());
        captured.and_then(|captured| captured.last(call)).map_or(Ok(()), |last| call.stream.join(&last))
    })
}

/// Fails unless all of `calls`, a group, become part of one graph, or none of any.
pub(super) fn check_group(calls: &[Call<'_>]) -> Result<()> {
    let of = |call: &Call<'_>| call.stream.capture_of().map(Arc::as_ptr);
    let Some((first, rest)) = calls.split_first() else { return Ok(()) };
    let Some(other) = rest.iter().find(|call| of(call) != of(first)) else { return Ok(()) };
    let reason = "a group has streams of a capture and others: all of its operations become part of one graph, or none";
    Err(Error::InvalidUsage { operation: other.operation, reason: reason.to_owned() })
}

impl Captured {
    fn open(&self) -> MutexGuard<'_, Vec<Part>> {
        self.open.lock()
    }

    fn add(&self, call: &Call<'_>) {
        let Some(inner) = call.comm.me().upgrade() else { return };
        let mut open = self.open();
        let at = open.iter().position(|part| part.inner.id == inner.id).unwrap_or_else(|| {
            inner.graphs.begin(graph_usage::is_one(&inner));
            open.push(Part::new(inner));
            open.len() - 1
        });
        open[at].add(call);
    }

    /// The capture is over, of which `graph` came.
    pub(super) fn close(&self, graph: &Arc<dyn Mortal>) {
        let mut parts = std::mem::take(&mut *self.open());
        parts.sort_unstable_by_key(|part| (part.inner.order, part.inner.id));
        // Streams of the capture hold what has this.
        parts.iter_mut().for_each(|part| part.last = None);
        parts.iter().for_each(|part| part.inner.graphs.note_made());
        let _ = self.parts.set(parts.into());
        for part in self.parts() {
            part.inner.graphs.add(graph);
            part.inner.graphs.finish();
        }
    }

    /// The stream of the capture on which the communicator of `call` was used last.
    fn last(&self, call: &Call<'_>) -> Option<Stream> {
        let open = self.open();
        let part = open.iter().find(|part| part.inner.id == call.comm.id)?;
        part.last.clone().filter(|last| last != call.stream)
    }

    #[inline]
    pub(super) fn parts(&self) -> &[Part] {
        self.parts.get().map_or(&[], |parts| parts)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // Of a capture of which no graph came.
        self.open().iter().for_each(|part| part.inner.graphs.give_up());
    }
}
