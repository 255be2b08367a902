//! Messages between two ranks.
//!
//! Between each ordered pair of ranks the messages of both sides match in the order in which they were issued. A sender
//! puts the place of its buffer into the pair's slot; the receiver takes it, compares, copies, and says that it is done.
//! A batch keeps one message of each pair in the air and goes on with whichever moves first, so the order in which a group
//! names its peers cannot block it.
//!
//! As in NCCL, a batch goes in rounds: in one round a rank sends to the rank that comes so many after it, and receives from
//! the one that comes as many before. The first message of a round to go and the first to come are under way together, and
//! the second ones begin when both are done. So who does in one group what its peer does one by one may wait for ever.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use crate::meet::futex::{SLICE, spin};
use crate::meet::segment::Segment;
use crate::meet::watch::{Deed, Phase, Stop};
use crate::memory::object::Location;
use crate::memory::usage;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::{Kind, element_name};
use crate::nccl::bytes::transfer::Way;
use crate::nccl::requests::operation::Operation;
use crate::nccl::requests::order;
use crate::nccl::requests::request::{get_location, put_location};
use crate::nccl::state::comm::Comm;
use crate::nccl::state::shared::{Between, Shared};
use crate::nccl::wait::activity::{Activity, Watch, died};
use crate::sys::ncclDataType_t;

// The states of a pair's slot. Only the sender leaves IDLE and the two done states; only the receiver leaves TAKEN.
const IDLE: u32 = 0;
const SENT: u32 = 1;
const TAKEN: u32 = 2;
const DONE: u32 = 3;
const REFUSED: u32 = 4;

const TYPE_AT: usize = 0;
const COUNT_AT: usize = 1;
const PLACE_AT: usize = 2;

/// The messages of one batch from or to one peer, in order.
struct Lane<'a> {
    peer: usize,
    waiting: VecDeque<Message<'a>>,
    /// How many are done.
    done: usize,
    /// The first of `waiting` lies in the slot.
    sent: bool,
}

impl Lane<'_> {
    fn new(peer: usize) -> Self {
        Self { peer, waiting: VecDeque::new(), done: 0, sent: false }
    }

    fn pop(&mut self) {
        self.waiting.pop_front();
        self.done += 1;
    }

    /// Whether its next message may begin, beside the other lane of its round.
    fn may_begin(&self, beside: &Self) -> bool {
        beside.waiting.is_empty() || beside.done >= self.done
    }
}

/// What goes to one rank and what comes from its opposite.
struct Round<'a> {
    send: Lane<'a>,
    recv: Lane<'a>,
}

impl<'a> Round<'a> {
    fn lanes(&self) -> [&Lane<'a>; 2] {
        [&self.send, &self.recv]
    }

    /// Moves its messages as far as they can be.
    fn run(&mut self, comm: &Comm, segment: &Segment) -> Outcome<bool> {
        let mut moved = false;
        loop {
            let before = self.send.done + self.recv.done;
            if self.send.may_begin(&self.recv) {
                send(comm, segment, &mut self.send)?;
            }
            if self.recv.may_begin(&self.send) {
                receive(comm, segment, &mut self.recv)?;
            }
            if self.send.done + self.recv.done == before {
                return Ok(moved);
            }
            moved = true;
        }
    }
}

/// The rounds of a batch that have messages.
fn rounds<'a>(comm: &Comm, messages: &[Message<'a>]) -> Vec<Round<'a>> {
    let (me, size) = (comm.rank, comm.size);
    let mut rounds: Vec<(usize, Round<'a>)> = Vec::new();
    for &message in messages {
        let apart = match message.sends {
            true => (message.peer + size - me) % size,
            false => (me + size - message.peer) % size,
        };
        let at = rounds.iter().position(|(known, _)| *known == apart).unwrap_or_else(|| {
            let send = Lane::new((me + apart) % size);
            let recv = Lane::new((me + size - apart) % size);
            rounds.push((apart, Round { send, recv }));
            rounds.len() - 1
        });
        let round = &mut rounds[at].1;
        let lane = if message.sends { &mut round.send } else { &mut round.recv };
        lane.waiting.push_back(message);
    }
    rounds.into_iter().map(|(_, round)| round).collect()
}

/// Runs the messages of one batch. An error is the communicator's asynchronous error; being stopped is none.
pub(crate) fn run(comm: &Comm, operations: &[Operation], cancelled: &dyn Fn() -> bool) -> Outcome {
    let mut messages = Vec::new();
    operations.iter().for_each(|operation| message_of(comm, operation, |message| messages.push(message)));
    let Some(first) = messages.first() else { return Ok(()) };
    let segment = comm.segment()?;
    let me = segment.rank(comm.rank);
    let mut rounds = rounds(comm, &messages);
    let mut activity = first.deed();
    let outcome = pump(comm, segment, &mut rounds, &mut activity, cancelled);
    for lane in rounds.iter().map(|round| &round.send).filter(|lane| lane.sent) {
        withdraw(segment, segment.between(comm.rank, lane.peer), lane.peer);
    }
    let ended = matches!(outcome, Ok(true));
    activity.publish(me, if ended { Phase::Done } else { Phase::Stopped });
    outcome.map(drop)
}

/// Moves messages until none is left (`true`) or this rank is stopped.
fn pump(
    comm: &Comm,
    segment: &Segment,
    rounds: &mut [Round<'_>],
    activity: &mut Activity,
    cancelled: &dyn Fn() -> bool,
) -> Outcome<bool> {
    let bell = &segment.rank(comm.rank).bell;
    let mut watch: Option<Watch<'_>> = None;
    loop {
        let heard = bell.read();
        let mut moved = false;
        for round in rounds.iter_mut() {
            moved |= round.run(comm, segment)?;
        }
        let mut lanes = rounds.iter().flat_map(Round::lanes);
        let Some(lane) = lanes.find(|lane| !lane.waiting.is_empty()) else { return Ok(true) };
        if moved {
            watch = None;
            continue;
        }
        if spin(1, || bell.read() != heard) {
            continue;
        }
        let watch = watch.get_or_insert_with(|| {
            *activity = lane.waiting.front().map_or(*activity, Message::deed);
            Watch::new(comm, segment, *activity, Some(cancelled))
        });
        let missing =
            |peer| rounds.iter().flat_map(Round::lanes).any(|lane| lane.peer == peer && !lane.waiting.is_empty());
        match watch.check(missing) {
            None => bell.sleep(heard, SLICE),
            Some(Stop::Dead(peer)) => return Err(died(comm, peer, activity)),
            Some(Stop::Aborted | Stop::Cancelled) => return Ok(false),
        }
    }
}

/// Offers the first message of a lane to its receiver, or sees that it has taken it.
fn send(comm: &Comm, segment: &Segment, lane: &mut Lane<'_>) -> Outcome {
    let Some(message) = lane.waiting.front() else { return Ok(()) };
    let pair = segment.between(comm.rank, lane.peer);
    match pair.state.load(Ordering::Acquire) {
        IDLE if !lane.sent => {
            pair.sender[TYPE_AT].store(head(message), Ordering::Relaxed);
            pair.sender[COUNT_AT].store(message.operation.count as u64, Ordering::Relaxed);
            put_location(&pair.sender[PLACE_AT..], &message.place());
            pair.state.store(SENT, Ordering::Release);
            lane.sent = true;
            segment.rank(lane.peer).bell.ring();
        }
        state @ (DONE | REFUSED) if lane.sent => {
            lane.sent = false;
            lane.pop();
            let mismatch = (state == REFUSED).then(|| mismatch(comm.rank, lane.peer, pair));
            pair.state.store(IDLE, Ordering::Release);
            return mismatch.map_or(Ok(()), Err);
        }
        _ => {}
    }
    Ok(())
}

/// Takes the first message of a lane, if it has been offered.
fn receive(comm: &Comm, segment: &Segment, lane: &mut Lane<'_>) -> Outcome {
    let Some(message) = lane.waiting.front() else { return Ok(()) };
    let pair = segment.between(lane.peer, comm.rank);
    if pair.state.compare_exchange(SENT, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Ok(());
    }
    let outcome = take(comm, pair, lane.peer, message);
    if outcome.is_ok() {
        message.operation.has_part();
    }
    pair.done.fetch_add(1, Ordering::Relaxed);
    pair.state.store(if outcome.is_ok() { DONE } else { REFUSED }, Ordering::Release);
    segment.rank(lane.peer).bell.ring();
    lane.pop();
    outcome
}

/// Compares what was sent with what is wanted, and copies it.
fn take(comm: &Comm, pair: &Between, from: usize, message: &Message<'_>) -> Outcome {
    let (wanted, bytes) = (message.operation.count as u64, message.operation.bytes());
    let datatype = pair.sender[TYPE_AT].load(Ordering::Relaxed);
    let count = pair.sender[COUNT_AT].load(Ordering::Relaxed);
    pair.receiver[TYPE_AT].store(head(message), Ordering::Relaxed);
    pair.receiver[COUNT_AT].store(wanted, Ordering::Relaxed);
    if (datatype, count) != (head(message), wanted) {
        return Err(mismatch(from, comm.rank, pair));
    }
    let reach = |error| Failure::system(format!("rank {} cannot reach the memory of rank {from}: {error}", comm.rank));
    let source = usage::reach(&get_location(&pair.sender[PLACE_AT..]), bytes).map_err(reach)?;
    let target = usage::reach(&message.place(), bytes).map_err(reach)?;
    // SAFETY: both sides checked that their buffers hold `count` elements and keep them from reuse until the message is
    // done. They can overlap only if a program sends to itself, and the first branch allows for that.
    unsafe {
        if from == comm.rank {
            std::ptr::copy(source, target, bytes);
        } else {
            let way = Way::for_total(bytes);
            way.copy(source, target, bytes);
            way.finish();
        }
    }
    Ok(())
}

/// What both ends must have alike, but for the count.
fn head(message: &Message<'_>) -> u64 {
    let message = message.operation;
    u64::from(message.datatype.0) | u64::from(message.captured) << 32 | u64::from(message.registered.word) << 33
}

fn mismatch(from: usize, to: usize, pair: &Between) -> Failure {
    let word = |words: &[std::sync::atomic::AtomicU64], at: usize| words[at].load(Ordering::Relaxed);
    let name = |head: u64| {
        let place = if head >> 32 & 1 == 0 { "" } else { ", in a graph" };
        let memory = order::describe_registered(3 * (head >> 33) as u8);
        format!("{}{place}{memory}", element_name(ncclDataType_t(head as u32)))
    };
    Failure::usage(format!(
        "a message does not match: rank {to} expected {} elements of {} from rank {from}, which sent {} elements of {}",
        word(&pair.receiver, COUNT_AT),
        name(word(&pair.receiver, TYPE_AT)),
        word(&pair.sender, COUNT_AT),
        name(word(&pair.sender, TYPE_AT)),
    ))
    .reported()
}

/// Takes a message out of its slot. Waits until the receiver has copied it: no rank reads the buffer after that. Does not wait
/// for a receiver that is dead or halted.
fn withdraw(segment: &Segment, pair: &Between, to: usize) {
    while pair.state.compare_exchange(SENT, IDLE, Ordering::AcqRel, Ordering::Relaxed) == Err(TAKEN) {
        if segment.rank(to).is_halted() || segment.rank(to).dead() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    let _ = pair.state.compare_exchange(DONE, IDLE, Ordering::AcqRel, Ordering::Relaxed);
}

// Messages: one end of what goes from one rank to another.
//
// NCCL makes messages of AlltoAll, Gather and Scatter, too: their ranks do not meet, and each is through with them as soon as its own
// messages are.

/// One end of a message, as part of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) operation: &'a Operation,
    /// Whether this is the end that sends.
    pub(super) sends: bool,
    pub(super) peer: usize,
    /// Which part of the operation's buffer.
    part: usize,
}

impl<'a> Message<'a> {
    /// Where it lies.
    pub(super) fn place(&self) -> Location {
        let whole = if self.sends { &self.operation.send } else { &self.operation.recv };
        Location { offset: whole.offset + (self.part * self.operation.bytes()) as u64, ..*whole }
    }

    /// What its rank does, in words.
    pub(super) fn deed(&self) -> Activity {
        let operation = self.operation;
        let kind = if self.sends { Kind::Send } else { Kind::Recv };
        let part_of = (operation.kind != kind).then_some(operation.kind);
        Activity { part_of, ..Activity::new(kind, operation.number, operation.count as u64, self.peer) }
    }
}

/// The messages of an operation, in the order in which NCCL makes them.
pub(super) fn message_of<'a>(comm: &Comm, operation: &'a Operation, mut visit: impl FnMut(Message<'a>)) {
    let (root, is_root) = (operation.peer, operation.peer == comm.rank);
    let mut message = |sends, peer, part| visit(Message { operation, sends, peer, part });
    match operation.kind {
        Kind::Send => message(true, root, 0),
        Kind::Recv => message(false, root, 0),
        Kind::AlltoAll => (0..comm.size).for_each(|peer| {
            message(true, peer, peer);
            message(false, peer, peer);
        }),
        Kind::Gather => {
            message(true, root, 0);
            (0..comm.size).filter(|_| is_root).for_each(|peer| message(false, peer, peer));
        }
        Kind::Scatter => {
            (0..comm.size).filter(|_| is_root).for_each(|peer| message(true, peer, peer));
            message(false, root, 0);
        }
        _ => {}
    }
}
