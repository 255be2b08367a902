//! Memory that stays where it is, though no buffer shows it any more.

use std::sync::Arc;

use super::allocation::{Allocation, Shown};
use crate::cuda::devices::device::Device;
use crate::error::Result;

/// As long as this lives, memory is not freed, nor anything else put at its addresses. Mapped memory may grow meanwhile.
pub(crate) struct Hold {
    device: Device,
    /// Taken by the destructor.
    held: Option<Held>,
}

enum Held {
    Allocation(Arc<Allocation>),
    Mapping(Arc<dyn Shown>),
}

impl Allocation {
    /// Holds the memory; `None` where nobody keeps book of it.
    pub(crate) fn hold(&self) -> Option<Hold> {
        let held = match self.shown() {
            Some(shown) => Held::Mapping(Arc::clone(shown)),
            None => Held::Allocation(self.keep()?),
        };
        Some(Hold { device: self.device(), held: Some(held) })
    }
}

impl Hold {
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Whether all uses are done. Does not wait.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        match &self.held {
            None => Ok(true),
            Some(Held::Allocation(memory)) => memory.is_idle(),
            Some(Held::Mapping(shown)) => shown.is_idle(),
        }
    }

    /// Whether both hold the same.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        match (&self.held, &other.held) {
            (Some(Held::Allocation(one)), Some(Held::Allocation(other))) => Arc::ptr_eq(one, other),
            (Some(Held::Mapping(one)), Some(Held::Mapping(other))) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(Held::Mapping(shown)) = self.held.take() {
            shown.let_go();
        }
    }
}
