//! What a rank has registered for itself: ranges of pages, kept as NCCL keeps them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::memory::space::held::InUse;

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

/// As long as this lives, an operation uses a registration.
#[derive(Debug)]
#[expect(dead_code, reason = "while it lives, deregistering is reported")]
pub(crate) struct Found(Arc<()>);

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
        let mut all = lock(&self.by_handle);
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
        let mut all = lock(&self.by_handle);
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
        let all = lock(&self.by_handle);
        let holds = |one: &&Registration| one.pages.start <= address && address + bytes <= one.pages.end;
        all.values().find(holds).map(|one| Found(Arc::clone(&one.found)))
    }

    /// Forgets all: how many there were.
    pub(super) fn clear(&self) -> usize {
        let all = std::mem::take(&mut *lock(&self.by_handle));
        self.len.store(0, Ordering::Release);
        all.len()
    }
}
