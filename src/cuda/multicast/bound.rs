//! Memory that is bound to a multicast object, and stays until that has let go of it.

use std::sync::Arc;

use crate::cuda::memory::allocated::allocation::Allocation;
use crate::cuda::memory::allocated::known::Known;
use crate::cuda::order::lanes::Tracker;
use crate::cuda::order::recording::Used;
use crate::cuda::vmm::PhysicalMemory;
use crate::cuda::vmm::physical::Physical;
use crate::cuda::works::lineage::Lineage;
use crate::error::{Error, Result};

/// Memory that is bound.
pub(super) struct Bound(Kind);

enum Kind {
    /// By its handle.
    Memory(Arc<Physical>, Arc<Known>),
    /// By its address.
    Allocation(Arc<Allocation>),
}

impl Bound {
    pub(super) fn memory(operation: &'static str, memory: &PhysicalMemory) -> Result<Arc<Self>> {
        let physical = Arc::clone(memory.inner());
        let known = physical.bind(operation)?;
        Ok(Arc::new(Self(Kind::Memory(physical, known))))
    }

    pub(super) fn allocation(operation: &'static str, memory: &Allocation) -> Result<Arc<Self>> {
        let kept = memory.keep().ok_or_else(|| Error::InvalidUsage {
            operation,
            reason: "expected memory that a buffer keeps, got a view of memory of others".into(),
        })?;
        Ok(Arc::new(Self(Kind::Allocation(kept))))
    }

    /// Whether all uses are done. Does not wait.
    pub(super) fn is_done(&self) -> Result<bool> {
        self.tracker().is_done()
    }
}

impl Used for Bound {
    fn tracker(&self) -> &Tracker {
        match &self.0 {
            Kind::Memory(_, known) => known.tracker(),
            Kind::Allocation(memory) => memory.tracker(),
        }
    }

    fn lineage(&self) -> &Lineage {
        match &self.0 {
            Kind::Memory(_, known) => known.lineage(),
            Kind::Allocation(memory) => memory.lineage(),
        }
    }

    /// A graph would keep the memory, and not the addresses by which it is written to.
    fn keep(&self) -> Option<Arc<dyn Used>> {
        None
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Kind::Memory(physical, _) = &self.0 {
            physical.unbind();
        }
    }
}
