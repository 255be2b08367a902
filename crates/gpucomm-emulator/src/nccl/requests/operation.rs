//! A run of an operation of one rank, ready to be done.

use std::cell::Cell;
use std::ops::Deref;

use super::order::Order;
use super::registered::Registered;
use crate::memory::access::Access;
use crate::memory::object::Location;
use crate::memory::space::held::InUse;
use crate::memory::space::locate::locate;
use crate::memory::space::reach::reach;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::Kind;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::redop::Scalar;
use crate::races::touches::{Actor, Touching};

/// A run of an operation, with its memory kept from reuse.
#[derive(Debug)]
pub(crate) struct Operation {
    /// What was asked for.
    pub(crate) order: Order,
    /// Which operation of this rank on this communicator, from 1; given at launch.
    pub(crate) number: u64,
    pub(crate) scalar: Scalar,
    pub(crate) send: Location,
    pub(crate) recv: Location,
    /// Which buffers are registered.
    pub(crate) registered: Registered,
    /// How many parts of the result are not there.
    left: Cell<usize>,
    used: [InUse; 2],
}

impl Deref for Operation {
    type Target = Order;

    fn deref(&self) -> &Order {
        &self.order
    }
}

impl Operation {
    /// Finds what `order` works on in this process's memory.
    pub(crate) fn start(comm: &Comm, order: &Order) -> Outcome<Self> {
        let scalar = Scalar::find(order.factor, order.size, comm.device)?;
        let (send, send_used) = find(comm, ("send", Access::Read), order.send_at, order.whole[0])?;
        let (recv, recv_used) = find(comm, ("receive", Access::ReadWrite), order.recv_at, order.whole[1])?;
        let operation = Self {
            order: *order,
            number: 0,
            scalar,
            send,
            recv,
            registered: Registered::of(comm, order)?,
            left: Cell::new(parts_received(comm, order)),
            used: [send_used, recv_used],
        };
        operation.check_overlap(comm.rank)?;
        operation.check_alignment()?;
        Ok(operation)
    }

    /// Tells what `actor` does with the buffers and the scalar of this rank.
    pub(crate) fn tell<'a>(&'a self, actor: Actor, tell: &mut dyn FnMut(Touching<'a>)) {
        let [send, recv] = &self.used;
        send.tell(false, actor, tell);
        recv.tell(true, actor, tell);
        if let Scalar::At(_, used) = &self.scalar {
            used.tell(false, actor, tell);
        }
    }

    /// One more part of the result is there.
    pub(crate) fn has_part(&self) {
        self.left.set(self.left.get().saturating_sub(1));
    }

    /// Leaves garbage in the first half of what the result was to be, as an operation does that ends without it; unless it had
    /// come to its end.
    pub(crate) fn spoil(&self) -> Outcome {
        let whole = self.whole[1];
        if self.left.get() == 0 || whole == 0 {
            return Ok(());
        }
        let spoilt = whole.div_ceil(2);
        let at = reach(&self.recv, spoilt).map_err(|error| Failure::system(format!("the receive buffer: {error}")))?;
        // SAFETY: the buffer was checked to hold this many bytes, and is kept from reuse while `self` lives. No other rank
        // touches it: none passes a gate that this one has left, none takes a message that it has withdrawn, and those of
        // an operation that no rank does leave the buffers of others alone.
        unsafe { at.write_bytes(SPOILT, spoilt) };
        Ok(())
    }

    /// Refuses to reduce elements at addresses at which the device reads none. What only moves goes as bytes.
    fn check_alignment(&self) -> Outcome {
        if !self.kind.reduces() {
            return Ok(());
        }
        let size = self.size;
        let buffers = [("send", self.send_at, self.whole[0]), ("receive", self.recv_at, self.whole[1])];
        match buffers.into_iter().find(|(_, at, bytes)| *bytes > 0 && !at.is_multiple_of(size)) {
            None => Ok(()),
            Some((what, at, _)) => Err(Failure::unnoticed(format!(
                "the {what} buffer is at {at:#x}, expected a multiple of {size}, the bytes of an element of a reduction"
            ))),
        }
    }

    /// Refuses buffers that overlap in another way than an in-place operation's do.
    fn check_overlap(&self, rank: usize) -> Outcome {
        let [send_bytes, recv_bytes] = self.whole.map(|bytes| bytes as u64);
        let (send, recv) = (&self.send, &self.recv);
        if send_bytes == 0 || recv_bytes == 0 || !send.same_object(recv) {
            return Ok(());
        }
        if send.offset + send_bytes <= recv.offset || recv.offset + recv_bytes <= send.offset {
            return Ok(());
        }
        let part = (rank * self.bytes()) as u64;
        let in_place = match self.kind {
            Kind::AllReduce | Kind::Reduce | Kind::Broadcast => send.offset == recv.offset,
            Kind::AllGather | Kind::Gather => send.offset == recv.offset + part,
            Kind::ReduceScatter | Kind::Scatter => recv.offset == send.offset + part,
            _ => false,
        };
        if in_place {
            return Ok(());
        }
        let hint = match self.kind {
            Kind::AlltoAll => "it has no in-place form",
            Kind::AllGather | Kind::Gather => "in place, send is the rank's own part of receive",
            Kind::ReduceScatter | Kind::Scatter => "in place, receive is the rank's own part of send",
            _ => "in place, both are the same",
        };
        Err(Failure::unnoticed(format!(
            "the send buffer ({send_bytes} bytes at offset {}) and the receive buffer ({recv_bytes} bytes at offset {}) \
             overlap: {hint}",
            send.offset, recv.offset
        )))
    }
}

/// In how many parts the result comes.
fn parts_received(comm: &Comm, order: &Order) -> usize {
    match order.kind {
        Kind::AlltoAll => comm.size,
        Kind::Gather if order.peer == comm.rank => comm.size,
        _ => 1,
    }
}

fn find(comm: &Comm, (what, wanted): (&str, Access), address: usize, bytes: usize) -> Outcome<(Location, InUse)> {
    if bytes > 0 && address == 0 {
        return Err(Failure::unnoticed(format!("the {what} buffer is null, expected {bytes} bytes")));
    }
    let (location, used) = locate(std::ptr::without_provenance(address), bytes)
        .map_err(|fault| Failure::unnoticed(format!("the {what} buffer of {bytes} bytes: {}", fault.text)))?;
    let has = used.access(comm.device);
    if let Some(device) = used.device().filter(|&device| device != comm.device && has == Access::None) {
        return Err(Failure::unnoticed(format!(
            "the {what} buffer lies on device {device}, expected device {} of rank {}, or memory that is open to it",
            comm.device, comm.rank
        )));
    }
    if has < wanted {
        return Err(Failure::unnoticed(format!(
            "the {what} buffer is open to device {} of rank {} for {has:?}, expected {wanted:?}",
            comm.device, comm.rank
        )));
    }
    Ok((location, used))
}

/// What [`Operation::spoil`] writes.
pub(crate) const SPOILT: u8 = 0xdb;
