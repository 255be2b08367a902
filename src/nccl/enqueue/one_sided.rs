//! One-sided operations: puts, signals, and waits for signals. Nobody has to agree on them.

use std::ffi::c_int;
use std::ptr;

use super::graph_usage;
use super::in_group;
use crate::cuda::{Access, Form, LAUNCH, Origins, Region, Stream, Waits, carry};
use crate::element::ElementKind;
use crate::error::{Error, Result};
use crate::nccl::calls::site::Site;
use crate::nccl::lifecycle::failed_call;
use crate::nccl::rank::traced::Traced;
use crate::nccl::raw::{check, data_type};
use crate::nccl::validate::element_type::Type;
use crate::nccl::validate::operation;
use crate::nccl::validate::operation::{PUT_SIGNAL, SIGNAL, WAIT_SIGNAL};
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// The first signal of the first context: NCCL has no other as yet.
const SIGNAL_INDEX: c_int = 0;
const CONTEXT: c_int = 0;
const FLAGS: std::ffi::c_uint = 0;

/// Bytes of a put that NCCL moves at once.
pub(crate) const CHUNK: usize = 1 << 30;

/// What a put moves: checked.
pub(crate) struct Put<'a> {
    /// In a window of this rank.
    pub(crate) local: Region<'a>,
    /// As the user counts them, and as C does.
    pub(crate) of: Type,
    pub(crate) elements: usize,
    pub(crate) carried: (ElementKind, usize),
    /// The window of which the peer has a part, by its number, and bytes from its start.
    pub(crate) window: u64,
    pub(crate) offset: usize,
}

/// What is to be done.
pub(crate) enum What<'a> {
    Put(usize, Put<'a>),
    Signal(usize),
    /// Signals of ranks, and how many; and the memory that they tell of, or what is known to lie in windows.
    Wait(&'a [(usize, usize)], Option<Region<'a>>),
}

impl What<'_> {
    fn function(&self) -> &'static str {
        match self {
            Self::Put(..) => "ncclPutSignal",
            Self::Signal(_) => "ncclSignal",
            Self::Wait(..) => "ncclWaitSignal",
        }
    }

    /// Entries of the launch queue: numbers are written, elements copied, and the number of the signal.
    fn cost(&self) -> u64 {
        LAUNCH
            * match self {
                Self::Put(_, put) => 3 + (put.local.bytes / CHUNK) as u64,
                Self::Signal(_) => 2,
                Self::Wait(..) => 1,
            }
    }

    /// What is written down of it.
    fn head(&self) -> (u64, u64) {
        let bytes = ElementKind::U8.into();
        match self {
            Self::Put(peer, put) => (operation::head(PUT_SIGNAL, put.of, None, Some(*peer)), put.elements as u64),
            Self::Signal(peer) => (operation::head(SIGNAL, bytes, None, Some(*peer)), 0),
            Self::Wait(signals, _) => {
                let peer = if let [(peer, _)] = signals { Some(*peer) } else { None };
                let count: usize = signals.iter().map(|(_, count)| count).sum();
                (operation::head(WAIT_SIGNAL, bytes, None, peer), count as u64)
            }
        }
    }

    /// Makes the C call.
    ///
    /// # Safety
    /// `handle` is a live communicator during a visit; the memory of a put is ordered on the stream before, lies in a window, and the
    /// window is one of the communicator, in which the peer has so many bytes at the offset, until the put is done.
    unsafe fn make(&self, window: sys::ncclWindow_t, stream: &Stream, handle: sys::ncclComm_t) -> sys::ncclResult_t {
        stream.make_current();
        match self {
            Self::Put(peer, put) => {
                let (element, count) = put.carried;
                // SAFETY: as the caller promises; the stream is live.
                unsafe {
                    sys::ncclPutSignal(
                        put.local.ptr().cast_const(),
                        count,
                        data_type::raw(element),
                        *peer as c_int,
                        window,
                        put.offset,
                        SIGNAL_INDEX,
                        CONTEXT,
                        FLAGS,
                        handle,
                        stream.raw(),
                    )
                }
            }
            // SAFETY: as above.
            Self::Signal(peer) => unsafe {
                sys::ncclSignal(*peer as c_int, SIGNAL_INDEX, CONTEXT, FLAGS, handle, stream.raw())
            },
            Self::Wait(signals, _) => {
                let of = |(peer, count): &(usize, usize)| sys::ncclWaitSignalDesc_t {
                    opCnt: *count as c_int,
                    peer: *peer as c_int,
                    sigIdx: SIGNAL_INDEX,
                    ctx: CONTEXT,
                };
                let mut wanted: Vec<_> = signals.iter().map(of).collect();
                // SAFETY: as above; NCCL has read the descriptors when it returns.
                unsafe { sys::ncclWaitSignal(wanted.len() as c_int, wanted.as_mut_ptr(), handle, stream.raw()) }
            }
        }
    }
}

/// Enqueues one of these, outside of any group.
pub(crate) fn one(site: Site<'_>, what: &What<'_>) -> Result<()> {
    let Site { operation, comm: inner, stream } = site;
    in_group::outside_of_groups(operation)?;
    if !inner.one_sided.is_ready() {
        let reason = "all ranks call `prepare_one_sided` first, together: NCCL has them meet there";
        return Err(Error::InvalidUsage { operation, reason: reason.into() });
    }
    let _call = SharedDeadline::begin();
    stream.make_room(what.cost(), operation, || inner.timeout(), || inner.refusal(operation))?;
    let (mut guard, handle) = inner.begin_call(operation)?;
    if inner.graphs.are_alone() {
        graph_usage::wait_for_launches(inner, operation, None)?;
    }
    let local = match what {
        What::Put(_, put) => Some(&put.local),
        What::Wait(_, into) => into.as_ref(),
        What::Signal(_) => None,
    };
    let _turns = stream.turns(
        Waits { operation, timeout: || inner.timeout(), refusal: || inner.refusal(operation) },
        local.map(|region| region.alloc.tracker()),
    )?;
    let (mut read, window) = match what {
        What::Put(_, put) => {
            let Some(window) = inner.windows.window(put.window) else {
                let reason = "the window was taken away";
                return Err(Error::InvalidUsage { operation, reason: reason.into() });
            };
            let lineages = [Some(put.local.alloc.lineage())];
            (carry::reads(guard.works.of(stream), stream.history(), lineages), window)
        }
        _ => (None, ptr::null_mut()),
    };
    match what {
        What::Wait(..) => {}
        _ => inner.one_sided.order_given(stream)?,
    }
    if let What::Put(_, put) = what
        && !put.local.order(Access::Read, stream)?
    {
        read.iter_mut().for_each(Origins::follow_nothing);
    }
    inner.recent.keep(inner.record(guard.works.next(), what.head(), operation, stream.serial()));
    // SAFETY: the handle is live during a visit. What is put was just ordered, and the window was looked up under the lock. The part of the
    // peer was told when the window was made, and is not taken away before this put is done: this rank comes to such a point only then.
    let result = inner.inside(operation, || unsafe { what.make(window, stream, handle) })?;
    stream.count(what.cost());
    let mut written = Vec::new();
    let mut windows = Vec::new();
    match what {
        What::Put(_, put) => {
            put.local.note(Access::Read, stream);
            inner.one_sided.note_given(stream);
        }
        What::Signal(_) => inner.one_sided.note_given(stream),
        What::Wait(_, into) => {
            inner.one_sided.note_awaited(stream);
            match into {
                Some(region) => {
                    // Whatever uses it later, on whatever stream, comes after this wait. What came before need not: the peer may long have
                    // written there.
                    region.note(Access::Write, stream);
                    written.push(region.alloc.lineage());
                }
                None => windows = inner.windows.memory(),
            }
        }
    }
    guard.streams.remember(stream);
    inner.trace(|| {
        let (head, count) = what.head();
        Traced { operation, head, count, stream: stream.serial(), captured: false }
    });
    let (work, number) = guard.works.enqueued(inner.fate(), stream, |base| inner.new_work(base));
    inner.issued.give(number);
    let all = written.into_iter().chain(windows.iter().map(|memory| memory.lineage()));
    let mut carried = false;
    for lineage in all {
        carry::operation((work, number), read.as_ref(), Some(lineage), stream.history(), || Form::Part);
        carried = true;
    }
    if !carried {
        carry::operation((work, number), read.as_ref(), None, stream.history(), || Form::Part);
    }
    let result = check::check(what.function(), result);
    drop(guard);
    result.map_err(|error| failed_call::end(&[inner], operation, error))
}
