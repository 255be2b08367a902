//! One-sided operations: puts, signals, and waits for signals.
//!
//! As in NCCL 2.30.7, over NVLink: a put copies on the stream and then tells the number of the signal, a wait waits on the stream until that
//! has come. In the first one of a communicator all ranks meet, as NCCL makes a window there.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use crate::bugs::Nccl;
use crate::cuda::core::plan::AnyWork;
use crate::cuda::core::stream;
use crate::cuda::core::work::{Run, Work};
use crate::memory::usage::locate;
use crate::nccl::basics::error::{Failure, Outcome, cuda, heed_captures};
use crate::nccl::basics::kind::{Kind, element};
use crate::nccl::calls::group;
use crate::nccl::calls::group::Job;
use crate::nccl::requests::operation::StreamHandle;
use crate::nccl::run::batch::{Kept, Turn, on_its_device, owner};
use crate::nccl::run::one_sided::{Copy, Give, Wait};
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::nccl::state::resources::Manner;
use crate::nccl::wait::host;
use crate::nccl::wait::host::Members;
use crate::report;
use crate::settings::settings;
use crate::sys::{cudaError, ncclDataType_t, ncclWindow_t, *};

/// Which signal, as C names it: always the first one, for now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Where {
    pub(crate) signal: c_int,
    pub(crate) context: c_int,
    pub(crate) flags: c_uint,
}

impl Where {
    fn check(self) -> Outcome {
        let Self { signal, context, flags } = self;
        if (signal, context, flags) == (0, 0, 0) {
            return Ok(());
        }
        Err(Failure::argument(format!("signal {signal}, context {context}, flags {flags:#x}: expected 0 for each")))
    }
}

/// `ncclPutSignal` and `ncclSignal`.
pub(crate) fn give(
    comm: ncclComm_t,
    stream: cudaStream_t,
    peer: c_int,
    place: Where,
    put: Option<Put>,
) -> Outcome<ncclResult_t> {
    issue(comm, stream, |comm| {
        place.check()?;
        let peer = rank(comm, peer)?;
        let copy = put.map(|put| copy(comm, peer, &put)).transpose()?;
        let kind = if put.is_some() { Kind::PutSignal } else { Kind::Signal };
        Ok((kind, Asked::Give(peer, put, copy)))
    })
}

/// `ncclWaitSignal`.
pub(crate) fn wait(comm: ncclComm_t, stream: cudaStream_t, wanted: &[ncclWaitSignalDesc_t]) -> Outcome<ncclResult_t> {
    issue(comm, stream, |comm| {
        let mut peers = Vec::with_capacity(wanted.len());
        for one in wanted {
            Where { signal: one.sigIdx, context: one.ctx, flags: 0 }.check()?;
            let Some(count) = u64::try_from(one.opCnt).ok().filter(|&count| count > 0) else {
                return Err(Failure::argument(format!(
                    "{} signals of rank {}: expected one or more",
                    one.opCnt, one.peer
                )));
            };
            peers.push((rank(comm, one.peer)?, count));
        }
        Ok((Kind::WaitSignal, Asked::Wait(peers)))
    })
}

/// The first version whose graphs have signals of their own.
const REPLAYS: Nccl = 2_30_03;

enum Asked {
    Give(usize, Option<Put>, Option<Copy>),
    Wait(Vec<(usize, u64)>),
}

fn rank(comm: &Comm, peer: c_int) -> Outcome<usize> {
    let found = usize::try_from(peer).ok().filter(|&peer| peer < comm.size);
    // NCCL does not look.
    found.ok_or_else(|| Failure::unnoticed(format!("rank {peer} of {}", comm.size)))
}

/// Issues one operation, as a group of its own or as part of the thread's.
fn issue(
    comm: ncclComm_t,
    stream: cudaStream_t,
    ask: impl FnOnce(&Arc<Comm>) -> Outcome<(Kind, Asked)>,
) -> Outcome<ncclResult_t> {
    group::call(|| {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        let epoch = comm.ensure_usable()?;
        let add = || {
            if !settings().windows {
                return Err(Failure::argument("this communicator has no one-sided operations"));
            }
            let capture = check_stream(&comm, stream)?;
            let (kind, asked) = ask(&comm)?;
            if comm.signals.start() {
                let job = comm.clone();
                let run = Box::new(move || meet(&job, epoch).inspect_err(|_| job.signals.forget()));
                group::add_window(Job { comm: comm.clone(), name: Kind::OneSided.name(), run })?;
            }
            let (late, stream) = (comm.clone(), StreamHandle(stream));
            let run = Box::new(move || match capture {
                None => launch(&late, epoch, stream, kind, asked),
                Some(_) => capture_it(&late, stream, kind, asked),
            });
            group::add_one_sided(Job { comm: comm.clone(), name: kind.name(), run }, capture)
        };
        add().inspect_err(|failure| comm.refuse(failure))
    })
}

/// The capture that the stream is part of.
fn check_stream(comm: &Comm, stream: cudaStream_t) -> Outcome<Option<u64>> {
    let capture = group::capture_of(comm, stream)?;
    if capture.is_some() && settings().nccl < REPLAYS {
        return Err(Failure::unnoticed(
            "a one-sided operation is captured: before NCCL 2.30.3 each launch of the graph gives, and waits for, the signals of the first one",
        ));
    }
    Ok(capture)
}

/// All ranks come to their first one-sided operation, where NCCL makes a window for the signals.
fn meet(comm: &Comm, epoch: u32) -> Outcome {
    // It allocates and registers that in this call.
    heed_captures("ncclCommWindowRegister")?;
    let place = comm.windows.take_place(1);
    let shown = host::exchange(comm, &Members::all(comm, epoch), Kind::OneSided, &[place])?;
    for (peer, [theirs, ..]) in shown.iter().enumerate() {
        if *theirs != place {
            report::violation(format!(
                "the signals of rank {} lie at {place:#x}, those of rank {peer} at {theirs:#x}: they have made other windows before",
                comm.rank
            ));
        }
    }
    Ok(())
}

fn launch(comm: &Arc<Comm>, epoch: u32, stream: StreamHandle, kind: Kind, asked: Asked) -> Outcome {
    let mut launched = comm.resources.progress.launched.lock();
    let turn = Turn::next(comm, &mut launched);
    let (comm, captured) = (comm.clone(), false);
    let run: Box<dyn Run> = match asked {
        Asked::Give(peer, _, copy) => Box::new(Give { comm: comm.clone(), epoch, kind, peer, copy, captured, turn }),
        Asked::Wait(peers) => {
            let of = |(peer, count)| (peer, comm.signals.expect(peer, count));
            let peers = peers.into_iter().map(of).collect();
            Box::new(Wait { comm: comm.clone(), epoch, peers, captured, turn })
        }
    };
    on_its_device(&comm, || stream::enqueue(stream.0, &[], kind.name(), run))
        .map_err(|error| cuda(&format!("cannot enqueue {}", kind.name()), error))
}

/// Writes it down in the capture of its stream.
fn capture_it(comm: &Arc<Comm>, stream: StreamHandle, kind: Kind, asked: Asked) -> Outcome {
    let kept = Kept::new(comm)?;
    let work: Arc<dyn AnyWork> = match asked {
        Asked::Give(peer, put, _) => Arc::new(CapturedGive { kept, kind, peer, put }),
        Asked::Wait(peers) => Arc::new(CapturedWait { kept, peers }),
    };
    let captured = on_its_device(comm, || stream::record(&[stream.0], owner(comm, kind.name()), || work));
    // The capture may have come to its end since.
    let failed = |error| cuda(&format!("cannot enqueue {}", kind.name()), error);
    let is_there = captured.map_err(failed)?;
    is_there.then_some(()).ok_or_else(|| failed(cudaError::cudaErrorStreamCaptureInvalidated))
}

/// What a put moves, as it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Put {
    pub(crate) local: *const c_void,
    pub(crate) count: usize,
    pub(crate) datatype: ncclDataType_t,
    pub(crate) window: ncclWindow_t,
    pub(crate) offset: usize,
}

// SAFETY: the addresses are looked up, and never followed.
unsafe impl Send for Put {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Put {}

/// Looks at what a put moves, and to where.
pub(super) fn copy(comm: &Comm, peer: usize, put: &Put) -> Outcome<Copy> {
    let Put { local, count, datatype, window, offset } = *put;
    if window.is_null() || local.is_null() {
        return Err(Failure::argument(format!("{local:p} into window {window:p}: expected neither to be null")));
    }
    let (size, _) = element(datatype).ok_or_else(|| Failure::argument(format!("{} is no type", datatype.0)))?;
    let bytes = count * size;
    let (_, parts) = comm
        .windows
        .parts(window.addr())
        .ok_or_else(|| Failure::unnoticed(format!("{window:p} is no window of this communicator")))?;
    if comm.windows.symmetric([local.addr(), local.addr()]) == 0 {
        return Err(Failure::argument(format!("{local:p} does not lie in a symmetric window")));
    }
    if bytes > 0 && offset as u64 >= parts[comm.rank].bytes {
        return Err(Failure::argument(format!(
            "byte {offset} lies beyond this rank's own window of {} bytes, in which NCCL looks for that of rank {peer}",
            parts[comm.rank].bytes
        )));
    }
    let end = (offset as u64).saturating_add(bytes as u64);
    if end > parts[peer].bytes {
        let text = format!(
            "{bytes} bytes at byte {offset} run past the end of the window of rank {peer}, which has {} bytes",
            parts[peer].bytes
        );
        report::violation(format!("ncclPutSignal: {text}"));
        return Err(Failure::argument(text));
    }
    let (from, used) = locate(local, bytes).map_err(|fault| Failure::unnoticed(fault.text))?;
    if used.device().is_some_and(|device| device != comm.device) {
        return Err(Failure::unnoticed(format!(
            "{local:p} does not lie on device {} of rank {}",
            comm.device, comm.rank
        )));
    }
    let mut to = parts[peer].begin;
    to.offset += offset as u64;
    Ok(Copy { from, to, window: window.addr(), bytes, count, used })
}

fn next_turn(kept: &Kept) -> Turn {
    let comm = kept.comm();
    Turn::next(comm, &mut comm.resources.progress.launched.lock())
}

/// A put, or a signal.
#[derive(Debug)]
pub(super) struct CapturedGive {
    pub(super) kept: Kept,
    pub(super) kind: Kind,
    pub(super) peer: usize,
    pub(super) put: Option<Put>,
}

impl Work for CapturedGive {
    type Run = Give;

    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn fixed(&self) -> String {
        format!("{} {} {:?}", self.kept.comm().handle, self.peer, self.put)
    }

    fn start(&self) -> Result<Give, cudaError> {
        let (epoch, comm) = (self.kept.begin(Work::name(self))?, self.kept.comm().clone());
        let found = self.put.as_ref().map(|put| copy(&comm, self.peer, put)).transpose();
        let copy = found.map_err(|failure| {
            report::violation(format!("the graph has {} of rank {}: {}", Work::name(self), comm.rank, failure.text));
            cudaError::cudaErrorInvalidValue
        })?;
        let (kind, peer, turn) = (self.kind, self.peer, next_turn(&self.kept));
        Ok(Give { comm, epoch, kind, peer, copy, captured: true, turn })
    }
}

/// A wait for so many signals of each of these ranks.
#[derive(Debug)]
pub(super) struct CapturedWait {
    pub(super) kept: Kept,
    pub(super) peers: Vec<(usize, u64)>,
}

impl Work for CapturedWait {
    type Run = Wait;

    fn name(&self) -> &'static str {
        Kind::WaitSignal.name()
    }

    fn fixed(&self) -> String {
        format!("{} {:?}", self.kept.comm().handle, self.peers)
    }

    fn start(&self) -> Result<Wait, cudaError> {
        let epoch = self.kept.begin(Work::name(self))?;
        let (comm, peers) = (self.kept.comm().clone(), self.peers.clone());
        Ok(Wait { comm, epoch, peers, captured: true, turn: next_turn(&self.kept) })
    }
}
