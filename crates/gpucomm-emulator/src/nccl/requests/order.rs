//! What one rank is to do in one operation, which can be run any number of times, and which of its buffers are registered.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::memory::usage::{Piece, locate};
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::{Kind, Redop, element, is_float8};
use crate::nccl::bytes::reduce::Reduction;
use crate::nccl::requests::beside;
use crate::nccl::requests::request::Request;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::redop::Residence;
use crate::nccl::state::registrations::Found;
use crate::nccl::state::shared::Shared;
use crate::nccl::state::{redop, registrations};
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

/// The most that [`Order::local_memory`] returns.
pub(crate) const MOST_LOCAL_MEMORY: usize = 1976;

impl Order {
    /// The bytes of local memory that a thread of NCCL's kernel for it needs: as in NCCL 2.28.9 on compute capability
    /// 9.0. Which algorithm sums is a guess by the size.
    pub(crate) fn local_memory(&self) -> usize {
        match self.kind {
            Kind::Send | Kind::Recv | Kind::AlltoAll | Kind::Gather | Kind::Scatter => MOST_LOCAL_MEMORY,
            Kind::Broadcast => 1752,
            Kind::AllReduce if self.count * self.size > 4096 => 1864,
            _ => 1736,
        }
    }

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

    /// The windows between which kernels for symmetric windows do it.
    pub(crate) fn symmetric_windows(&self, comm: &Comm) -> Vec<usize> {
        if self.is_symmetric(comm) { comm.windows.symmetric_at([self.send_at, self.recv_at]) } else { Vec::new() }
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

// Which buffers of an operation NCCL moves without copying, because their rank has registered them.
//
// The ranks must do alike: the sender writes where the receiver says, or the receiver reads, and each rank decides by itself
// whether that is so. NCCL tells nobody where they differ, and hangs, or gives wrong data. What lies in a window is registered as well.

/// The buffers of one operation that are registered.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    /// What the ranks must have in common.
    pub(crate) word: u8,
    _found: [Option<Found>; 2],
}

impl Registered {
    /// Of what is to be done now.
    pub(crate) fn of(comm: &Comm, order: &Order) -> Outcome<Self> {
        let ([send, recv], part) = (order.whole, order.bytes());
        let to_itself = order.kind.message() && order.peer == comm.rank;
        if comm.size == 1 || part == 0 || to_itself {
            return Ok(Self::default());
        }
        let (sent, received) = (order.send_at, order.recv_at);
        let look = |comm: &Comm, address: usize, bytes: usize| {
            let own = || order.captured.then(|| of_graph(comm, address, bytes, order.parts_of(bytes))).flatten();
            look(comm, address, bytes).or_else(|| own().map(|_| None))
        };
        match order.kind {
            // Never moved in that way.
            Kind::Reduce => Ok(Self::default()),
            // Every rank looks at both pointers.
            Kind::Broadcast => Ok(Self::both(look(comm, sent, part), look(comm, received, part))),
            Kind::AllReduce | Kind::AllGather | Kind::ReduceScatter => {
                let mut both = Self::both(look(comm, sent, send), look(comm, received, recv));
                if order.captured && order.kind == Kind::AllReduce && both.word & 2 != 0 && sent == received {
                    both.word |= IN_PLACE;
                }
                Ok(both)
            }
            _ => {
                let (sends, receives) = (look(comm, sent, send), look(comm, received, recv));
                if send > 0 && recv > 0 && sends.is_some() != receives.is_some() {
                    return Err(Failure::usage(format!(
                        "{} on rank {}: of what is sent and what is received, one is registered and the other is not",
                        order.kind.name(),
                        comm.rank
                    ))
                    .reported());
                }
                let found = [sends, receives];
                let word = u8::from(found.iter().any(Option::is_some));
                Ok(Self { word, _found: found.map(Option::flatten) })
            }
        }
    }

    fn both(send: Option<Option<Found>>, recv: Option<Option<Found>>) -> Self {
        let word = u8::from(send.is_some()) | u8::from(recv.is_some()) << 1;
        Self { word, _found: [send.flatten(), recv.flatten()] }
    }
}

/// Of a word: it is done in place, and captured, so that what is registered for the graph alone is not.
const IN_PLACE: u8 = 4;

/// In words, what [`Registered::word`] says.
pub(crate) fn describe_registered(word: u8) -> &'static str {
    match word {
        0 => "",
        1 => ", sent from registered memory",
        2 => ", received in registered memory",
        3 => ", in registered memory",
        _ => ", in registered memory, in place",
    }
}

/// Memory that was mapped as one, and where.
type Whole = (Range<usize>, Piece);

/// What NCCL registers by itself where a graph has these bytes, which it looks at in so many parts: the memory that was mapped as one and
/// holds them.
fn of_graph(comm: &Comm, address: usize, bytes: usize, parts: usize) -> Option<Vec<Whole>> {
    if bytes == 0 || comm.size == 1 || !registrations::registers_graphs() {
        return None;
    }
    let part = bytes / parts;
    let one = |at: usize| {
        let address = address + at * part;
        let (_, used) = locate(std::ptr::without_provenance(address), part).ok()?;
        used.piece(address)
    };
    (0..parts).map(one).collect()
}

/// The memory that NCCL registers by itself where a graph has this.
pub(crate) fn register_for_graph(comm: &Comm, order: &Order) -> Vec<Whole> {
    let to_itself = order.kind.message() && order.peer == comm.rank;
    if to_itself || order.kind == Kind::Reduce {
        return Vec::new();
    }
    let [send, recv] = order.whole;
    let buffers = [(order.send_at, send), (order.recv_at, recv)];
    let found = buffers.map(|(at, bytes)| of_graph(comm, at, bytes, order.parts_of(bytes)));
    found.into_iter().flatten().flatten().collect()
}

/// The registration that holds these bytes, if peers can map them, or that of a window.
fn look(comm: &Comm, address: usize, bytes: usize) -> Option<Option<Found>> {
    if bytes == 0 {
        return None;
    }
    if let Some(window) = comm.windows.find(address) {
        return Some(Some(window));
    }
    let found = comm.registrations.find(address, bytes)?;
    let located = locate(std::ptr::without_provenance(address), bytes);
    located.is_ok_and(|(_, used)| used.is_mapped()).then(|| {
        comm.place().into_iter().for_each(|place| place.connect_all());
        Some(found)
    })
}
