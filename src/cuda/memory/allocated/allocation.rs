//! Allocations of device memory, shared by the buffers and slices that show them.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::known::Known;
use crate::cuda::devices::check::{check, check_memory};
use crate::cuda::devices::device::Device;
use crate::cuda::devices::settle::undisturbing;
use crate::cuda::devices::thread::is_off_limits;
use crate::cuda::devices::{owners, pool, scarce};
use crate::cuda::memory::basics::address::Address;
use crate::cuda::order::busy::Busy;
use crate::cuda::order::in_flight::ENTRY;
use crate::cuda::order::lanes::{Tracker, Uses};
use crate::cuda::order::later;
use crate::cuda::order::ranged::Span;
use crate::cuda::order::recording;
use crate::cuda::order::recording::Used;
use crate::cuda::order::stream::Stream;
use crate::cuda::order::uses::Access;
use crate::cuda::works::lineage::Lineage;
use crate::deadline::{Deadline, default_timeout};
use crate::error::Result;
use crate::sys;

/// How long a destructor waits for uses of memory that is not freed in stream order; then it leaks.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// The wait of a destructor.
pub(crate) fn drop_deadline() -> Deadline {
    Deadline::after(DROP_WAIT.min(default_timeout()))
}

/// What the free hook of external memory gets.
pub(crate) struct Freed {
    /// That of the allocation: what others know about it, they know by this.
    pub(crate) id: u64,
    pub(crate) address: Address,
    pub(crate) device: Device,
    /// The uses that may not be done yet: see [`Uses::idle`].
    pub(crate) uses: Uses,
    /// See [`Allocation::linger`].
    pub(crate) lingers: bool,
}

/// Frees external memory, at once or, where uses are not done, later.
pub(crate) type FreeHook = Box<dyn FnOnce(Freed) + Send + Sync>;

/// Gets the uses of external memory that is leaked instead: the last handle was dropped in a host function, where CUDA cannot tell what is still on its
/// way. Streams of others among them may be gone. Must neither block nor call CUDA.
#[cfg_attr(not(feature = "nvshmem"), allow(dead_code))]
pub(crate) type LeakHook = Box<dyn FnOnce(&Uses) + Send + Sync>;

/// What shows memory at the address of an allocation, or of several.
pub(crate) trait Shown: Any + Send + Sync {
    fn as_any(&self) -> &dyn Any;

    /// Whether all uses are done. Does not wait.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    fn is_idle(&self) -> Result<bool>;

    /// An allocation that it is shown by is gone; its uses may not be done.
    fn let_go(self: Arc<Self>);
}

/// Who made the memory, by a number that no other owner has, and who may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It belongs to no communicator or context. Every communicator may use it.
    Anybody,
    /// This one, and anybody may use it.
    #[cfg_attr(not(feature = "nccl"), allow(dead_code))]
    Open(u64),
    /// This one alone may use it.
    #[cfg_attr(not(feature = "nccl"), allow(dead_code))]
    Only(u64),
}

enum Kind {
    /// No memory: zero bytes.
    Empty,
    /// From the pool of the device: freed in the order of this stream.
    Pool(Stream),
    /// `cudaMalloc`.
    Malloc,
    /// Made and freed by somebody else.
    External(FreeHook, Option<LeakHook>),
    /// Mapped.
    Mapped(Arc<dyn Shown>),
}

/// Memory of a device, and who uses it: one of these for the same bytes, however many buffers show them, at whatever addresses. Freed
/// when the last of those is gone, and all uses are done.
pub(crate) struct Allocation {
    /// Nobody where no bytes are kept alive by it.
    me: Weak<Self>,
    id: u64,
    address: Address,
    bytes: usize,
    device: Device,
    owner: Owner,
    /// Taken by the destructor.
    kind: Kind,
    /// Taken by the destructor, too.
    book: Book,
    reach: Option<Reach>,
    /// See [`Allocation::linger`].
    lingers: AtomicBool,
}

/// Where that stands: with the allocation, or, where the same memory is mapped at several addresses, with all of its mappings.
#[expect(clippy::large_enum_variant, reason = "mostly it is the large one, and lies in an `Arc` already")]
enum Book {
    Own(Known),
    Shared(Arc<Known>),
}

/// The devices that can get at mapped memory, wherever it lies, and whether they may write to it.
pub(crate) type Reach = Box<[(Device, bool)]>;

impl Allocation {
    fn make(address: Address, bytes: usize, device: Device, owner: Owner, kind: Kind) -> Arc<Self> {
        let book = Book::Own(Known::new());
        Arc::new_cyclic(|me| Self::with(me.clone(), (address, bytes, device), owner, kind, book, None))
    }

    /// What stands for all memory of `device` of which nothing is kept: uses of it are neither ordered nor remembered, nor is where its
    /// bytes come from, and no region is the whole of it.
    pub(crate) fn untracked(device: Device) -> Self {
        Self::unkept((Address::new(std::ptr::null_mut()), usize::MAX, device), Known::nothing())
    }

    /// Memory of others, which nobody here frees, nor keeps alive.
    pub(super) fn unkept(place: (Address, usize, Device), known: Known) -> Self {
        Self::with(Weak::new(), place, Owner::Anybody, Kind::Empty, Book::Own(known), None)
    }

    fn with(
        me: Weak<Self>,
        (address, bytes, device): (Address, usize, Device),
        owner: Owner,
        kind: Kind,
        book: Book,
        reach: Option<Reach>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (id, lingers) = (NEXT.fetch_add(1, Ordering::Relaxed), AtomicBool::new(false));
        Self { me, id, address, bytes, device, owner, kind, book, reach, lingers }
    }

    /// Forgets who uses it.
    #[cfg(feature = "cudarc")]
    pub(super) fn forget_uses(&mut self) {
        if let Book::Own(known) = &mut self.book {
            drop(known.uses.take());
        }
    }

    /// Keeps the memory alive for longer than it is borrowed; `None` where nobody keeps book of it, so that nobody can.
    pub(crate) fn keep(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// Wraps `cudaMallocFromPoolAsync`, or `cudaMalloc` where the device has no pools: memory that `stream` may use at
    /// once, and other streams after it. For `operation`.
    pub(crate) fn new(operation: &'static str, stream: &Stream, bytes: usize) -> Result<Arc<Self>> {
        let device = stream.device();
        if bytes == 0 {
            return Ok(Self::make(Address::new(std::ptr::null_mut()), 0, device, Owner::Anybody, Kind::Empty));
        }
        // Before the pool is made: a capture would not survive that.
        stream.ready(operation)?;
        let _current = device.make_current(operation)?;
        let mut ptr = std::ptr::null_mut();
        let Some(pool) = pool::memory(device)? else {
            undisturbing(|| {
                // SAFETY: writes a pointer to the address given.
                let code = unsafe { sys::cudaMalloc(&raw mut ptr, bytes) };
                check_memory("cudaMalloc", code, bytes, || device.to_string())
            })?;
            return Ok(Self::make(Address::new(ptr), bytes, device, Owner::Anybody, Kind::Malloc));
        };
        scarce::persist(device, default_timeout(), || {
            stream.room_for_one(operation, default_timeout)?;
            // SAFETY: writes a pointer to the address given; pool and stream are alive.
            let code = unsafe { sys::cudaMallocFromPoolAsync(&raw mut ptr, bytes, pool, stream.raw()) };
            stream.count(ENTRY);
            check_memory("cudaMallocFromPoolAsync", code, bytes, || device.to_string())
        })?;
        let made = Self::make(Address::new(ptr), bytes, device, Owner::Anybody, Kind::Pool(stream.clone()));
        // The memory exists only from this point of the stream on.
        made.note(Span::ALL, Access::Write, stream);
        Ok(made)
    }

    /// Memory that somebody else allocated: `bytes` at `address`, on `device`. `free` is called once,
    /// when the last handle is gone, with the uses that may not be done yet. It must not panic.
    pub(crate) fn external(address: Address, bytes: usize, device: Device, owner: Owner, free: FreeHook) -> Arc<Self> {
        Self::make(address, bytes, device, owner, Kind::External(free, None))
    }

    /// The same of memory that anybody may use. `leaked` is called in place of `free` if the memory is leaked.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn external_or_leaked(
        (address, bytes): (Address, usize),
        device: Device,
        free: FreeHook,
        leaked: LeakHook,
    ) -> Arc<Self> {
        Self::make(address, bytes, device, Owner::Anybody, Kind::External(free, Some(leaked)))
    }

    /// Memory of `device` that `shown` shows at `address` to the devices of `reach`, and of which `known` is kept, which the memory has in
    /// common with all of its mappings.
    pub(crate) fn mapped(
        (address, bytes): (Address, usize),
        device: Device,
        known: Arc<Known>,
        reach: Reach,
        shown: Arc<dyn Shown>,
    ) -> Arc<Self> {
        known.show(bytes);
        let (kind, book) = (Kind::Mapped(shown), Book::Shared(known));
        Arc::new_cyclic(|me| Self::with(me.clone(), (address, bytes, device), Owner::Anybody, kind, book, Some(reach)))
    }

    #[inline]
    fn known(&self) -> &Known {
        match &self.book {
            Book::Own(known) => known,
            Book::Shared(known) => known,
        }
    }

    /// Whether streams of `device` can get at it in this way.
    #[inline]
    pub(crate) fn serves(&self, device: Device, access: Access) -> bool {
        match &self.reach {
            None => device == self.device,
            Some(reach) => reach.iter().any(|(one, writes)| *one == device && (*writes || access == Access::Read)),
        }
    }

    /// What shows it, if it is mapped.
    pub(crate) fn shown(&self) -> Option<&Arc<dyn Shown>> {
        if let Kind::Mapped(shown) = &self.kind { Some(shown) } else { None }
    }

    /// What can get at it, in words.
    #[cold]
    pub(crate) fn who(&self) -> String {
        let Some(reach) = &self.reach else { return format!("memory of {}", self.device) };
        let one =
            |(device, writes): &(Device, bool)| format!("{device}{}", if *writes { "" } else { " (to read only)" });
        let all: Vec<_> = reach.iter().map(one).collect();
        format!("memory of {} that is mapped for {}", self.device, all.join(" and "))
    }

    /// Whose it is; 0: anybody's.
    #[inline]
    pub(crate) fn owner(&self) -> u64 {
        match self.owner {
            Owner::Anybody => 0,
            Owner::Open(owner) | Owner::Only(owner) => owner,
        }
    }

    /// Whether the one with this number may use it.
    #[inline]
    #[cfg(feature = "nccl")]
    pub(crate) fn admits(&self, user: u64) -> bool {
        if let Owner::Only(owner) = self.owner { owner == user } else { true }
    }

    /// Whoever made it goes on knowing it for a while when it is gone, and all uses are done.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    pub(crate) fn linger(&self) {
        self.lingers.store(true, Ordering::Relaxed);
    }

    /// Whether it is memory of a pool, or none.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    pub(super) fn is_of_pool(&self) -> bool {
        matches!(self.kind, Kind::Empty | Kind::Pool(_))
    }

    /// Unique among the allocations of this process, also those that are gone; not 0.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Where all of it is shown.
    #[inline]
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Which of the bytes that its uses speak of lie at `address`. Those of mapped memory, which may lie at several addresses, are not told apart.
    pub(super) fn span(&self, address: Address, bytes: usize) -> Span {
        let begin = address.ptr().addr().wrapping_sub(self.address.ptr().addr());
        match &self.book {
            Book::Own(_) if bytes < self.bytes && begin <= self.bytes - bytes => Span::of(begin, bytes),
            _ => Span::ALL,
        }
    }

    /// Whether so many of its bytes are all that its lineage speaks of.
    #[inline]
    pub(crate) fn is_all(&self, bytes: usize) -> bool {
        match &self.book {
            Book::Own(_) => bytes >= self.bytes,
            Book::Shared(known) => bytes >= self.bytes && bytes >= known.whole(),
        }
    }

    #[inline]
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Who uses it.
    #[inline]
    pub(crate) fn tracker(&self) -> &Tracker {
        &self.known().uses
    }

    /// Fails where no graph can keep it alive.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    pub(crate) fn check_part(&self) -> Result<()> {
        recording::kept_alive(self).map(drop)
    }

    /// Which operations of communicators the bytes come from.
    #[inline]
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.known().lineage
    }

    /// Before an enqueue on `stream` that uses `span` of it, after it has made room for that: makes it wait for the conflicting accesses of other streams. Returns
    /// whether it comes after those of all bytes. The
    /// caller holds a borrow that excludes conflicting accesses, until it has called [`Allocation::note`].
    #[inline]
    pub(crate) fn order(&self, span: Span, access: Access, stream: &Stream) -> Result<bool> {
        recording::order(self, span, access, stream)
    }

    /// After an enqueue on `stream`, also one that failed: from now on it uses the memory.
    #[inline]
    pub(crate) fn note(&self, span: Span, access: Access, stream: &Stream) {
        recording::note(self, span, access, stream);
    }

    /// What was enqueued last on `stream`, and noted, overwrites all of it, and reads nothing.
    #[inline]
    pub(crate) fn overwrite(&self, stream: &Stream) {
        if stream.records() { recording::overwritten(self, stream) } else { self.lineage().overwrite() }
    }

    /// Whether all uses are done. Does not wait. What a stream has done that is being captured is not known.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    pub(crate) fn is_idle(&self) -> Result<bool> {
        self.known().is_idle()
    }
}

impl Used for Allocation {
    #[inline]
    fn tracker(&self) -> &Tracker {
        self.tracker()
    }

    #[inline]
    fn lineage(&self) -> &Lineage {
        self.lineage()
    }

    fn keep(&self) -> Option<Arc<dyn Used>> {
        self.me.upgrade().map(|all| all as Arc<dyn Used>)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let (uses, shared) = match &mut self.book {
            Book::Own(known) => (known.uses.take(), None),
            Book::Shared(known) => (Uses::new(), Some(Arc::clone(known))),
        };
        let kind = std::mem::replace(&mut self.kind, Kind::Empty);
        let lingers = *self.lingers.get_mut();
        let freed = Freed { id: self.id, address: self.address, device: self.device, uses, lingers };
        let rest = Rest { kind, bytes: self.bytes, shared, freed: Some(freed) };
        if is_off_limits() { rest.drop_elsewhere() } else { drop(rest) }
    }
}

/// The memory and the uses of an allocation after its last handle was dropped. The destructor frees the memory.
struct Rest {
    kind: Kind,
    bytes: usize,
    shared: Option<Arc<Known>>,
    freed: Option<Freed>,
}

impl Rest {
    /// In a host function, where CUDA must not be called: a thread of this crate frees the memory.
    #[cold]
    fn drop_elsewhere(self) {
        let device = match (&self.freed, &self.shared) {
            // A stream of others may be gone before that thread frees in its order, or can mark it.
            _ if matches!(&self.kind, Kind::Pool(home) if home.is_borrowed()) => return self.leak(),
            (Some(freed), _) if freed.uses.needs_borrowed() => return self.leak(),
            (_, Some(known)) if known.uses.needs_borrowed() => return self.leak(),
            (Some(freed), _) => freed.device,
            (None, _) => return,
        };
        match owners::start("Allocation::drop") {
            Ok(()) => owners::drop_elsewhere(Box::new(self), device),
            Err(_) => self.leak(),
        }
    }

    #[cold]
    fn leak(mut self) {
        if let (Kind::External(_, leaked), Some(freed)) = (&mut self.kind, &self.freed)
            && let Some(leaked) = leaked.take()
        {
            leaked(&freed.uses);
        }
        std::mem::forget(self);
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if let Some(known) = self.shared.take() {
            known.uses.let_go();
        }
        if let Some(mut freed) = self.freed.take() {
            freed.uses.let_go();
            // If this fails, the memory is leaked, because the device may still use it.
            let _ = release(std::mem::replace(&mut self.kind, Kind::Empty), self.bytes, freed);
        }
    }
}

fn release(kind: Kind, bytes: usize, freed: Freed) -> Result<()> {
    let Freed { address, device, mut uses, .. } = match kind {
        Kind::External(free, _) => {
            free(freed);
            return Ok(());
        }
        _ => freed,
    };
    match kind {
        Kind::Empty | Kind::External(..) => Ok(()),
        Kind::Mapped(shown) => {
            shown.let_go();
            Ok(())
        }
        Kind::Pool(home) => {
            // SAFETY: from cudaMallocFromPoolAsync, and the last handle is gone.
            unsafe { later::free(address.ptr(), &home, uses) }
        }
        Kind::Malloc => {
            device.ready("cudaFree")?;
            let deadline = drop_deadline();
            deadline.poll("cudaFree", || format!("uses of {bytes} bytes"), || uses.is_done())?;
            // It waits for the whole device, and every other call for it.
            let mut busy = Busy::with(&[device]);
            deadline.poll("cudaFree", || format!("work on {device}"), || Ok(busy.is_over()))?;
            // SAFETY: from cudaMalloc; the last handle is gone, and all uses are done.
            undisturbing(|| check("cudaFree", unsafe { sys::cudaFree(address.ptr()) }))
        }
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocation")
            .field("id", &self.id)
            .field("bytes", &self.bytes)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}
