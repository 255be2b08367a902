//! Which buffers of an operation NCCL moves without copying, because their rank has registered them.
//!
//! The ranks must do alike: the sender writes where the receiver says, or the receiver reads, and each rank decides by itself
//! whether that is so. NCCL tells nobody where they differ, and hangs, or gives wrong data. What lies in a window is registered as well.

use std::ops::Range;

use super::order::Order;
use crate::memory::space::held::Piece;
use crate::memory::space::locate::locate;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::Kind;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::graph_cache;
use crate::nccl::state::registrations::Found;

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
pub(crate) fn describe(word: u8) -> &'static str {
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
    if bytes == 0 || comm.size == 1 || !graph_cache::is_on() {
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
pub(crate) fn for_graph(comm: &Comm, order: &Order) -> Vec<Whole> {
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
    if bytes == 0 || comm.windows.covers(address) {
        return (bytes > 0).then_some(None);
    }
    let found = comm.registrations.find(address, bytes)?;
    let located = locate(std::ptr::without_provenance(address), bytes);
    located.is_ok_and(|(_, used)| used.is_mapped()).then(|| {
        comm.place().into_iter().for_each(|place| place.connect_all());
        Some(found)
    })
}
