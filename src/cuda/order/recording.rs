//! What a capture of this crate writes down beside what CUDA does: the memory that its graph goes on using, and who launches with it.

use std::any::Any;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::lanes::{Tracker, Uses};
use super::mark::Mark;
use super::ranged::Span;
use super::stream::Stream;
use super::uses::Access;
use crate::cuda::works::lineage::Lineage;
use crate::cuda::works::work::Work;
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};

/// The method that captures.
pub(crate) const CAPTURE: &str = "Stream::capture";

/// Memory that is used on streams.
pub(crate) trait Used: Send + Sync {
    /// Who uses it.
    fn tracker(&self) -> &Tracker;

    /// Where its bytes come from.
    fn lineage(&self) -> &Lineage;

    /// What it is kept alive by for longer than it is borrowed; `None` where nothing can.
    fn keep(&self) -> Option<Arc<dyn Used>>;
}

/// Those who have to do with every launch of a graph: the communicators whose operations it has.
pub(crate) trait Party: Any + Send + Sync {
    /// Launches on `stream`: `launch` does so when they are ready.
    fn launch(&self, stream: &Stream, launch: &mut dyn Launch) -> Result<()>;

    /// How long a launch waits for others.
    fn timeout(&self) -> Duration;

    /// Why it need not wait: somebody ends them.
    fn refusal(&self) -> Option<Error>;

    /// There is a graph now, which they end when they do.
    fn join(&self, graph: Arc<dyn Mortal>);

    /// A graph is gone: what is left of it is to be dropped when nothing of its launches needs it, which calls CUDA.
    fn bury(&self, left: Box<dyn Send>);

    fn as_any(&self) -> &dyn Any;
}

/// One launch, for the party of its graph.
pub(crate) trait Launch {
    /// What it takes of the queue of its stream.
    fn cost(&self) -> u64;

    /// Waits for others that use the memory, and orders the stream: `own` is the work that the operations of the launch will belong to, where
    /// it is known, and one. From now on nobody else uses it.
    fn begin(&mut self, own: Option<&Work>) -> Result<()>;

    /// Launches.
    fn enqueue(&mut self) -> Result<()>;

    /// After that, or an attempt: it was operation `number` of `work`.
    fn carry(&mut self, work: &Arc<Work>, number: u64);
}

/// A graph, for those who end it.
pub(crate) trait Mortal: Send + Sync {
    /// It is launched no more, because of `cause`; what it was launched for goes on. What is left of it is to be dropped, which calls CUDA.
    fn end(&self, cause: &Error) -> Option<Box<dyn Send>>;

    /// Whether it may still be launched.
    fn is_alive(&self) -> bool;
}

/// Memory of a graph.
pub(crate) struct Kept {
    used: Arc<dyn Used>,
    /// What shows the same memory at other addresses, which the graph uses too.
    aliases: Vec<Arc<dyn Used>>,
    /// Within the capture.
    uses: Uses,
    /// What a launch uses of it.
    span: Span,
    /// How many operations were ordered that use it.
    ordered: usize,
    writes: bool,
    /// Whether the graph first overwrites all of it.
    fresh: bool,
}

impl Kept {
    pub(crate) fn used(&self) -> &dyn Used {
        &*self.used
    }

    /// What a launch does with it.
    pub(crate) fn access(&self) -> Access {
        if self.writes { Access::Write } else { Access::Read }
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Whether it is kept alive at the addresses of `used`.
    fn has(&self, used: &dyn Used) -> bool {
        let mut all = self.aliases.iter().chain([&self.used]);
        all.any(|kept| ptr::addr_eq(Arc::as_ptr(kept), used))
    }

    /// The capture is over: its streams go.
    fn settle(mut self) -> Self {
        self.uses = Uses::new();
        self
    }
}

/// What one capture has so far.
#[derive(Default)]
pub(crate) struct Recording {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Its streams but the first, which go back to that at the end.
    lanes: Vec<Stream>,
    memory: Vec<Kept>,
    party: Option<Arc<dyn Party>>,
}

impl Recording {
    /// That of the capture that `stream` was made for.
    pub(crate) fn of(stream: &Stream) -> Option<&Self> {
        stream.capture_of()?.book()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// One more stream.
    pub(crate) fn add(&self, lane: &Stream) {
        self.state().lanes.push(lane.clone());
    }

    /// Its streams but the first.
    pub(crate) fn lanes(&self) -> Vec<Stream> {
        self.state().lanes.clone()
    }

    /// Those who launch with it; made by the first of them.
    pub(crate) fn party(&self, make: impl FnOnce() -> Arc<dyn Party>) -> Arc<dyn Party> {
        Arc::clone(self.state().party.get_or_insert_with(make))
    }

    /// Those who launch with it, as far as there are any yet.
    pub(crate) fn known_party(&self) -> Option<Arc<dyn Party>> {
        self.state().party.clone()
    }

    /// What is left when the capture is over: its streams, its memory, and those who launch with it.
    pub(crate) fn take(&self) -> (Vec<Stream>, Vec<Kept>, Option<Arc<dyn Party>>) {
        let State { lanes, memory, party } = std::mem::take(&mut *self.state());
        let memory = memory.into_iter().map(Kept::settle).collect();
        (lanes, memory, party)
    }

    fn order(&self, used: &dyn Used, span: Span, access: Access, lane: &Stream) -> Result<()> {
        let mut state = self.state();
        let tracker = ptr::from_ref(used.tracker());
        let known = state.memory.iter().position(|kept| ptr::eq(kept.used.tracker(), tracker));
        let at = match known {
            Some(at) => {
                if !state.memory[at].has(used) {
                    let alias = kept_alive(used)?;
                    state.memory[at].aliases.push(alias);
                }
                at
            }
            None => {
                let (used, aliases) = (kept_alive(used)?, Vec::new());
                used.tracker().set_in_graphs();
                let uses = Uses::new();
                state.memory.push(Kept { used, aliases, uses, span, ordered: 0, writes: false, fresh: false });
                state.memory.len() - 1
            }
        };
        let kept = &mut state.memory[at];
        kept.ordered += 1;
        kept.span = kept.span.hull(span);
        kept.uses.order(span, access, lane).map(drop)
    }

    fn note(&self, used: &dyn Used, span: Span, access: Access, lane: &Stream) {
        let mut state = self.state();
        let tracker = ptr::from_ref(used.tracker());
        if let Some(kept) = state.memory.iter_mut().find(|kept| ptr::eq(kept.used.tracker(), tracker)) {
            kept.writes |= access == Access::Write;
            kept.uses.note(span, access, lane);
        }
    }

    fn overwritten(&self, used: &dyn Used) {
        let mut state = self.state();
        let tracker = ptr::from_ref(used.tracker());
        if let Some(kept) = state.memory.iter_mut().find(|kept| ptr::eq(kept.used.tracker(), tracker)) {
            kept.fresh |= kept.ordered == 1;
        }
    }
}

/// Keeps memory alive for as long as a graph may use it.
pub(crate) fn kept_alive(used: &dyn Used) -> Result<Arc<dyn Used>> {
    used.keep().ok_or_else(|| {
        let reason = "memory that a graph uses lives as long as it does: pinned memory moves in by Stream::move_in, a view of memory of others cannot";
        Error::InvalidUsage { operation: CAPTURE, reason: reason.to_owned() }
    })
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("Recording").field("lanes", &state.lanes.len()).field("memory", &state.memory.len()).finish()
    }
}

/// Before an enqueue on `stream` that uses `span` of `used`: see [`Tracker::order`].
#[inline]
pub(crate) fn order(used: &dyn Used, span: Span, access: Access, stream: &Stream) -> Result<bool> {
    let tracker = used.tracker();
    if tracker.is_solo(stream) {
        return Ok(true);
    }
    match Recording::of(stream) {
        None => tracker.order(span, access, stream),
        Some(recording) => recording.order(used, span, access, stream).map(|()| true),
    }
}

/// After it: see [`Tracker::note`].
#[inline]
pub(crate) fn note(used: &dyn Used, span: Span, access: Access, stream: &Stream) {
    let tracker = used.tracker();
    if tracker.is_solo(stream) {
        return;
    }
    match Recording::of(stream) {
        None => tracker.note(span, access, stream),
        Some(recording) => recording.note(used, span, access, stream),
    }
}

/// An operation of the capture of `stream`, the last that was ordered, overwrites all of `used`.
pub(crate) fn overwritten(used: &dyn Used, stream: &Stream) {
    if let Some(recording) = Recording::of(stream) {
        recording.overwritten(used);
    }
}

/// Later work of `lane` comes after what `other` has been given so far; both are streams of one capture.
pub(crate) fn follow(lane: &Stream, other: &Stream) -> Result<()> {
    let mark = Mark::in_capture(other.queue())?;
    lane.in_flight().hold(lane.queue(), &mark)
}
