//! A run of an operation of one rank, ready to be done, and what the ranks must agree on.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::access::Access;
use crate::memory::object::Location;
use crate::memory::usage::{InUse, locate, reach};
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::{Kind, Redop, element_name};
use crate::nccl::requests::order;
use crate::nccl::requests::order::{Order, Registered};
use crate::nccl::state::comm::Comm;
use crate::nccl::state::redop::Scalar;
use crate::races::{Actor, Touching};
use crate::sys::{cudaStream_t, ncclDataType_t};

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

/// Words of shared memory that a signature takes.
pub(crate) const SIGNATURE_WORDS: usize = 2;

/// What the ranks of an operation must agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature {
    kind: Kind,
    datatype: u32,
    redop: u8,
    count: u64,
    root: u32,
    captured: bool,
    /// Which buffers are registered.
    registered: u8,
    /// What the configuration of the call says.
    config: u16,
}

impl Signature {
    pub(crate) fn of(operation: &Operation) -> Self {
        Self {
            kind: operation.kind,
            datatype: operation.datatype.0,
            redop: operation.redop as u8,
            count: operation.count as u64,
            root: operation.peer as u32,
            captured: operation.captured,
            registered: operation.registered.word,
            config: operation.config,
        }
    }

    /// Two words that say all of it.
    pub(crate) fn words(&self) -> [u64; SIGNATURE_WORDS] {
        let head = self.kind as u64 | u64::from(self.datatype) << 8 | u64::from(self.redop) << 16;
        let head = head | u64::from(self.captured) << 24 | u64::from(self.registered) << 25;
        [head | u64::from(self.root) << 32 | u64::from(self.config) << 48, self.count]
    }

    /// Writes it into shared memory.
    pub(crate) fn put(&self, words: &[AtomicU64]) {
        for (slot, word) in words.iter().zip(self.words()) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    /// Reads what [`Self::put`] has written.
    pub(crate) fn read(words: &[AtomicU64]) -> Option<Self> {
        let [head, count] = [words.first()?, words.get(1)?].map(|word| word.load(Ordering::Relaxed));
        Some(Self {
            kind: Kind::from_code(head & 0xff)?,
            datatype: (head >> 8) as u32 & 0xff,
            redop: (head >> 16) as u8,
            count,
            root: (head >> 32) as u32 & 0xffff,
            captured: head >> 24 & 1 != 0,
            registered: (head >> 25) as u8 & 7,
            config: (head >> 48) as u16,
        })
    }

    pub(crate) fn describe(&self) -> String {
        let name = self.kind.name();
        let datatype = element_name(ncclDataType_t(self.datatype));
        let mut text = format!("{name} of {} elements of {datatype}", self.count);
        if self.kind.reduces() {
            let redop = Redop::from_code(u64::from(self.redop)).map_or("no operator", Redop::name);
            text.push_str(&format!(", {redop}"));
        }
        if self.kind.rooted() {
            text.push_str(&format!(", root {}", self.root));
        }
        if self.captured {
            text.push_str(", in a graph");
        }
        text.push_str(order::describe_registered(self.registered));
        if self.config != 0 {
            text.push_str(&format!(", with configuration {:04x}", self.config));
        }
        text
    }
}

/// A stream's handle on its way to the thread that launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamHandle(pub(crate) cudaStream_t);

// SAFETY: the handle is a name, only looked up and never followed.
unsafe impl Send for StreamHandle {}

/// What a group launches on one communicator.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) comm: Arc<Comm>,
    /// The epoch of the communicator in which the first of them was issued.
    pub(crate) epoch: u32,
    /// The capture that their streams are part of.
    pub(crate) capture: Option<u64>,
    /// The stream of the first of them, and those of others.
    pub(crate) main: StreamHandle,
    pub(crate) others: Vec<StreamHandle>,
    pub(crate) operations: Vec<Operation>,
}
