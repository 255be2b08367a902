//! The graphs that hold operations of a communicator, which they must not outlive.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::helper;
use crate::cuda::{Access, Mortal, Stream, Tracker};
use crate::deadline::backoff;
use crate::error::{Error, Result};

/// Graphs that are remembered before those are forgotten that are gone.
const MANY: usize = 16;

pub(crate) struct Graphs {
    all: Mutex<All>,
    /// Whether nothing but a graph may have operations of the communicator, and something of it is, or was, captured.
    alone: AtomicBool,
    /// The captures under way that have operations of the communicator.
    open: AtomicUsize,
    /// Launches of graphs that have all operations of the communicator. NCCL knows nothing of them.
    launched: Arc<Tracker>,
    /// Whether NCCL may have registered memory for one.
    registers: AtomicBool,
    /// How many groups NCCL was given since then.
    groups: AtomicU64,
    /// Whether others have the communicator, who go on with it.
    given_away: AtomicBool,
}

impl Default for Graphs {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            alone: AtomicBool::default(),
            open: AtomicUsize::default(),
            launched: Arc::new(Tracker::new()),
            registers: AtomicBool::default(),
            groups: AtomicU64::default(),
            given_away: AtomicBool::default(),
        }
    }
}

#[derive(Default)]
struct All {
    graphs: Vec<Weak<dyn Mortal>>,
    /// Why there are none any more.
    over: Option<Error>,
}

impl Graphs {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A capture has its first operation of the communicator; `alone`: the graph that comes of it has all of them as long as it lives.
    pub(crate) fn begin(&self, alone: bool) {
        self.alone.fetch_or(alone, Ordering::AcqRel);
        self.open.fetch_add(1, Ordering::AcqRel);
    }

    /// A capture that had begun is over.
    pub(crate) fn finish(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }

    /// How many captures are under way that have operations of the communicator.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// NCCL may have registered memory for a graph: from now on groups are counted.
    pub(crate) fn set_registers(&self) {
        self.registers.store(true, Ordering::Relaxed);
    }

    /// NCCL has done a group, none that was captured, or one operation that is in none.
    #[inline]
    pub(crate) fn count_group(&self) {
        if self.registers.load(Ordering::Relaxed) {
            self.groups.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How many of these there were.
    pub(crate) fn groups(&self) -> u64 {
        self.groups.load(Ordering::Acquire)
    }

    /// Others get the communicator, and go on with it: what NCCL may have registered it goes on knowing.
    pub(crate) fn give_away(&self) {
        self.given_away.store(true, Ordering::Release);
    }

    pub(crate) fn are_given_away(&self) -> bool {
        self.given_away.load(Ordering::Acquire)
    }

    /// One more.
    pub(crate) fn add(&self, graph: &Arc<dyn Mortal>) {
        let mut all = self.all();
        if let Some(cause) = all.over.clone() {
            // It has ended while this was captured: NCCL waits for it already.
            drop(all);
            drop(graph.end(&cause));
            return;
        }
        let graphs = &mut all.graphs;
        if graphs.len() >= MANY && graphs.len().is_power_of_two() {
            graphs.retain(|graph| graph.strong_count() > 0);
        }
        graphs.push(Arc::downgrade(graph));
    }

    /// Whether NCCL leaves out what would keep graphs in order with the rest, and there is, or was, a graph or the beginning of one. The
    /// caller holds the lock of the communicator, or asks again when it does.
    #[inline]
    pub(crate) fn are_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// After a launch on `stream`, or an attempt.
    pub(crate) fn note_launch(&self, stream: &Stream) {
        if self.are_alone() {
            self.launched.note(Access::Write, stream);
        }
    }

    /// Whether no launch is on its way that NCCL does not know of.
    pub(crate) fn have_left(&self) -> Result<bool> {
        if self.are_alone() { self.launched.is_done() } else { Ok(true) }
    }

    /// The launches that NCCL knows nothing of, if there are such.
    pub(crate) fn unseen(&self) -> Option<Arc<Tracker>> {
        self.are_alone().then(|| Arc::clone(&self.launched))
    }

    /// Whether there are any. Holds none of them for a moment: with a graph goes its memory, at a point that ranks have in common.
    pub(crate) fn exist(&self) -> bool {
        self.all().graphs.iter().any(|graph| graph.strong_count() > 0)
    }

    /// How many may still be launched.
    pub(crate) fn count(&self) -> usize {
        // Only handles leave the lock: the last one of a graph may be dropped here.
        let all: Vec<_> = self.all().graphs.iter().filter_map(Weak::upgrade).collect();
        all.iter().filter(|graph| graph.is_alive()).count()
    }

    /// The communicator is about to end, because of `cause`: none is launched any more. NCCL waits for that.
    pub(crate) fn end(&self, cause: &Error) {
        let graphs = {
            let mut all = self.all();
            all.over.get_or_insert_with(|| cause.clone());
            std::mem::take(&mut all.graphs)
        };
        let graphs: Vec<_> = graphs.iter().filter_map(Weak::upgrade).collect();
        let left: Vec<_> = graphs.iter().filter_map(|graph| graph.end(cause)).collect();
        // The driver may be held up by what comes next ends: no call of CUDA here.
        if !graphs.is_empty() {
            helper::aside("gpucomm-graphs", move || drop((left, graphs)));
        }
        if let Some(launched) = self.unseen() {
            drop_after(vec![launched], ());
        }
    }
}

/// Drops `left` when `launched` have left their devices, elsewhere: NCCL, which knows nothing of them, frees what they use as soon as no
/// graph is left. An abort stops them, unless they are behind something else that hangs: then `left` stays.
pub(crate) fn drop_after(launched: Vec<Arc<Tracker>>, left: impl Send + 'static) {
    helper::aside("gpucomm-graphs", move || {
        for one in launched {
            let mut round = 0;
            // A device that is lost does nothing any more.
            while one.is_done().is_ok_and(|done| !done) {
                backoff(round);
                round += 1;
            }
            one.let_go();
        }
        drop(left);
    });
}

impl std::fmt::Debug for Graphs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Graphs").field(&self.all().graphs.len()).finish()
    }
}
