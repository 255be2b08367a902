//! What a rank has registered for graphs: found by addresses, and kept for a while when the graphs are gone.
//!
//! The end of a graph only says so to a queue, at which NCCL looks in every eleventh group of the communicator.

use std::ops::Range;
use std::sync::{LazyLock, Mutex};

use crate::lock::lock;
use crate::memory::space::held::Piece;

/// Records begin and end at pages of this size.
const PAGE: usize = 4096;

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
pub(crate) fn is_on() -> bool {
    static ON: LazyLock<bool> =
        LazyLock::new(|| std::env::var("NCCL_GRAPH_REGISTER").map_or(true, |value| value.trim() != "0"));
    *ON
}

fn pages(range: &Range<usize>) -> Range<usize> {
    range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE)
}

impl State {
    fn find(&mut self, pages: &Range<usize>) -> Option<&mut Record> {
        self.records.iter_mut().find(|one| one.pages.start <= pages.start && one.pages.end >= pages.end)
    }
}

impl GraphCache {
    /// A graph has memory that was mapped as one at these addresses: its record, or what is wrong with that.
    pub(crate) fn add(&self, range: &Range<usize>, memory: &Piece) -> Result<u64, String> {
        let (mut state, pages) = (lock(&self.0), pages(range));
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
        let known = lock(&self.0).find(&pages(range)).is_some_and(|record| record.memory != *memory);
        if known { Err(stale(range)) } else { Ok(()) }
    }

    /// A graph that had these records is gone.
    pub(crate) fn end(&self, records: &[u64]) {
        lock(&self.0).queue.extend(records);
    }

    /// A group was launched.
    pub(crate) fn step(&self) {
        let mut state = lock(&self.0);
        if state.steps < STEPS {
            state.steps += 1;
            return;
        }
        state.steps = 0;
        for number in std::mem::take(&mut state.queue) {
            if let Some(at) = state.records.iter().position(|one| one.number == number) {
                state.records[at].graphs -= 1;
                if state.records[at].graphs == 0 {
                    state.records.swap_remove(at);
                }
            }
        }
    }
}

fn stale(range: &Range<usize>) -> String {
    format!(
        "{} bytes at {:#x}: NCCL knows other memory there, which was freed, of a graph that it has not forgotten: peers would write to that",
        range.len(),
        range.start
    )
}
