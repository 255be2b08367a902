//! The graphs that hold operations of a communicator. They end with it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::helper;
use crate::cuda::{Access, Mortal, Span, Stream, Tracker};
use crate::deadline::backoff;
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};
use crate::version::{Version, running_nccl};

/// CUDA notifies NCCL of the end of a graph within this time, on a thread of its own. It does not say
/// when.
pub(crate) const TOLD: Duration = Duration::from_secs(2);

/// The number of groups after which NCCL has forgotten the registrations of a graph: three times as
/// many as NCCL lets pass.
const GROUPS: u64 = 33;

/// From this version on it is not known when NCCL empties its queue.
const UNKNOWN: Version = Version::new(2, 31, 0);

/// The number of graphs from which on those that are gone are forgotten.
const MANY: usize = 16;

pub(crate) struct Graphs {
    all: Mutex<All>,
    /// Whether all operations of the communicator have to be in one graph, and some are captured,
    /// or were.
    alone: AtomicBool,
    /// How many captures are under way that have operations of the communicator.
    open: AtomicUsize,
    /// How many graphs CUDA has not destroyed.
    living: AtomicUsize,
    /// When it destroyed the last one, and how many groups NCCL had done then.
    gone: Mutex<Option<(Instant, u64)>>,
    /// Whether no launch was under way when CUDA notified NCCL of the end of the graphs.
    told_idle: AtomicBool,
    /// Whether NCCL was revoked with what it had registered for graphs.
    stranded: AtomicBool,
    /// The launches of graphs. NCCL does not know those of graphs that have all operations of the
    /// communicator.
    launched: Arc<Tracker>,
    /// How many launches are being made.
    launching: AtomicUsize,
    /// Whether NCCL may have registered memory for a graph.
    registers: AtomicBool,
    /// How many groups NCCL has done since then.
    groups: AtomicU64,
    /// Whether another library has the communicator.
    given_away: AtomicBool,
}

impl Default for Graphs {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            alone: AtomicBool::default(),
            open: AtomicUsize::default(),
            living: AtomicUsize::default(),
            gone: Mutex::default(),
            told_idle: AtomicBool::default(),
            stranded: AtomicBool::default(),
            launched: Arc::new(Tracker::new()),
            launching: AtomicUsize::default(),
            registers: AtomicBool::default(),
            groups: AtomicU64::default(),
            given_away: AtomicBool::default(),
        }
    }
}

#[derive(Default)]
struct All {
    graphs: Vec<Weak<dyn Mortal>>,
    /// Why the graphs have ended.
    over: Option<Error>,
}

/// A launch that is being made.
pub(crate) struct Launching<'a>(&'a Graphs);

impl Drop for Launching<'_> {
    fn drop(&mut self) {
        self.0.launching.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Graphs {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock()
    }

    /// Notes that a capture has its first operation of the communicator. `alone`: its graph has all
    /// operations as long as it lives.
    pub(crate) fn begin(&self, alone: bool) {
        self.alone.fetch_or(alone, Ordering::AcqRel);
        self.open.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a capture has ended.
    pub(crate) fn finish(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }

    /// How many captures are under way that have operations of the communicator.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Notes that NCCL may have registered memory for a graph. From now on groups are counted.
    pub(crate) fn set_registers(&self) {
        self.registers.store(true, Ordering::Relaxed);
    }

    /// Whether NCCL may have registered memory for a graph, and not forgotten it.
    pub(crate) fn are_registered(&self) -> bool {
        let are_gone = self.open() == 0 && self.living.load(Ordering::Acquire) == 0;
        let are_forgotten = || are_gone && self.gone.lock().is_some_and(|gone| self.has_forgotten(gone));
        self.registers.load(Ordering::Relaxed) && !are_forgotten()
    }

    /// Whether NCCL has forgotten what it had registered for graphs that were gone at that time, after as many groups.
    pub(crate) fn has_forgotten(&self, (since, groups): (Instant, u64)) -> bool {
        since.elapsed() >= TOLD
            && self.groups() - groups >= GROUPS
            && running_nccl().is_ok_and(|version| version < UNKNOWN)
    }

    /// Notes that NCCL was revoked with what it had registered for graphs.
    pub(crate) fn set_stranded(&self) {
        self.stranded.store(true, Ordering::Release);
    }

    /// Notes that no launch was under way when CUDA notified NCCL of the end of the graphs, and that none
    /// follows.
    pub(crate) fn set_told_idle(&self) {
        self.told_idle.store(true, Ordering::Release);
    }

    pub(crate) fn were_told_idle(&self) -> bool {
        self.told_idle.load(Ordering::Acquire)
    }

    pub(crate) fn are_stranded(&self) -> bool {
        self.stranded.load(Ordering::Acquire)
    }

    /// Notes that there is one more graph.
    pub(crate) fn note_made(&self) {
        self.living.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that CUDA has destroyed a graph.
    pub(crate) fn note_gone(&self) {
        *self.gone.lock() = Some((Instant::now(), self.groups()));
        self.living.fetch_sub(1, Ordering::AcqRel);
    }

    /// Notes that a capture has ended of which no graph came.
    pub(crate) fn give_up(&self) {
        *self.gone.lock() = Some((Instant::now(), self.groups()));
        self.finish();
    }

    /// Whether there is, or was, a graph or a capture.
    pub(crate) fn have_existed(&self) -> bool {
        self.open() > 0 || self.living.load(Ordering::Acquire) > 0 || self.gone.lock().is_some()
    }

    /// Whether NCCL knows of the end of all graphs, if no launch of theirs was under way since they
    /// were destroyed.
    pub(crate) fn are_told(&self) -> bool {
        let are_gone = self.open() == 0 && self.living.load(Ordering::Acquire) == 0;
        are_gone && self.gone.lock().is_none_or(|(gone, _)| gone.elapsed() >= TOLD)
    }

    /// Counts a group that NCCL has done, or an operation outside of groups. Captured ones do not
    /// count.
    #[inline]
    pub(crate) fn count_group(&self) {
        if self.registers.load(Ordering::Relaxed) {
            self.groups.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How many groups NCCL has done.
    pub(crate) fn groups(&self) -> u64 {
        self.groups.load(Ordering::Acquire)
    }

    /// Notes that another library gets the communicator: NCCL goes on using what it has registered.
    pub(crate) fn give_away(&self) {
        self.given_away.store(true, Ordering::Release);
    }

    pub(crate) fn are_given_away(&self) -> bool {
        self.given_away.load(Ordering::Acquire)
    }

    /// Adds a graph.
    pub(crate) fn add(&self, graph: &Arc<dyn Mortal>) {
        let mut all = self.all();
        if let Some(cause) = all.over.clone() {
            // The communicator has ended during the capture: NCCL waits for the graph already.
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

    /// Whether NCCL does not order graphs and other operations, and there is, or was, a graph or a
    /// capture. The caller holds the lock of the communicator, or asks again when it does.
    #[inline]
    pub(crate) fn are_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// Notes a launch on `stream`, or an attempt.
    pub(crate) fn note_launch(&self, stream: &Stream) {
        self.launched.note(Span::ALL, Access::Write, stream);
    }

    /// Notes that a launch is being made until the guard is dropped, which comes after
    /// [`note_launch`](Self::note_launch).
    pub(crate) fn begin_launch(&self) -> Launching<'_> {
        self.launching.fetch_add(1, Ordering::SeqCst);
        Launching(self)
    }

    /// Whether a launch is being made. Those that begin when the gate is shut are refused.
    pub(crate) fn are_launching(&self) -> bool {
        self.launching.load(Ordering::SeqCst) > 0
    }

    /// The launches of graphs.
    pub(crate) fn launches(&self) -> Arc<Tracker> {
        Arc::clone(&self.launched)
    }

    /// Whether all launches are done that NCCL does not know.
    pub(crate) fn have_left(&self) -> Result<bool> {
        if self.are_alone() { self.launched.is_done() } else { Ok(true) }
    }

    /// The launches that NCCL does not know, if there may be some.
    pub(crate) fn unseen(&self) -> Option<Arc<Tracker>> {
        self.are_alone().then(|| self.launches())
    }

    /// Whether there are graphs. Holds none of them, not even for a moment: the memory of a graph
    /// is freed with it, at a point that the ranks have in common.
    pub(crate) fn exist(&self) -> bool {
        self.all().graphs.iter().any(|graph| graph.strong_count() > 0)
    }

    /// How many graphs may still be launched.
    pub(crate) fn count(&self) -> usize {
        // Only handles leave the lock: the last handle of a graph may be dropped here.
        let all: Vec<_> = self.all().graphs.iter().filter_map(Weak::upgrade).collect();
        all.iter().filter(|graph| graph.is_alive()).count()
    }

    /// Ends the graphs because of `cause`: the communicator is about to end, and NCCL waits for
    /// them. None is launched any more.
    pub(crate) fn end(&self, cause: &Error) {
        let graphs = {
            let mut all = self.all();
            all.over.get_or_insert_with(|| cause.clone());
            std::mem::take(&mut all.graphs)
        };
        let graphs: Vec<_> = graphs.iter().filter_map(Weak::upgrade).collect();
        let left: Vec<_> = graphs.iter().filter_map(|graph| graph.end(cause)).collect();
        // No call of CUDA here: the driver may wait for kernels that only the next step stops.
        if !graphs.is_empty() {
            drop_aside((left, graphs));
        }
        if let Some(launched) = self.unseen() {
            drop_after(vec![launched], ());
        }
    }
}

/// Drops `left` on another thread; on this one if none can be started: NCCL waits for the end of its
/// graphs.
fn drop_aside(left: impl Send + 'static) {
    let left = Arc::new(Mutex::new(Some(left)));
    let taken = Arc::clone(&left);
    if !helper::aside("gpucomm-graphs", move || drop(taken.lock().take())) {
        let left = left.lock().take();
        drop(left);
    }
}

/// Drops `left` on another thread when the launches in `launched` are done. NCCL, which does not
/// know them, frees what they use as soon as no graph is left. An abort stops them, unless they are
/// behind other work that hangs: then `left` is leaked.
pub(crate) fn drop_after(launched: Vec<Arc<Tracker>>, left: impl Send + 'static) {
    helper::aside("gpucomm-graphs", move || {
        for one in launched {
            let mut round = 0;
            // A lost device does nothing any more.
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
