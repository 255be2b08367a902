//! What one communicator has in a graph.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::Stream;
use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;
use crate::nccl::lifecycle::reclaim::Registered;
use crate::nccl::rank::held::Held;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::Record;
use crate::nccl::rank::traced::Traced;
use crate::nccl::validate::history::Exchange;
use crate::nccl::validate::launch::replay::{OPERATION, Replay};
use crate::nccl::validate::pair::End;
use crate::nccl::validate::signature::{Numbers, Signature};

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
    pub(super) last: Option<Stream>,
    /// The same for dumps.
    held: Arc<Held>,
}

impl Part {
    /// What a communicator has in a graph that is about to be captured: nothing yet.
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        let removals = AtomicU64::new(inner.windows.removals());
        let (exchanges, pairs, windows) = (Vec::new(), Vec::new(), Vec::new());
        let (registered, last) = (Registered::of(Arc::clone(&inner)), None);
        let (collectives, held) = (Numbers::NONE, inner.issued.begin_graph());
        Self { inner, collectives, exchanges, pairs, windows, removals, registered, last, held }
    }

    /// Adds a call that was captured.
    pub(super) fn add(&mut self, call: &Call<'_>) {
        self.last = Some(call.stream.clone());
        self.held.add(call.head, call.count as u64);
        let Ok(()) = call.uses(|region, _| {
            let window = call.comm.windows.of(region);
            if window != 0 && !self.windows.contains(&window) {
                self.windows.push(window);
            }
            Ok::<_, Infallible>(())
        });
        call.registered().for_each(|region| self.registered.add(region.alloc));
        let exchange = call.kind.exchange().filter(|kind| !self.exchanges.contains(kind));
        self.exchanges.extend(exchange);
        let numbers = match call.kind.message() {
            None => &mut self.collectives,
            Some((end, peer)) => {
                let known = self.pairs.iter().position(|(known, of, _)| (*known, *of) == (peer, end));
                let at = known.unwrap_or_else(|| {
                    self.pairs.push((peer, end, Numbers::NONE));
                    self.pairs.len() - 1
                });
                &mut self.pairs[at].2
            }
        };
        numbers.add(call.agreed.get());
    }

    /// The rank has launched it, as operation `number` of the communicator.
    #[inline]
    pub(super) fn count(&self, number: u64) {
        let (inner, messages) = (&self.inner, self.pairs.iter().map(|(peer, end, _)| Some((*end, *peer))));
        let collectives = (self.collectives.count > 0).then_some(None);
        collectives.into_iter().chain(messages).for_each(|message| inner.issued.count(message, inner.size));
        inner.issued.give(number);
        self.held.launched(number);
    }

    /// What the ranks compare of a launch.
    #[inline]
    pub(super) fn replay(&self) -> Replay<'_> {
        let Self { inner, exchanges, pairs, .. } = self;
        Replay { inner, signature: self.launch(), exchanges, pairs }
    }

    /// What ranks compare of a launch; `None` where they compare its messages alone.
    #[inline]
    pub(super) fn launch(&self) -> Option<Signature> {
        (self.collectives.count > 0).then(|| Signature::launch(&self.collectives))
    }

    /// Fails where the graph was captured with windows, or registered memory, some of which is gone.
    #[inline]
    pub(super) fn is_as_it_was(&self) -> Result<()> {
        let (windows, removals) = (&self.inner.windows, self.inner.windows.removals());
        if self.removals.load(Ordering::Relaxed) == removals || self.windows.iter().all(|window| windows.knows(*window))
        {
            self.removals.store(removals, Ordering::Relaxed);
            return Ok(());
        }
        let reason = format!(
            "a window or registration of {} that the graph uses was dropped, and taken away from NCCL since: capture it anew",
            self.inner.in_words()
        );
        Err(Error::InvalidUsage { operation: OPERATION, reason })
    }

    /// A launch on `stream`.
    #[inline]
    pub(super) fn traced(&self, stream: &Stream) -> Traced {
        let signature = Signature::launch(&self.collectives);
        let (head, count, stream) = (signature.head(), signature.count(), stream.serial());
        Traced { operation: OPERATION, head, count, stream, captured: false }
    }

    #[inline]
    pub(super) fn record(&self, number: u64, agreed: u64, stream: &Stream) -> Record {
        let signature = Signature::launch(&self.collectives);
        let record = self.inner.record(number, (signature.head(), signature.count()), OPERATION, stream.serial());
        // One with messages alone is no collective.
        let sequence = if self.collectives.count > 0 { self.inner.issued.next(None, self.inner.size) } else { 0 };
        Record { agreed, sequence, ..record }
    }
}
