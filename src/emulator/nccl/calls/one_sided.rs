//! One-sided operations: puts, signals, and waits for signals.
//!
//! As in NCCL 2.30.7, over NVLink: a put copies on the stream and then tells the number of the signal, a wait waits on the stream until that
//! has come. In the first one of a communicator all ranks meet, as NCCL makes a window there.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::group::{self, Job};
use crate::emulator::cuda::core::{device, stream};
use crate::emulator::lock::lock;
use crate::emulator::memory::space::locate::locate;
use crate::emulator::nccl::basics::error::{Failure, Outcome, cuda};
use crate::emulator::nccl::basics::kind::{Kind, element};
use crate::emulator::nccl::requests::batch::StreamHandle;
use crate::emulator::nccl::run::one_sided::{Copy, Give, Wait};
use crate::emulator::nccl::run::turn::Turn;
use crate::emulator::nccl::state::comm::Comm;
use crate::emulator::nccl::state::inside::Manner;
use crate::emulator::nccl::state::registry;
use crate::emulator::nccl::wait::host::{self, Members};
use crate::emulator::report;
use crate::emulator::settings::settings;
use crate::sys::*;

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

/// What a put moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Put {
    pub(crate) local: *const c_void,
    pub(crate) count: usize,
    pub(crate) datatype: ncclDataType_t,
    pub(crate) window: ncclWindow_t,
    pub(crate) offset: usize,
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
        Ok((kind, Work::Give(peer, copy)))
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
        Ok((Kind::WaitSignal, Work::Wait(peers)))
    })
}

enum Work {
    Give(usize, Option<Copy>),
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
    ask: impl FnOnce(&Arc<Comm>) -> Outcome<(Kind, Work)>,
) -> Outcome<ncclResult_t> {
    group::call(|| {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        let epoch = comm.ensure_usable()?;
        let add = || {
            if !settings().windows {
                return Err(Failure::argument("this communicator has no one-sided operations"));
            }
            check_stream(&comm, stream)?;
            let (kind, work) = ask(&comm)?;
            if comm.signals.start() {
                let job = comm.clone();
                let run = Box::new(move || meet(&job, epoch));
                group::add_window(Job { comm: comm.clone(), name: Kind::OneSided.name(), run })?;
            }
            let (late, stream) = (comm.clone(), StreamHandle(stream));
            let run = Box::new(move || launch(&late, epoch, stream, kind, work));
            group::add_one_sided(Job { comm: comm.clone(), name: kind.name(), run })
        };
        add().inspect_err(|failure| comm.refuse(failure))
    })
}

fn check_stream(comm: &Comm, stream: cudaStream_t) -> Outcome {
    let (device, capture) = match stream::place(stream) {
        _ if stream::is_legacy(stream) => (comm.device, None),
        place => place.map_err(|error| cuda("the stream", error))?,
    };
    if device != comm.device {
        return Err(Failure::argument(format!(
            "the stream belongs to device {device}, expected device {} of rank {}",
            comm.device, comm.rank
        )));
    }
    if capture.is_some() {
        return Err(Failure::usage("one-sided operations in captures are not implemented in the emulator"));
    }
    Ok(())
}

/// Looks at what a put moves, and to where.
fn copy(comm: &Comm, peer: usize, put: &Put) -> Outcome<Copy> {
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

/// All ranks come to their first one-sided operation, where NCCL makes a window for the signals.
fn meet(comm: &Comm, epoch: u32) -> Outcome {
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

fn launch(comm: &Arc<Comm>, epoch: u32, stream: StreamHandle, kind: Kind, work: Work) -> Outcome {
    let mut launched = lock(&comm.resources.progress.launched);
    let turn = Turn::next(comm, &mut launched);
    let run: Box<dyn crate::emulator::cuda::core::work::Run> = match work {
        Work::Give(peer, copy) => Box::new(Give { comm: comm.clone(), epoch, kind, peer, copy, turn }),
        Work::Wait(peers) => {
            let of = |(peer, count)| (peer, comm.signals.expect(peer, count));
            Box::new(Wait { comm: comm.clone(), epoch, peers: peers.into_iter().map(of).collect(), turn })
        }
    };
    let current = device::current_device();
    let failed = |error| cuda(&format!("cannot enqueue {}", kind.name()), error);
    device::set_current(comm.device).map_err(failed)?;
    let done = stream::enqueue(stream.0, &[], kind.name(), run);
    device::set_current(current).map_err(failed)?;
    done.map_err(failed)
}
