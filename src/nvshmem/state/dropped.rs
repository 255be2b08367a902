//! The symmetric blocks of a context: which live, and which were dropped and wait for all PEs to free them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::{Address, Uses};
use crate::error::Result;

/// All blocks, by number. PEs allocate and free together, so a number means the same on all of them.
#[derive(Default)]
pub(crate) struct Dropped {
    all: Mutex<All>,
}

/// Whether more than its buffer holds a block.
type Held = Box<dyn Fn() -> bool + Send>;

#[derive(Default)]
struct All {
    blocks: BTreeMap<u64, Block>,
    made: u64,
}

struct Block {
    address: Address,
    bytes: usize,
    /// What it takes of the heap at most.
    span: usize,
    /// Whether the buffer is gone; what holds the block then is a graph.
    put_down: bool,
    /// Who holds it.
    held: Held,
    /// What is left to be done with it, where it was dropped.
    dropped: Option<Vec<Uses>>,
}

impl Dropped {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more block; its number.
    pub(crate) fn add(&self, address: Address, bytes: usize, span: usize) -> u64 {
        let mut all = self.all();
        let number = all.made;
        all.made += 1;
        let held: Held = Box::new(|| false);
        all.blocks.insert(number, Block { address, bytes, span, put_down: false, held, dropped: None });
        number
    }

    /// Says of a block who holds it.
    pub(crate) fn set_held(&self, number: u64, held: Held) {
        if let Some(block) = self.all().blocks.get_mut(&number) {
            block.held = held;
        }
    }

    /// The buffer of a block is gone.
    pub(crate) fn put_down(&self, number: u64) {
        if let Some(block) = self.all().blocks.get_mut(&number) {
            block.put_down = true;
        }
    }

    /// How many blocks are still in use by others than their buffer: by graphs.
    pub(crate) fn in_graphs(&self) -> usize {
        let all = self.all();
        let live = all.blocks.values().filter(|block| block.dropped.is_none());
        live.filter(|block| block.put_down || (block.held)()).count()
    }

    /// A block was dropped, whose `uses` may not be done.
    pub(crate) fn put(&self, number: u64, uses: Vec<Uses>) {
        if let Some(block) = self.all().blocks.get_mut(&number) {
            block.dropped = Some(uses);
        }
    }

    /// The numbers of all blocks, and of each whether it can be freed here.
    pub(crate) fn list(&self) -> Result<Vec<(u64, bool)>> {
        let mut list = Vec::new();
        for (number, block) in &mut self.all().blocks {
            let free = match &mut block.dropped {
                None => false,
                Some(uses) => {
                    let mut done = true;
                    for uses in uses {
                        done &= uses.is_done()?;
                    }
                    done
                }
            };
            list.push((*number, free));
        }
        Ok(list)
    }

    /// Whether blocks were dropped whose uses are not done.
    pub(crate) fn waits(&self) -> Result<bool> {
        for block in self.all().blocks.values_mut() {
            for uses in block.dropped.iter_mut().flatten() {
                if !uses.is_done()? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Takes a block that all PEs free now: where it begins.
    pub(crate) fn take(&self, number: u64) -> Option<Address> {
        self.all().blocks.remove(&number).map(|block| block.address)
    }

    /// Blocks and bytes that are not free.
    pub(crate) fn held(&self) -> (usize, usize) {
        let all = self.all();
        (all.blocks.len(), all.blocks.values().map(|block| block.bytes).sum())
    }

    /// Where in the heap those lie that are not free.
    pub(crate) fn spans(&self) -> Vec<Range<usize>> {
        let all = self.all();
        let span = |block: &Block| block.address.ptr().addr()..block.address.ptr().addr() + block.span;
        all.blocks.values().filter(|block| block.span > 0).map(span).collect()
    }

    /// Blocks and bytes that nobody has dropped.
    pub(crate) fn live(&self) -> (usize, usize) {
        let all = self.all();
        let live = all.blocks.values().filter(|block| block.dropped.is_none());
        live.fold((0, 0), |(blocks, bytes), block| (blocks + 1, bytes + block.bytes))
    }
}
