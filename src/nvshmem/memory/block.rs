//! A block of symmetric memory: this PE's part of it, and what this PE does with the parts of others.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::cuda::{Address, Allocation, Lineage, Tracker, Used, Uses, is_off_limits};
use crate::error::Result;
use crate::lock::Mutex;
use crate::nvshmem::state::dropped::Live;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::known_memory::Key;
use crate::nvshmem::state::order::Order;

/// The uses that are left of the parts of others, for who frees the block.
type Left = Arc<Mutex<Option<Uses>>>;

/// Symmetric memory of all PEs, under one number. It is put down when the last handle goes, and freed where all PEs come together.
pub(crate) struct Block {
    me: Weak<Self>,
    pub(crate) inner: Arc<Inner>,
    /// This PE's own part, and who uses it.
    pub(crate) alloc: Arc<Allocation>,
    /// Who uses the parts of others from here: they are not freed before that is done. These uses are not ordered: what PEs do to each
    /// other's memory they order themselves.
    remote: Tracker,
    lineage: Lineage,
    /// The order in which this PE comes to the parts of others by views, made for the first one.
    views: Mutex<BTreeMap<usize, Arc<Order>>>,
    left: Left,
    number: u64,
}

impl Block {
    /// Over `bytes` at `address`, which the library has just allocated on all PEs: with what it keeps beside, up to `span`.
    pub(crate) fn new(inner: &Arc<Inner>, address: Address, bytes: usize, span: usize) -> Arc<Self> {
        let (dropped, left) = (Arc::clone(&inner.dropped), Left::default());
        let number = dropped.number();
        let rest = Arc::clone(&left);
        let free = Box::new(move |freed: crate::cuda::Freed| {
            let rest = rest.lock().take();
            dropped.put(number, [Some(freed.uses), rest].into_iter().flatten().collect());
        });
        let all = Arc::clone(&inner.dropped);
        let leaked = Box::new(move |uses: &Uses| all.leak(number, uses));
        let alloc = Allocation::external_or_leaked((address, bytes), inner.device, free, leaked);
        inner.own.add(Key::Allocation(alloc.id()));
        let memory = Arc::downgrade(&alloc);
        let block = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            inner: Arc::clone(inner),
            alloc,
            remote: Tracker::new(),
            lineage: Lineage::unknown(),
            views: Mutex::default(),
            left,
            number,
        });
        let handles = Handles { block: Arc::downgrade(&block), memory };
        inner.dropped.add(number, address, bytes, span, Arc::new(handles));
        block
    }

    /// The order in which this PE comes to the part of `pe`, another one, by views.
    pub(crate) fn views_of(&self, pe: usize) -> Arc<Order> {
        let mut views = self.views.lock();
        Arc::clone(views.entry(pe).or_insert_with(Order::new))
    }

    /// The buffer is gone.
    pub(crate) fn put_down(&self) {
        self.inner.dropped.put_down(self.number);
    }
}

/// A block and its memory, which graphs may keep for longer.
struct Handles {
    block: Weak<Block>,
    memory: Weak<Allocation>,
}

impl Live for Handles {
    /// The buffer has one handle of the block, and the block one of the memory.
    fn is_held(&self) -> bool {
        self.block.strong_count() > 1 || self.memory.strong_count() > 1
    }

    fn is_done(&self) -> Result<bool> {
        let (block, memory) = (self.block.upgrade(), self.memory.upgrade());
        // Without memory, it is about to be dropped on another thread.
        let Some(memory) = memory else { return Ok(false) };
        let remote = block.map_or(Ok(true), |block| block.remote.is_done())?;
        Ok(remote && memory.tracker().is_done()?)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.inner.own.remove(Key::Allocation(self.alloc.id()));
        let mut uses = self.remote.take();
        if !is_off_limits() {
            uses.let_go();
        } else if uses.needs_borrowed() {
            // A host function must not call CUDA, and the borrowed stream may be gone later. So the memory is leaked.
            self.inner.dropped.leak(self.number, &uses);
            std::mem::forget((Arc::clone(&self.alloc), uses));
            return;
        }
        *self.left.lock() = Some(uses);
    }
}

impl Used for Block {
    fn tracker(&self) -> &Tracker {
        &self.remote
    }

    fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn keep(&self) -> Option<Arc<dyn Used>> {
        self.me.upgrade().map(|block| block as Arc<dyn Used>)
    }
}
