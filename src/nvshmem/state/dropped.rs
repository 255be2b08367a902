//! The symmetric blocks of a context: which live, and which were dropped and wait for all PEs to free them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::cuda::{Address, Device, Stream, Uses};
use crate::error::Result;
use crate::lock::{Mutex, MutexGuard};

/// All blocks, by number. PEs allocate and free together, so a number means the same on all of them.
#[derive(Default)]
pub(crate) struct Dropped {
    all: Mutex<All>,
}

/// A block that may not have been dropped, and need not be alive.
pub(crate) trait Live: Send + Sync {
    /// Returns true if more than its buffer holds it.
    fn is_held(&self) -> bool;

    /// Returns true if all uses of it are done, on all devices. Does not wait.
    ///
    /// The last handle may go here, and so the block may be dropped.
    fn is_done(&self) -> Result<bool>;
}

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
    live: Arc<dyn Live>,
    /// What is left to be done with it, where it was dropped.
    dropped: Option<Vec<Uses>>,
    /// Where it is used, if it was leaked: nobody knows until when.
    leaked: Option<Leaked>,
}

/// Who uses a block that was leaked.
#[derive(Default, Clone)]
pub(crate) struct Leaked {
    /// The devices of the streams that use it.
    pub(crate) devices: Vec<Device>,
    /// Those of streams of others, of which nobody knows whether they are still there.
    pub(crate) borrowed: Vec<Device>,
}

impl Dropped {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock()
    }

    /// The number of the next block.
    pub(crate) fn number(&self) -> u64 {
        let mut all = self.all();
        all.made += 1;
        all.made - 1
    }

    /// Adds a block with that number.
    pub(crate) fn add(&self, number: u64, address: Address, bytes: usize, span: usize, live: Arc<dyn Live>) {
        let block = Block { address, bytes, span, put_down: false, live, dropped: None, leaked: None };
        self.all().blocks.insert(number, block);
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
        let live = all.blocks.values().filter(|block| block.dropped.is_none() && block.leaked.is_none());
        live.filter(|block| block.put_down || block.live.is_held()).count()
    }

    /// A block was dropped, whose `uses` may not be done.
    pub(crate) fn put(&self, number: u64, uses: Vec<Uses>) {
        if let Some(block) = self.all().blocks.get_mut(&number) {
            block.dropped = Some(uses);
        }
    }

    /// A block is gone, and its memory is not freed before the library ends: it was dropped where nobody can tell what still uses it.
    pub(crate) fn leak(&self, number: u64, uses: &Uses) {
        let devices = uses.lanes().map(Stream::device).collect();
        let borrowed = uses.unmarked().filter(|stream| stream.is_borrowed()).map(Stream::device).collect();
        if let Some(block) = self.all().blocks.get_mut(&number) {
            let leaked = block.leaked.get_or_insert_default();
            leaked.devices.extend::<Vec<_>>(devices);
            leaked.borrowed.extend::<Vec<_>>(borrowed);
        }
    }

    /// Who may use the blocks that were leaked.
    pub(crate) fn leaked(&self) -> Leaked {
        let mut all = Leaked::default();
        for leaked in self.all().blocks.values().filter_map(|block| block.leaked.as_ref()) {
            all.devices.extend(&leaked.devices);
            all.borrowed.extend(&leaked.borrowed);
        }
        all
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

    /// Returns true if all uses of the blocks that were dropped are done. Does not wait.
    pub(crate) fn is_done(&self) -> Result<bool> {
        for uses in self.all().blocks.values_mut().flat_map(|block| block.dropped.iter_mut().flatten()) {
            if !uses.is_done()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if all uses of all blocks are done, also of those that live or were forgotten. Does not wait. For blocks that were
    /// leaked, [`leaked`](Self::leaked) says what is known.
    pub(crate) fn all_are_done(&self) -> Result<bool> {
        if !self.is_done()? {
            return Ok(false);
        }
        let is_live = |block: &Block| block.dropped.is_none() && block.leaked.is_none();
        let live = |block: &Block| is_live(block).then(|| Arc::clone(&block.live));
        let live: Vec<_> = self.all().blocks.values().filter_map(live).collect();
        // Without the lock, which a block takes that is dropped meanwhile.
        for block in live {
            if !block.is_done()? {
                return Ok(false);
            }
        }
        Ok(true)
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
