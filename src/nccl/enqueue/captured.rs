//! Operations that are captured into graphs.
//!
//! What is captured is agreed on like any other operation, marked as such; so a rank that captures and one that does not are told apart
//! at once. Nothing is noted of it: that comes with each [launch](super::replay).

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::graph_usage;
use crate::cuda::{Mortal, Recording, Stream};
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::calls::call::Call;
use crate::nccl::lifecycle::reclaim::Registered;
use crate::nccl::rank::gate::LockedAll;
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::held::Held;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::Record;
use crate::nccl::rank::traced::Traced;
use crate::nccl::validate::history::Exchange;
pub(super) use crate::nccl::validate::launch::replay::OPERATION;
use crate::nccl::validate::launch::replay::Replay;
use crate::nccl::validate::pair::End;
use crate::nccl::validate::signature::Numbers;
use crate::nccl::validate::signature::Signature;

/// What one communicator has in a graph.
pub(super) struct Part {
    pub(super) inner: Arc<Inner>,
    collectives: Numbers,
    /// The kinds of those among them that NCCL makes messages of.
    exchanges: Vec<Exchange>,
    /// The messages to or from each peer.
    pairs: Vec<(usize, End, Numbers)>,
    /// The windows, and registrations, that its calls use.
    windows: Vec<u64>,
    /// The removals at which all of them were there.
    removals: AtomicU64,
    /// The memory that NCCL may have registered for the graph.
    registered: Registered,
    /// Where the last operation was captured.
    last: Option<Stream>,
    /// The same for dumps.
    held: Arc<Held>,
}

impl Part {
    /// The rank has launched it, as operation `number` of the communicator.
    pub(super) fn count(&self, number: u64) {
        let (inner, messages) = (&self.inner, self.pairs.iter().map(|(peer, end, _)| Some((*end, *peer))));
        let collectives = (self.collectives.count > 0).then_some(None);
        collectives.into_iter().chain(messages).for_each(|message| inner.issued.count(message, inner.size));
        inner.issued.give(number);
        self.held.launched(number);
    }

    /// What the ranks compare of a launch.
    pub(super) fn replay(&self) -> Replay<'_> {
        let Self { inner, exchanges, pairs, .. } = self;
        Replay { inner, signature: self.launch(), exchanges, pairs }
    }

    /// What ranks compare of a launch; `None` where they compare its messages alone.
    pub(super) fn launch(&self) -> Option<Signature> {
        (self.collectives.count > 0).then(|| Signature::launch(&self.collectives))
    }
}

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
            let removals = AtomicU64::new(inner.windows.removals());
            let (exchanges, pairs, windows) = (Vec::new(), Vec::new(), Vec::new());
            let (registered, last) = (Registered::of(Arc::clone(&inner)), None);
            let (collectives, held) = (Numbers::NONE, inner.issued.begin_graph());
            open.push(Part { inner, collectives, exchanges, pairs, windows, removals, registered, last, held });
            open.len() - 1
        });
        let (part, number) = (&mut open[at], call.agreed.get());
        part.last = Some(call.stream.clone());
        part.held.add(call.head, call.count as u64);
        let Ok(()) = call.uses(|region, _| {
            let window = call.comm.windows.of(region);
            if window != 0 && !part.windows.contains(&window) {
                part.windows.push(window);
            }
            Ok::<_, Infallible>(())
        });
        call.registered().for_each(|region| part.registered.add(region.alloc));
        let exchange = call.kind.exchange().filter(|kind| !part.exchanges.contains(kind));
        part.exchanges.extend(exchange);
        let numbers = match call.kind.message() {
            None => &mut part.collectives,
            Some((end, peer)) => {
                let known = part.pairs.iter().position(|(known, of, _)| (*known, *of) == (peer, end));
                let at = known.unwrap_or_else(|| {
                    part.pairs.push((peer, end, Numbers::NONE));
                    part.pairs.len() - 1
                });
                &mut part.pairs[at].2
            }
        };
        numbers.add(number);
    }

    /// The capture is over, of which `graph` came.
    pub(super) fn close(&self, graph: &Arc<dyn Mortal>) {
        let mut parts = std::mem::take(&mut *self.open());
        parts.sort_unstable_by_key(|part| (part.inner.order, part.inner.id));
        for Part { inner, last, .. } in &mut parts {
            inner.graphs.add(graph);
            inner.graphs.finish();
            // Streams of the capture hold what has this.
            *last = None;
        }
        let _ = self.parts.set(parts.into());
    }

    /// The stream of the capture on which the communicator of `call` was used last.
    fn last(&self, call: &Call<'_>) -> Option<Stream> {
        let open = self.open();
        let part = open.iter().find(|part| part.inner.id == call.comm.id)?;
        part.last.clone().filter(|last| last != call.stream)
    }

    /// Before a launch on `stream`, for who has the locks of all parts, and before the ranks agree on it.
    pub(super) fn order(&self, locked: &mut LockedAll<'_, Guarded>, stream: &Stream) -> Result<()> {
        let alone = self.parts().iter().zip(locked.values()).filter(|(part, _)| part.inner.graphs.are_alone());
        alone.into_iter().try_for_each(|(part, guard)| graph_usage::order_launch(&part.inner, guard, OPERATION, stream))
    }

    pub(super) fn parts(&self) -> &[Part] {
        self.parts.get().map_or(&[], |parts| parts)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // Of a capture of which no graph came.
        self.open().iter().for_each(|part| part.inner.graphs.finish());
    }
}

impl Part {
    /// Fails where the graph was captured with windows, or registered memory, some of which is gone.
    pub(super) fn is_as_it_was(&self) -> Result<()> {
        let (windows, removals) = (&self.inner.windows, self.inner.windows.removals());
        if self.removals.load(Ordering::Relaxed) == removals || self.windows.iter().all(|window| windows.knows(*window))
        {
            self.removals.store(removals, Ordering::Relaxed);
            return Ok(());
        }
        let reason = format!(
            "a window or registration of rank {} that the graph uses was dropped, and taken away from NCCL since: capture it anew",
            self.inner.rank
        );
        Err(Error::InvalidUsage { operation: OPERATION, reason })
    }

    /// A launch on `stream`.
    pub(super) fn traced(&self, stream: &Stream) -> Traced {
        let signature = Signature::launch(&self.collectives);
        let (head, count, stream) = (signature.head(), signature.count(), stream.serial());
        Traced { operation: OPERATION, head, count, stream, captured: false }
    }

    pub(super) fn record(&self, number: u64, agreed: u64, stream: &Stream) -> Record {
        let signature = Signature::launch(&self.collectives);
        let record = self.inner.record(number, (signature.head(), signature.count()), OPERATION, stream.serial());
        // One with messages alone is no collective.
        let sequence = if self.collectives.count > 0 { self.inner.issued.next(None, self.inner.size) } else { 0 };
        Record { agreed, sequence, ..record }
    }
}
