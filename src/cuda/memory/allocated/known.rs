//! What is known of memory: who uses it, and where its bytes come from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cuda::order::lanes::Tracker;
use crate::cuda::works::lineage::Lineage;
use crate::error::Result;

/// Who uses some memory, and where its bytes come from.
pub(crate) struct Known {
    pub(super) uses: Tracker,
    pub(super) lineage: Lineage,
    /// Of mapped memory.
    extent: Option<Box<Extent>>,
}

/// How much of mapped memory there is to overwrite.
#[derive(Debug, Default)]
struct Extent {
    /// How many bytes it has, and how many the allocation shows that shows most of it.
    has: AtomicUsize,
    shown: AtomicUsize,
    /// Whether it is mapped at several addresses, by allocations that know nothing of each other.
    aliased: AtomicBool,
}

impl Known {
    pub(super) fn new() -> Self {
        Self { uses: Tracker::new(), lineage: Lineage::new(), extent: None }
    }

    /// Of memory of which nothing is kept.
    pub(super) fn nothing() -> Self {
        Self { uses: Tracker::none(), lineage: Lineage::unknown(), extent: None }
    }

    /// Of memory that others write to and read as well, while it is lent.
    #[cfg(feature = "cudarc")]
    pub(super) fn lent() -> Self {
        Self { uses: Tracker::new(), ..Self::nothing() }
    }

    /// Of memory that is to be mapped.
    pub(crate) fn of_mapped() -> Arc<Self> {
        Arc::new(Self { extent: Some(Box::default()), ..Self::new() })
    }

    /// So many bytes more are mapped of it.
    pub(crate) fn add(&self, bytes: usize) {
        if let Some(extent) = &self.extent {
            extent.has.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// An allocation shows so many bytes of it.
    pub(super) fn show(&self, bytes: usize) {
        if let Some(extent) = &self.extent {
            extent.shown.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// It is mapped at other addresses too.
    pub(crate) fn set_aliased(&self) {
        if let Some(extent) = &self.extent {
            extent.aliased.store(true, Ordering::Relaxed);
        }
    }

    /// How many bytes are all of it: who writes to so many has overwritten whatever was there.
    pub(super) fn whole(&self) -> usize {
        self.extent.as_ref().map_or(0, |extent| {
            let aliased = extent.aliased.load(Ordering::Relaxed);
            if aliased { extent.has.load(Ordering::Relaxed) } else { extent.shown.load(Ordering::Relaxed) }
        })
    }

    /// Who uses it.
    pub(crate) fn tracker(&self) -> &Tracker {
        &self.uses
    }

    /// Where its bytes come from.
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Whether all uses are done. Does not wait. What a stream has done that is being captured is not known.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        self.uses.is_done()
    }
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("lineage", &self.lineage).finish_non_exhaustive()
    }
}
