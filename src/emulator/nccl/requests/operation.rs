//! One operation of one rank, checked and ready to run.

use std::cell::Cell;
use std::ffi::c_void;

use super::beside;
use super::request::Request;
use crate::emulator::memory::block::InUse;
use crate::emulator::memory::object::Location;
use crate::emulator::memory::{heap, map};
use crate::emulator::nccl::basics::error::{Failure, Outcome};
use crate::emulator::nccl::basics::kind::{Kind, Redop, element, element_name};
use crate::emulator::nccl::state::comm::Comm;
use crate::emulator::nccl::state::redop::{self, Scalar};
use crate::sys::ncclDataType_t;

/// A checked operation, with its memory kept from reuse.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    pub(crate) datatype: ncclDataType_t,
    /// Bytes of an element.
    pub(crate) size: usize,
    pub(crate) redop: Redop,
    pub(crate) scalar: Scalar,
    /// Root or peer; 0 where there is none.
    pub(crate) peer: usize,
    /// Which operation of this rank on this communicator, from 1; given at launch.
    pub(crate) number: u64,
    pub(crate) send: Location,
    pub(crate) recv: Location,
    /// See [`beside::of`].
    pub(crate) beside: u64,
    recv_bytes: usize,
    /// The result is there.
    pub(crate) done: Cell<bool>,
    _used: [InUse; 2],
}

impl Operation {
    /// Checks a request against its communicator and this process's memory.
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
        let (redop, scalar) = if kind.reduces() {
            redop::resolve(&comm.redops, request.redop, datatype)?
        } else {
            (Redop::Sum, Scalar::None)
        };
        if kind.reduces() && matches!(datatype, ncclDataType_t::ncclFloat8e4m3 | ncclDataType_t::ncclFloat8e5m2) {
            return Err(Failure::argument(format!("the emulator does not reduce {}", element_name(datatype))));
        }
        let (send_parts, recv_parts) = parts(kind, comm.size, comm.rank == peer);
        let bytes = |parts: usize| {
            let total = count.checked_mul(size).and_then(|bytes| bytes.checked_mul(parts));
            total.filter(|&total| total <= isize::MAX as usize).ok_or_else(|| {
                Failure::unnoticed(format!("count is {count}, and that many elements of {size} bytes overflow"))
            })
        };
        let (send_bytes, recv_bytes) = (bytes(send_parts)?, bytes(recv_parts)?);
        beside::find_kernel(comm, request, redop)?;
        let (send, send_used) = find(comm, "send", request.send, send_bytes)?;
        let (recv, recv_used) = find(comm, "receive", request.recv.cast_const(), recv_bytes)?;
        let operation = Self {
            kind,
            count: beside::done(comm, kind, redop, (count, size)),
            datatype,
            size,
            redop,
            scalar,
            peer,
            number: 0,
            send,
            recv,
            beside: beside::of(comm, request, redop),
            recv_bytes,
            done: Cell::new(false),
            _used: [send_used, recv_used],
        };
        operation.check_overlap(comm.rank, send_bytes as u64, recv_bytes as u64)?;
        Ok(operation)
    }

    /// Leaves garbage in the first half of what the result was to be, as an operation does that ends without it; unless it had
    /// come to its end.
    pub(crate) fn spoil(&self) -> Outcome {
        if self.done.get() || self.recv_bytes == 0 {
            return Ok(());
        }
        let spoilt = self.recv_bytes.div_ceil(2);
        let at =
            map::reach(&self.recv, spoilt).map_err(|error| Failure::system(format!("the receive buffer: {error}")))?;
        // SAFETY: the buffer was checked to hold this many bytes, and is kept from reuse while `self` lives. No other rank
        // touches it: none passes a gate that this one has left, none takes a message that it has withdrawn, and those of
        // an operation that no rank does leave the buffers of others alone.
        unsafe { at.write_bytes(SPOILT, spoilt) };
        Ok(())
    }

    /// Bytes of the send and the receive buffer that rank `rank` of so many has in this collective.
    pub(crate) fn spans(&self, size: usize, rank: usize) -> [usize; 2] {
        let (send, recv) = parts(self.kind, size, rank == self.peer);
        [send, recv].map(|parts| parts * self.bytes())
    }

    /// Bytes of one part: what one rank contributes or gets.
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.size
    }

    /// Refuses buffers that overlap in another way than an in-place operation's do.
    fn check_overlap(&self, rank: usize, send_bytes: u64, recv_bytes: u64) -> Outcome {
        let (send, recv) = (&self.send, &self.recv);
        if send_bytes == 0 || recv_bytes == 0 || send.device != recv.device {
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
        Kind::Init | Kind::Split | Kind::WindowRegister | Kind::Connect => (0, 0),
    }
}

fn find(comm: &Comm, what: &str, pointer: *const c_void, bytes: usize) -> Outcome<(Location, InUse)> {
    if bytes > 0 && pointer.is_null() {
        return Err(Failure::unnoticed(format!("the {what} buffer is null, expected {bytes} bytes")));
    }
    let (location, used) = heap::locate(pointer, bytes)
        .map_err(|fault| Failure::unnoticed(format!("the {what} buffer of {bytes} bytes: {}", fault.text)))?;
    if let Some(device) = used.device().filter(|&device| device != comm.device) {
        return Err(Failure::unnoticed(format!(
            "the {what} buffer lies on device {device}, expected device {} of rank {}",
            comm.device, comm.rank
        )));
    }
    Ok((location, used))
}

/// What [`Operation::spoil`] writes.
pub(crate) const SPOILT: u8 = 0xdb;
