//! What is known of a context, by itself and by all that belongs to it.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::abandoned::Left;
use super::board::Board;
use super::cursor::Cursor;
use super::dropped::Dropped;
use super::extent::Extent;
use super::known_memory::Own;
use super::lateness::{Last, Shortest};
use super::order::Order;
use super::status::Status;
use super::teams::Teams;
use crate::cuda::{Device, Stream};
use crate::deadline::Deadline;
use crate::error::{Cause, Error, Result};
use crate::lock::Mutex;
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::watchdog::Watchdog;

/// The state of a context. Buffers and teams share it; the library is used by who holds the context only.
pub(crate) struct Inner {
    /// Unique among the contexts of this process.
    pub(crate) id: u64,
    pub(crate) device: Device,
    pub(crate) pe: usize,
    pub(crate) n_pes: usize,
    pub(crate) status: Status,
    pub(crate) timeout: Duration,
    /// Of all PEs.
    pub(crate) shortest: Shortest,
    /// When this PE came to the last meeting of all.
    pub(crate) met: Last,
    /// Of the context's own work: meetings, zeroes.
    pub(crate) stream: Stream,
    pub(crate) board: Board,
    pub(crate) dropped: Arc<Dropped>,
    /// How far the heap of this PE goes.
    pub(crate) extent: Extent,
    /// Whether nobody else in this process has memory of it.
    pub(crate) alone: bool,
    /// Whether the library has found NCCL at its start, and may use it.
    pub(crate) has_nccl: bool,
    pub(crate) watchdog: Watchdog,
    /// Which PEs' memory this one can get at directly.
    pub(crate) near: Box<[bool]>,
    /// What all PEs do together on streams comes in one order.
    pub(crate) world: Arc<Order>,
    pub(crate) cursor: Cursor,
    pub(crate) own: Own,
    pub(crate) teams: Teams,
    /// Registered memory that was given up while it was in use.
    pub(crate) left: Left<Self>,
    /// Who uses the streams of the library itself, for transfers that do not block.
    pub(crate) beside: Arc<Order>,
    /// Used by work on streams that waits for what other PEs do: waits for signals and for values.
    pub(crate) waits: Arc<Order>,
    /// What graphs keep whose nodes call the library.
    pub(crate) life: Arc<Order>,
    /// Handles that no borrow of the context goes with.
    shared: AtomicUsize,
    /// Within a scope of transfers that do not block.
    scoped: AtomicBool,
    over: AtomicBool,
    why: Mutex<Option<Error>>,
}

/// What a start has found out.
pub(crate) struct Found {
    pub(crate) device: Device,
    pub(crate) pe: usize,
    pub(crate) n_pes: usize,
    pub(crate) status: Status,
    pub(crate) timeout: Duration,
    pub(crate) stream: Stream,
    pub(crate) board: Board,
    pub(crate) watchdog: Watchdog,
    pub(crate) near: Box<[bool]>,
    pub(crate) alone: bool,
    pub(crate) has_nccl: bool,
    /// When this PE began to start.
    pub(crate) since: Instant,
}

impl Inner {
    pub(crate) fn new(found: Found) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Found { device, pe, n_pes, status, timeout, stream, board, watchdog, near, alone, has_nccl, since } = found;
        let met = Last::default();
        met.set(since);
        Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            device,
            pe,
            n_pes,
            status,
            timeout,
            shortest: Shortest::new(timeout),
            met,
            stream,
            board,
            dropped: Arc::default(),
            extent: Extent::default(),
            alone,
            has_nccl,
            watchdog,
            near,
            world: Order::new(),
            cursor: Cursor::default(),
            own: Own::default(),
            teams: Teams::default(),
            left: Left::default(),
            beside: Order::new(),
            waits: Order::new(),
            life: Order::new(),
            shared: AtomicUsize::new(0),
            scoped: AtomicBool::new(false),
            over: AtomicBool::new(false),
            why: Mutex::new(None),
        })
    }

    /// Fails where `operation` cannot use the context any more, or not from here.
    #[inline]
    pub(crate) fn ready(&self, operation: &'static str) -> Result<()> {
        if self.scoped.load(Ordering::Relaxed) {
            return Err(within_scope(operation));
        }
        self.ready_in_scope(operation)
    }

    /// The same of what a scope does itself.
    #[inline]
    pub(crate) fn ready_in_scope(&self, operation: &'static str) -> Result<()> {
        self.device.ready(operation)?;
        if self.over.load(Ordering::Acquire) { Err(self.why(operation)) } else { Ok(()) }
    }

    /// From now on only the scope uses the library, or no longer.
    pub(crate) fn set_scoped(&self, scoped: bool) {
        self.scoped.store(scoped, Ordering::Relaxed);
    }

    #[cold]
    fn why(&self, operation: &'static str) -> Error {
        let why = self.why.lock();
        let reason = match &*why {
            Some(error) => Cause::because(format!("it is lost: {error}"), error.clone()),
            None => "it has been closed".into(),
        };
        Error::Aborted { operation, reason }.about(Some("the context".into()))
    }

    /// From now on nobody uses the library: other PEs, or this one, may be anywhere in it. The others are told not to wait for this one.
    #[cold]
    pub(crate) fn lose(&self, error: &Error) {
        let mut why = self.why.lock();
        why.get_or_insert_with(|| error.clone());
        self.over.store(true, Ordering::Release);
        drop(why);
        self.watchdog.give_up(error);
    }

    /// One more handle that does not borrow the context.
    pub(crate) fn share(&self) {
        self.shared.fetch_add(1, Ordering::Relaxed);
    }

    /// One less.
    pub(crate) fn unshare(&self) {
        self.shared.fetch_sub(1, Ordering::Release);
    }

    /// Fails while something could use the library that no borrow of the context goes with.
    pub(crate) fn check_unused(&self, operation: &'static str) -> Result<()> {
        let shared = self.shared.load(Ordering::Acquire);
        let reason = if shared > 0 {
            format!("{shared} buffers, or what else was made with into_shared, are still there: drop them before")
        } else if Arc::strong_count(&self.life) > 1 || self.dropped.in_graphs() > 0 {
            "a graph with operations of NVSHMEM, or with symmetric memory, is still there: drop it before".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::InvalidUsage { operation, reason })
    }

    /// Closed.
    pub(crate) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.over.load(Ordering::Acquire) && self.why.lock().is_none()
    }

    /// The number of a PE, if there is one.
    #[inline]
    pub(crate) fn pe_of(&self, operation: &'static str, pe: Pe) -> Result<c_int> {
        match c_int::try_from(pe.0) {
            Ok(number) if pe.0 < self.n_pes => Ok(number),
            _ => Err(Error::argument(operation, "pe", format_args!("a PE below {}", self.n_pes), pe.0)),
        }
    }

    /// Fails where `pe` can be reached by the network only: what `operation` does the library does directly, or not at all.
    pub(crate) fn check_near(&self, operation: &'static str, pe: Pe) -> Result<()> {
        self.pe_of(operation, pe)?;
        if self.near[pe.0] {
            return Ok(());
        }
        let needs = format!("memory of PE {} that this PE can get at directly, by NVLink or PCIe", pe.0);
        Err(Error::Unsupported { operation, needs })
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.status == Status::LimitedMpg
    }

    /// Fails where PEs share devices without MPS: the library ends the process then.
    pub(crate) fn check_whole(&self, operation: &'static str) -> Result<()> {
        if !self.is_limited() {
            return Ok(());
        }
        let needs = "a device of its own for each PE, or CUDA's MPS: several PEs share one here (limited MPG)";
        Err(Error::Unsupported { operation, needs: needs.to_owned() })
    }

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }
}

#[cold]
fn within_scope(operation: &'static str) -> Error {
    let reason =
        "this is within the closure of Context::nonblocking, whose transfers are on their way: do it before or after";
    Error::InvalidUsage { operation, reason: reason.to_owned() }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("pe", &self.pe)
            .field("n_pes", &self.n_pes)
            .field("device", &self.device)
            .finish()
    }
}
