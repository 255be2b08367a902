//! Operations that are captured into graphs.
//!
//! What is captured is agreed on like any other operation, marked as such; so a rank that captures and one that does not are told apart
//! at once. Nothing is noted of it: that comes with each [launch](super::replay).

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::cuda::{Mortal, Recording};
use crate::error::{Error, Result};
use crate::nccl::agree::numbers::Numbers;
use crate::nccl::agree::pair::End;
use crate::nccl::agree::past::Exchange;
use crate::nccl::agree::recent::Record;
use crate::nccl::agree::signature::Signature;
use crate::nccl::calls::call::Call;
use crate::nccl::state::inner::{Family, Inner};

/// The method that launches.
pub(super) const OPERATION: &str = "Graph::launch";

/// What one communicator has in a graph.
pub(super) struct Part {
    pub(super) inner: Arc<Inner>,
    collectives: Numbers,
    /// The kinds of those among them that NCCL makes messages of.
    pub(super) exchanges: Vec<Exchange>,
    /// The messages to or from each peer.
    pub(super) pairs: Vec<(usize, End, Numbers)>,
    /// The windows, and registrations, that its calls use.
    windows: Vec<u64>,
    /// The removals at which all of them were there.
    removals: AtomicU64,
}

impl Part {
    pub(super) fn signature(&self) -> Option<(&Family, Signature)> {
        let family = self.inner.family.as_deref().filter(|_| self.collectives.count > 0)?;
        Some((family, Signature::launch(&self.collectives)))
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

/// How much of a communicator is captured, as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usage {
    None,
    One,
    Mixed,
}

fn usage(inner: &Inner) -> Usage {
    match inner.household.config().uses_graphs() {
        0 => Usage::None,
        1 => Usage::One,
        _ => Usage::Mixed,
    }
}

/// Fails where `call` cannot be made as its communicator was made: NCCL leaves out what would keep it in order.
#[inline]
pub(super) fn check(call: &Call<'_>) -> Result<()> {
    if call.stream.records() || call.comm.graphs.has_all() { check_part(call) } else { Ok(()) }
}

#[cold]
fn check_part(call: &Call<'_>) -> Result<()> {
    check_usage(call)?;
    // Before the ranks agree on it.
    if call.stream.records() { call.uses(|region, _| region.alloc.check_part()) } else { Ok(()) }
}

fn check_usage(call: &Call<'_>) -> Result<()> {
    let reason = match usage(call.comm) {
        Usage::None => {
            "graph_usage is None, or NCCL_GRAPH_MIXING_SUPPORT is 0: nothing of this communicator is captured"
        }
        Usage::One if call.comm.graphs.count() > 0 => {
            "graph_usage is One: as long as there is a graph, all operations of this communicator are in that, and no other is captured"
        }
        Usage::One | Usage::Mixed => return Ok(()),
    };
    Err(Error::InvalidUsage { operation: call.operation, reason: reason.to_owned() })
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
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, call: &Call<'_>) {
        let Some(inner) = call.comm.me().upgrade() else { return };
        let mut open = self.open();
        let at = open.iter().position(|part| part.inner.id == inner.id).unwrap_or_else(|| {
            inner.graphs.begin();
            let removals = AtomicU64::new(inner.windows.removals());
            let (exchanges, pairs, windows) = (Vec::new(), Vec::new(), Vec::new());
            open.push(Part { inner, collectives: Numbers::NONE, exchanges, pairs, windows, removals });
            open.len() - 1
        });
        let (part, number) = (&mut open[at], call.agreed.get());
        let Ok(()) = call.uses(|region, _| {
            let window = call.comm.windows.of(region);
            if window != 0 && !part.windows.contains(&window) {
                part.windows.push(window);
            }
            Ok::<_, Infallible>(())
        });
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
        for Part { inner, .. } in &parts {
            inner.graphs.add(graph, usage(inner) == Usage::One);
            inner.graphs.finish();
        }
        let _ = self.parts.set(parts.into());
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

    pub(super) fn record(&self, number: u64, agreed: u64) -> Record {
        let signature = Signature::launch(&self.collectives);
        let (head, count, visit) = (signature.head(), signature.count(), self.inner.next_visit());
        Record { number, head, count, agreed, operation: OPERATION, visit, joined: false }
    }
}
