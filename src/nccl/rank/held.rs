//! The operations of a rank that graphs hold, for dumps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::clock;
use crate::lock::Mutex;

/// How many operations are kept of each graph.
const KEPT: usize = 64;

/// The operations of a rank that one graph holds. Lives as long as the graph.
#[derive(Debug)]
pub(crate) struct Held {
    /// Numbers the graphs that hold operations of the rank, from 1 on.
    pub(crate) number: u64,
    /// The head and the count of the first operations.
    operations: Mutex<Vec<(u64, u64)>>,
    total: AtomicU64,
    launches: AtomicU64,
    /// The number of the last launch among the operations of the rank, and its time.
    launch: AtomicU64,
    when: AtomicU64,
}

/// A snapshot of [`Held`].
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    pub(crate) number: u64,
    pub(crate) operations: Vec<(u64, u64)>,
    pub(crate) total: u64,
    pub(crate) launches: u64,
    /// The number of the last launch, and its time.
    pub(crate) last: Option<(u64, u64)>,
}

impl Held {
    /// Adds an operation that was captured.
    pub(crate) fn add(&self, head: u64, count: u64) {
        let mut operations = self.operations.lock();
        if operations.len() < KEPT {
            operations.push((head, count));
        }
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a launch, which is operation `number` of the rank.
    pub(crate) fn launched(&self, number: u64) {
        self.when.store(clock::tick(), Ordering::Relaxed);
        self.launch.store(number, Ordering::Relaxed);
        self.launches.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> Graph {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let launches = load(&self.launches);
        Graph {
            number: self.number,
            operations: self.operations.lock().clone(),
            total: load(&self.total),
            launches,
            last: (launches > 0).then(|| (load(&self.launch), load(&self.when))),
        }
    }
}

/// The graphs of one rank.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<(u64, Vec<Weak<Held>>)>);

impl Holds {
    /// Adds a graph.
    pub(super) fn begin(&self) -> Arc<Held> {
        let mut all = self.0.lock();
        all.0 += 1;
        let (number, operations) = (all.0, Mutex::default());
        let [total, launches, launch, when] = [const { AtomicU64::new(0) }; 4];
        let held = Arc::new(Held { number, operations, total, launches, launch, when });
        all.1.retain(|graph| graph.strong_count() > 0);
        all.1.push(Arc::downgrade(&held));
        held
    }

    pub(super) fn all(&self) -> Vec<Graph> {
        self.0.lock().1.iter().filter_map(|graph| Some(graph.upgrade()?.now())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_told_as_long_as_they_live() {
        let holds = Holds::default();
        let (first, second) = (holds.begin(), holds.begin());
        (0..KEPT as u64 + 3).for_each(|count| first.add(1, count));
        second.launched(5);
        second.launched(9);
        let all = holds.all();
        assert_eq!(all.iter().map(|graph| (graph.number, graph.launches)).collect::<Vec<_>>(), [(1, 0), (2, 2)]);
        assert_eq!((all[0].total, all[0].operations.len(), all[0].last), (KEPT as u64 + 3, KEPT, None));
        assert_eq!((all[1].total, all[1].last.map(|(number, _)| number)), (0, Some(9)));
        drop(first);
        assert_eq!(holds.all().iter().map(|graph| graph.number).collect::<Vec<_>>(), [2]);
    }
}
