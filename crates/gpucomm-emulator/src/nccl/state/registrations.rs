//! What a rank has registered, by calls and for graphs: ranges of pages, kept as NCCL keeps them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use crate::lock::Mutex;
use crate::memory::usage::{InUse, Piece};
use crate::nccl::basics::variables;

/// Registrations begin and end at pages of this size.
const PAGE: usize = 4096;

/// Pages that are registered, perhaps more than once.
#[derive(Debug)]
struct Registration {
    pages: Range<usize>,
    /// One for each time, which keeps the memory from being freed unseen.
    times: Vec<InUse>,
    /// Held by the operations that found it.
    found: Arc<()>,
}

/// As long as this lives, an operation uses a registration, or a window.
#[derive(Debug)]
#[expect(dead_code, reason = "while it lives, deregistering is reported")]
pub(crate) struct Found(Arc<()>);

impl Found {
    /// One more operation holds what `found` is of.
    pub(super) fn new(found: &Arc<()>) -> Self {
        Self(Arc::clone(found))
    }
}

/// The registrations of one rank, by their handles.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    by_handle: Mutex<BTreeMap<usize, Registration>>,
    /// How many there are.
    len: AtomicUsize,
}

/// Registrations are named by numbers that only look like pointers.
static NEXT: AtomicUsize = AtomicUsize::new(1);

impl Registrations {
    /// Registers bytes: the handle, which is that of pages that hold all of them, where there are such.
    pub(crate) fn add(&self, address: usize, bytes: usize, used: InUse) -> usize {
        let begin = address / PAGE * PAGE;
        let pages = begin..(address + bytes).next_multiple_of(PAGE);
        let mut all = self.by_handle.lock();
        let known = all.iter_mut().find(|(_, one)| one.pages.start <= pages.start && one.pages.end >= pages.end);
        if let Some((handle, one)) = known {
            one.times.push(used);
            return *handle;
        }
        let handle = NEXT.fetch_add(1, Ordering::Relaxed) * 64;
        all.insert(handle, Registration { pages, times: vec![used], found: Arc::default() });
        self.len.store(all.len(), Ordering::Release);
        handle
    }

    /// Takes back one time; what is wrong with that, if something is. Whether the communicator was revoked: NCCL has waited then for what
    /// used it.
    pub(crate) fn remove(&self, handle: usize, revoked: bool) -> Result<(), &'static str> {
        let mut all = self.by_handle.lock();
        let Some(one) = all.get_mut(&handle) else {
            return Err("there is no registration with this handle, or it was deregistered before");
        };
        one.times.pop();
        if one.times.is_empty() {
            let busy = Arc::strong_count(&one.found) > 1;
            all.remove(&handle);
            self.len.store(all.len(), Ordering::Release);
            if busy && !revoked {
                return Err("operations use what is deregistered, and peers lose their way to it");
            }
        }
        Ok(())
    }

    /// What holds all of these bytes.
    pub(crate) fn find(&self, address: usize, bytes: usize) -> Option<Found> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let all = self.by_handle.lock();
        let holds = |one: &&Registration| one.pages.start <= address && address + bytes <= one.pages.end;
        all.values().find(holds).map(|one| Found::new(&one.found))
    }

    /// Forgets all: how many there were.
    pub(super) fn clear(&self) -> usize {
        let all = std::mem::take(&mut *self.by_handle.lock());
        self.len.store(0, Ordering::Release);
        all.len()
    }
}

// What a rank has registered for graphs: found by addresses, and kept for a while when the graphs are gone.
//
// The end of a graph only says so to a queue, at which NCCL looks in every eleventh group of the communicator.

/// Groups after which NCCL looks at the queue in the next one.
const STEPS: u32 = 10;

#[derive(Debug)]
struct Record {
    number: u64,
    pages: Range<usize>,
    memory: Piece,
    /// How many graphs have it, and those that are gone and were not looked at.
    graphs: usize,
}

#[derive(Debug, Default)]
struct State {
    records: Vec<Record>,
    /// What graphs had that are gone.
    queue: Vec<u64>,
    steps: u32,
    next: u64,
}

/// What one rank has registered for graphs.
#[derive(Debug, Default)]
pub(crate) struct GraphCache(Mutex<State>);

/// Whether NCCL registers anything for graphs: NCCL_GRAPH_REGISTER, which it reads once.
pub(crate) fn registers_graphs() -> bool {
    static ON: LazyLock<bool> =
        LazyLock::new(|| variables::value("NCCL_GRAPH_REGISTER").is_none_or(|value| value.trim() != "0"));
    *ON
}

fn pages(range: &Range<usize>) -> Range<usize> {
    range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE)
}

impl State {
    /// Forgets what the graphs in the queue had, and no other has.
    fn look(&mut self) {
        self.steps = 0;
        for number in std::mem::take(&mut self.queue) {
            if let Some(at) = self.records.iter().position(|one| one.number == number) {
                self.records[at].graphs -= 1;
                if self.records[at].graphs == 0 {
                    self.records.swap_remove(at);
                }
            }
        }
    }

    fn find(&mut self, pages: &Range<usize>) -> Option<&mut Record> {
        self.records.iter_mut().find(|one| one.pages.start <= pages.start && one.pages.end >= pages.end)
    }
}

impl GraphCache {
    /// A graph has memory that was mapped as one at these addresses: its record, or what is wrong with that.
    pub(crate) fn add(&self, range: &Range<usize>, memory: &Piece) -> Result<u64, String> {
        let (mut state, pages) = (self.0.lock(), pages(range));
        if let Some(record) = state.find(&pages) {
            if record.memory != *memory {
                return Err(stale(range));
            }
            record.graphs += 1;
            return Ok(record.number);
        }
        state.next += 1;
        let number = state.next;
        state.records.push(Record { number, pages, memory: memory.clone(), graphs: 1 });
        Ok(number)
    }

    /// What is wrong with registering memory at these addresses.
    pub(crate) fn check(&self, range: &Range<usize>, memory: &Piece) -> Result<(), String> {
        let known = self.0.lock().find(&pages(range)).is_some_and(|record| record.memory != *memory);
        if known { Err(stale(range)) } else { Ok(()) }
    }

    /// A graph that had these records is gone.
    pub(crate) fn end(&self, records: &[u64]) {
        self.0.lock().queue.extend(records);
    }

    /// A group was launched.
    pub(crate) fn step(&self) {
        let mut state = self.0.lock();
        if state.steps < STEPS {
            state.steps += 1;
            return;
        }
        state.look();
    }

    /// NCCL looks at the queue.
    pub(crate) fn look(&self) {
        self.0.lock().look();
    }

    /// How much is registered for graphs.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().records.len()
    }
}

fn stale(range: &Range<usize>) -> String {
    format!(
        "{} bytes at {:#x}: NCCL knows other memory there, which was freed, of a graph that it has not forgotten: peers would write to that",
        range.len(),
        range.start
    )
}
