//! Random operations, copies, fills, waits and failures against a model that keeps everything: what each allocation and each
//! stream comes from, and, byte for byte, what the truth is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::{Form, Source, reads};
use crate::cuda::works::history::History;
use crate::cuda::works::lineage::Lineage;
use crate::cuda::works::work::{Fate, Origins, Work, Worker};
use crate::error::{Error, Result};

const BYTES: usize = 6;

/// Both steps of an operation, with nobody in between.
fn operation(
    (work, number): (&Arc<Work>, u64),
    read: [Option<&Lineage>; 2],
    written: Option<&Lineage>,
    history: &History,
    form: Form,
) {
    let in_place = written.filter(|_| form == Form::InPlace);
    let read = reads(Some(&**work), history, [read[0], read[1], in_place]);
    super::operation((work, number), read.as_ref(), written, history, || form);
}

/// Both steps of a copy, with nobody in between.
fn copy(from: &Lineage, to: &Lineage, whole: bool, history: &History) {
    Source::of(from, history).carry(from, to, whole, history);
}

#[derive(Debug, Default)]
struct Sickness(AtomicBool);

impl Worker for Sickness {
    fn health(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(aborted()) } else { Ok(()) }
    }

    fn pending(&self, _done: u64, last: u64) -> Option<String> {
        Some(format!("operation {last}"))
    }

    fn look_around(&self, _done: u64, _last: u64) {}

    fn has_left(&self) -> bool {
        true
    }
}

fn aborted() -> Error {
    Error::Aborted { operation: "test", reason: "it was asked for".into() }
}

/// A communicator.
struct Comm {
    name: usize,
    worker: Arc<Sickness>,
    fate: Arc<Fate>,
    number: u64,
}

impl Comm {
    fn new(name: usize) -> Self {
        Self { name, worker: Arc::default(), fate: Arc::default(), number: 0 }
    }

    /// Its work on a stream, and the number of its next operation.
    fn next(&mut self, history: &History) -> (Arc<Work>, u64) {
        self.number += 1;
        let worker = Arc::downgrade(&self.worker);
        let worker: Weak<dyn Worker> = worker;
        let make = || Work::new(worker, Arc::clone(&self.fate), self.number - 1);
        let work = history.adopt(&self.fate, self.number, make);
        work.enqueue(self.number);
        (work, self.number)
    }
}

/// A communicator and a stream; an operation is its number there.
type Name = (usize, usize);

/// The last operation of each work.
type Last = BTreeMap<Name, u64>;

#[derive(Default, Clone)]
struct Model {
    allocations: Vec<Last>,
    /// What each byte really comes from.
    bytes: Vec<[BTreeSet<(Name, u64)>; BYTES]>,
    streams: Vec<Last>,
    observed: Last,
    failed: BTreeSet<usize>,
    /// How many communicators had been made when one of them was known to have failed.
    failed_at: BTreeMap<usize, usize>,
    /// The communicators that each stream was told of.
    begun: BTreeSet<Name>,
    closed: BTreeSet<usize>,
}

fn merge(into: &mut Last, from: &Last) {
    for (name, number) in from {
        let last = into.entry(*name).or_default();
        *last = (*last).max(*number);
    }
}

impl Model {
    fn is_settled(&self, name: &Name, number: u64) -> bool {
        number <= self.observed.get(name).copied().unwrap_or(0) || self.closed.contains(&name.0)
    }

    fn open(&self, last: &Last) -> Last {
        last.iter().filter(|(name, number)| !self.is_settled(name, **number)).map(|(n, l)| (*n, *l)).collect()
    }

    /// A wait: whether it is well, and what it has seen.
    fn judge(&mut self, last: &Last) -> bool {
        let open = self.open(last);
        let seen: Last =
            open.iter().filter(|(name, _)| !self.failed.contains(&name.0)).map(|(n, l)| (*n, *l)).collect();
        merge(&mut self.observed, &seen);
        seen.len() == open.len()
    }
}

struct World {
    random: fastrand::Rng,
    comms: Vec<Comm>,
    streams: Vec<History>,
    allocations: Vec<Lineage>,
    model: Model,
    /// Works by their ids.
    names: BTreeMap<u32, Name>,
    made: usize,
    /// Those that have failed without a word, and can still be asked.
    sick: Vec<Arc<Sickness>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let model = Model {
            allocations: vec![Last::new(); 4],
            bytes: vec![Default::default(); 4],
            streams: vec![Last::new(); 3],
            ..Default::default()
        };
        Self {
            random: fastrand::Rng::with_seed(seed),
            comms: (0..3).map(Comm::new).collect(),
            streams: (0..3).map(|_| History::default()).collect(),
            allocations: (0..4).map(|_| Lineage::new()).collect(),
            model,
            names: BTreeMap::new(),
            made: 3,
            sick: Vec::new(),
        }
    }

    fn range(&mut self) -> std::ops::Range<usize> {
        let from = self.random.usize(..BYTES);
        from..self.random.usize(from..BYTES) + 1
    }

    fn last(&self, origins: &Origins) -> Last {
        origins.iter().filter(|one| !one.is_settled()).map(|one| (self.names[&one.work.id()], one.number)).collect()
    }

    fn operate(&mut self) {
        let (comm, stream) = (self.random.usize(..3), self.random.usize(..3));
        let written = (self.random.usize(..5) > 0).then(|| self.random.usize(..4));
        // What is read is not what is written, except in place.
        let mut reads = [None, None];
        for read in &mut reads {
            *read = Some(self.random.usize(..8)).filter(|read| *read < 4 && Some(*read) != written);
        }
        let form = [Form::InPlace, Form::Part, Form::Whole][self.random.usize(..3)];
        let range = if form == Form::Whole { 0..BYTES } else { self.range() };
        let comm = &mut self.comms[comm];
        let name = (comm.name, stream);
        let (work, number) = comm.next(&self.streams[stream]);
        self.names.insert(work.id(), name);
        let lineages = reads.map(|read| read.map(|read| &self.allocations[read]));
        let target = written.map(|written| &self.allocations[written]);
        operation((&work, number), lineages, target, &self.streams[stream], form);

        let model = &mut self.model;
        let in_place = written.filter(|_| form == Form::InPlace);
        let (mut read, mut truth) = (Last::new(), BTreeSet::new());
        for at in reads.into_iter().flatten().chain(in_place) {
            merge(&mut read, &model.allocations[at]);
            truth.extend(model.bytes[at].iter().flatten().copied());
        }
        let read = model.open(&read);
        if model.begun.insert(name) {
            // Who begins on a stream is told nothing of what had failed before it was made.
            let failed_at = &model.failed_at;
            model.streams[stream].retain(|(comm, _), _| failed_at.get(comm).is_none_or(|made| name.0 < *made));
        }
        merge(&mut model.streams[stream], &read);
        model.streams[stream].insert(name, number);
        if let Some(at) = written {
            if form == Form::Whole {
                model.allocations[at].clear();
            }
            merge(&mut model.allocations[at], &read);
            merge(&mut model.allocations[at], &Last::from([(name, number)]));
            truth.insert((name, number));
            range.for_each(|byte| model.bytes[at][byte] = truth.clone());
        }
    }

    fn copy(&mut self) {
        let (from, stream) = (self.random.usize(..4), self.random.usize(..3));
        let to = (from + self.random.usize(1..4)) % 4;
        let range = if self.random.bool() { 0..BYTES } else { self.range() };
        let whole = range.len() == BYTES;
        copy(&self.allocations[from], &self.allocations[to], whole, &self.streams[stream]);
        let model = &mut self.model;
        let read = model.open(&model.allocations[from]);
        merge(&mut model.streams[stream], &read);
        if whole {
            model.allocations[to].clear();
        }
        merge(&mut model.allocations[to], &read);
        for byte in range {
            model.bytes[to][byte] = model.bytes[from][byte].clone();
        }
    }

    fn fill(&mut self) {
        let at = self.random.usize(..4);
        self.allocations[at].overwrite();
        self.model.allocations[at].clear();
        self.model.bytes[at] = Default::default();
    }

    fn fill_a_part(&mut self) {
        let (at, range) = (self.random.usize(..4), self.range());
        range.for_each(|byte| self.model.bytes[at][byte].clear());
    }

    fn wait(&mut self) {
        let (origins, last) = if self.random.bool() {
            let at = self.random.usize(..4);
            (self.allocations[at].origins(), self.model.allocations[at].clone())
        } else {
            let at = self.random.usize(..3);
            (self.streams[at].origins(), self.model.streams[at].clone())
        };
        let well = origins.judge("a wait").is_ok();
        assert_eq!(well, self.model.judge(&last));
        // Whoever asks again gets the same answer.
        assert_eq!(origins.judge("a wait").is_ok(), well);
    }

    fn end(&mut self) {
        let at = self.random.usize(..3);
        let comm = &self.comms[at];
        match self.random.usize(..3) {
            0 => {
                comm.fate.fail(aborted());
                self.model.failed.insert(comm.name);
                self.model.failed_at.insert(comm.name, self.made);
            }
            1 => {
                // It is the wait that finds out, the worker must be there to be asked.
                comm.worker.0.store(true, Ordering::Relaxed);
                self.sick.push(Arc::clone(&comm.worker));
                self.model.failed.insert(comm.name);
            }
            _ => {
                comm.fate.close();
                self.model.closed.insert(comm.name);
            }
        }
        self.comms[at] = Comm::new(self.made);
        self.made += 1;
    }

    fn compare(&self) {
        for (at, lineage) in self.allocations.iter().enumerate() {
            let origins = lineage.origins();
            let open = self.model.open(&self.model.allocations[at]);
            assert_eq!(self.last(&origins), open, "allocation {at}");
            for (name, number) in self.model.bytes[at].iter().flatten() {
                let known = self.model.is_settled(name, *number) || open.get(name).is_some_and(|last| last >= number);
                assert!(known, "a byte of allocation {at} comes from operation {number} of {name:?}");
            }
        }
        for (at, history) in self.streams.iter().enumerate() {
            let covered = self.last(&history.origins());
            assert_eq!(covered, self.model.open(&self.model.streams[at]), "stream {at}");
        }
    }
}

#[test]
fn everything_against_the_model() {
    for seed in 0..100 {
        let mut world = World::new(seed);
        for step in 0..150 {
            let what = world.random.usize(..40);
            match what {
                0..18 => world.operate(),
                18..26 => world.copy(),
                26..29 => world.fill(),
                29..31 => world.fill_a_part(),
                31..38 => world.wait(),
                _ => world.end(),
            }
            let compared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.compare()));
            assert!(compared.is_ok(), "seed {seed}, step {step}, after {what}");
        }
    }
}

fn fail(comm: &Comm) {
    comm.fate.fail(aborted());
}

#[test]
fn what_was_seen_stays_well() {
    let (history, lineage) = (History::default(), Lineage::new());
    let mut comm = Comm::new(0);
    let (work, number) = comm.next(&history);
    operation((&work, number), [None, None], Some(&lineage), &history, Form::Whole);
    let later = Lineage::new();
    lineage.origins().judge("a wait").unwrap();
    let (work, number) = comm.next(&history);
    operation((&work, number), [Some(&lineage), None], Some(&later), &history, Form::Whole);
    fail(&comm);
    lineage.origins().judge("a wait").unwrap();
    let error = later.origins().judge("a wait").unwrap_err();
    assert!(matches!(error, Error::Aborted { operation: "a wait", .. }), "{error}");
}

/// A communicator that is gone without a word is no reason to say that all is well.
#[test]
fn a_worker_that_is_gone() {
    let history = History::default();
    let mut comm = Comm::new(0);
    comm.next(&history);
    comm.worker = Arc::default();
    let error = history.origins().judge("a wait").unwrap_err();
    assert!(matches!(error, Error::Aborted { .. }), "{error}");
}

/// A work has room for so many operations as a word can count; then another one goes on.
#[test]
fn numbers_that_do_not_fit() {
    let (history, lineage) = (History::default(), Lineage::new());
    let mut comm = Comm::new(0);
    let (first, number) = comm.next(&history);
    operation((&first, number), [None, None], Some(&lineage), &history, Form::Part);
    comm.number = u64::from(u32::MAX) - 1;
    let (same, number) = comm.next(&history);
    operation((&same, number), [None, None], Some(&lineage), &history, Form::Part);
    assert!(Arc::ptr_eq(&first, &same));
    assert_eq!(lineage.origins().iter().map(|one| one.number).collect::<Vec<_>>(), [number]);
    let (second, number) = comm.next(&history);
    operation((&second, number), [None, None], Some(&lineage), &history, Form::Part);
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(lineage.origins().iter().map(|one| one.number).collect::<Vec<_>>(), [number - 1, number]);
    fail(&comm);
    assert!(history.origins().judge("a wait").is_err());
}

#[path = "carry_threads_tests.rs"]
mod threads;
#[path = "carry_waits_tests.rs"]
mod waits;
