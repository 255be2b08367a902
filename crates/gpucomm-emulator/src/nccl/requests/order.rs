//! What one rank is to do in one operation: it can be run any number of times.

use std::sync::atomic::Ordering;

use super::beside;
use super::request::Request;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::{Kind, Redop, element, is_float8};
use crate::nccl::bytes::reduce::Reduction;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::redop::{self, Residence};
use crate::nccl::state::shared::Shared;
use crate::settings::settings;
use crate::sys::ncclDataType_t;

/// An operation, as it was asked for and checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    pub(crate) datatype: ncclDataType_t,
    /// Bytes of an element.
    pub(crate) size: usize,
    pub(crate) redop: Redop,
    /// Where the scalar is that goes with the reduction.
    pub(super) factor: Option<Residence>,
    /// Root or peer; 0 where there is none.
    pub(crate) peer: usize,
    /// Its sums are kept in wider numbers than its elements.
    wide: bool,
    /// Switches may do it, which add up in any order.
    pub(crate) any_order: bool,
    /// A graph runs it.
    pub(crate) captured: bool,
    /// See [`beside::of`].
    pub(crate) beside: u64,
    /// What its configuration says, as a number.
    pub(crate) config: u16,
    /// The addresses of the buffers.
    pub(super) send_at: usize,
    pub(super) recv_at: usize,
    /// How many bytes this rank's buffers hold.
    pub(crate) whole: [usize; 2],
}

impl Order {
    /// Checks a request against its communicator.
    pub(crate) fn new(comm: &Comm, request: &Request) -> Outcome<Self> {
        let Request { kind, count, datatype, .. } = *request;
        let Some((size, _)) = element(datatype) else {
            return Err(Failure::argument(format!("{} is no element type", datatype.0)));
        };
        let peer = if kind.rooted() || kind.message() {
            let what = if kind.message() { "peer" } else { "root" };
            usize::try_from(request.peer).ok().filter(|&peer| peer < comm.size).ok_or_else(|| {
                Failure::argument(format!("{what} is {}, expected 0 to {}", request.peer, comm.size - 1))
            })?
        } else {
            0
        };
        let (redop, factor) =
            if kind.reduces() { redop::resolve(&comm.redops, request.redop, datatype)? } else { (Redop::Sum, None) };
        if kind.reduces() && is_float8(datatype) && count > 0 {
            find_float8(comm, redop)?;
        }
        let (send_parts, recv_parts) = parts(kind, comm.size, comm.rank == peer);
        let bytes = |parts: usize| {
            let total = count.checked_mul(size).and_then(|bytes| bytes.checked_mul(parts));
            total.filter(|&total| total <= isize::MAX as usize).ok_or_else(|| {
                Failure::unnoticed(format!("count is {count}, and that many elements of {size} bytes overflow"))
            })
        };
        let whole = [bytes(send_parts)?, bytes(recv_parts)?];
        beside::find_kernel(comm, request, redop)?;
        Ok(Self {
            kind,
            count: beside::done(comm, request, redop, size),
            datatype,
            size,
            redop,
            factor,
            peer,
            wide: settings().floats.wide_sums || in_windows(comm, request),
            any_order: settings().floats.any_order && in_switches(comm, kind, redop),
            captured: false,
            beside: beside::of(comm, request, redop),
            config: request.config,
            send_at: request.send.addr(),
            recv_at: request.recv.addr(),
            whole,
        })
    }

    /// The same, for a graph.
    pub(crate) fn captured(self) -> Self {
        Self { captured: true, ..self }
    }

    /// Bytes of the send and the receive buffer that rank `rank` of so many has in this collective.
    pub(crate) fn spans(&self, size: usize, rank: usize) -> [usize; 2] {
        let (send, recv) = parts(self.kind, size, rank == self.peer);
        [send, recv].map(|parts| parts * self.bytes())
    }

    /// What it computes.
    pub(crate) fn reduction(&self) -> Reduction {
        let flush = settings().floats.flush_denormals;
        Reduction { datatype: self.datatype, redop: self.redop, wide: self.wide, flush }
    }

    /// Bytes of one part: what one rank contributes or gets.
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.size
    }

    /// In how many parts NCCL looks at a buffer of so many bytes: what goes to other ranks by messages it looks at one by one.
    pub(super) fn parts_of(&self, bytes: usize) -> usize {
        match self.kind {
            Kind::AlltoAll | Kind::Gather | Kind::Scatter if self.bytes() > 0 => (bytes / self.bytes()).max(1),
            _ => 1,
        }
    }

    /// Whether kernels for symmetric windows do it.
    pub(crate) fn is_symmetric(&self, comm: &Comm) -> bool {
        let has_kernel = matches!(self.kind, Kind::AllReduce | Kind::AllGather | Kind::ReduceScatter);
        has_kernel && comm.windows.symmetric([self.send_at, self.recv_at]) == 2
    }
}

/// Fails where NCCL has no kernel that reduces numbers of eight bits.
fn find_float8(comm: &Comm, redop: Redop) -> Outcome {
    let Some(segment) = comm.segment.get() else { return Ok(()) };
    let capability = |rank| settings().capabilities.of(segment.own(rank).device.load(Ordering::Relaxed));
    if (0..comm.size).any(|rank| capability(rank) < (9, 0)) {
        return Err(Failure::argument("FP8 reduction support begins with sm90 capable devices."));
    }
    // The code of the host leaves the one out that multiplies for one rank, in all versions up to the newest whose source is known.
    if comm.size == 1 && matches!(redop, Redop::PreMulSum | Redop::Avg) {
        return Err(Failure::argument("one rank alone has no kernel that multiplies numbers of eight bits"));
    }
    Ok(())
}

/// Whether NCCL has a kernel of its own for this between symmetric windows, if it is a sum.
fn in_windows(comm: &Comm, request: &Request) -> bool {
    let has_kernel = matches!(request.kind, Kind::AllReduce | Kind::ReduceScatter);
    has_kernel && comm.size > 1 && comm.windows.symmetric([request.send.addr(), request.recv.addr()]) == 2
}

/// Whether NVLink switches may do it.
fn in_switches(comm: &Comm, kind: Kind, redop: Redop) -> bool {
    let adds = matches!(redop, Redop::Sum | Redop::Avg | Redop::PreMulSum);
    comm.config.nvls && adds && matches!(kind, Kind::AllReduce | Kind::ReduceScatter)
}

/// How many parts of `count` elements the send and the receive buffer hold; 0: the buffer is not looked at.
fn parts(kind: Kind, size: usize, root: bool) -> (usize, usize) {
    let at_root = |parts| if root { parts } else { 0 };
    match kind {
        Kind::AllReduce => (1, 1),
        Kind::Reduce => (1, at_root(1)),
        Kind::Broadcast => (at_root(1), 1),
        Kind::ReduceScatter => (size, 1),
        Kind::AllGather => (1, size),
        Kind::AlltoAll => (size, size),
        Kind::Gather => (1, at_root(size)),
        Kind::Scatter => (at_root(size), 1),
        Kind::Send => (1, 0),
        Kind::Recv => (0, 1),
        Kind::Init | Kind::Split | Kind::Shrink | Kind::WindowRegister | Kind::Connect => (0, 0),
        Kind::PutSignal
        | Kind::Signal
        | Kind::WaitSignal
        | Kind::OneSided
        | Kind::Suspend
        | Kind::Resume
        | Kind::Grow => (0, 0),
    }
}
