//! Which buffers of an operation NCCL moves without copying, because their rank has registered them.
//!
//! The ranks must do alike: the sender writes where the receiver says, or the receiver reads, and each rank decides by itself
//! whether that is so. NCCL tells nobody where they differ, and hangs, or gives wrong data. What lies in a window is registered as well.

use super::order::Order;
use crate::emulator::memory::space::locate::locate;
use crate::emulator::nccl::basics::error::{Failure, Outcome};
use crate::emulator::nccl::basics::kind::Kind;
use crate::emulator::nccl::state::comm::Comm;
use crate::emulator::nccl::state::registrations::Found;

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
        match order.kind {
            // Never moved in that way.
            Kind::Reduce => Ok(Self::default()),
            // Every rank looks at both pointers.
            Kind::Broadcast => Ok(Self::both(look(comm, sent, part), look(comm, received, part))),
            Kind::AllReduce | Kind::AllGather | Kind::ReduceScatter => {
                Ok(Self::both(look(comm, sent, send), look(comm, received, recv)))
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

/// In words, what [`Registered::word`] says.
pub(crate) fn describe(word: u8) -> &'static str {
    match word {
        0 => "",
        1 => ", sent from registered memory",
        2 => ", received in registered memory",
        _ => ", in registered memory",
    }
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
