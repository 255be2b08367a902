//! The ranks of a communicator that live in this process.
//!
//! NCCL frees what they share, and with it all of them, when the last one is aborted or destroyed; until then kernels and
//! threads of its own may reach the memory of each. So whatever NCCL may still look at is kept until all have ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::config::Config;
use super::unique_id::UniqueId;

/// The ranks that were started with one id.
#[derive(Debug, Default)]
pub(crate) struct Household {
    /// How many NCCL has not let go of.
    open: AtomicUsize,
    /// NCCL keeps pointers into them.
    configs: Mutex<Vec<Arc<Config>>>,
}

static HOUSEHOLDS: Mutex<BTreeMap<[u8; UniqueId::BYTES], Weak<Household>>> = Mutex::new(BTreeMap::new());

impl Household {
    /// That of the ranks of `id`, joined by `ranks` more, before any of them starts.
    pub(crate) fn join(id: &UniqueId, ranks: usize) -> Arc<Self> {
        let mut all = HOUSEHOLDS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, household| household.strong_count() > 0);
        let household = all.get(id.as_bytes()).and_then(Weak::upgrade).unwrap_or_default();
        all.insert(*id.as_bytes(), Arc::downgrade(&household));
        household.open.fetch_add(ranks, Ordering::Relaxed);
        household
    }

    /// Keeps a configuration that ranks are started with.
    pub(crate) fn keep(&self, config: Config) -> Arc<Config> {
        let config = Arc::new(config);
        self.configs.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&config));
        config
    }

    /// NCCL has let go of one rank.
    pub(crate) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether NCCL has let go of all of them.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }
}
