//! Operations of all ranks: meet, compare, each do a share of the work, part.
//!
//! Nobody touches another rank's memory before all ranks have come to the operation with the same signature, and no rank
//! goes on before all have done their share. A rank that gives up while it waits poisons the gate, so that no other can
//! come to believe it is there; once the gate has opened, a rank always does its share and waits for the others'. So an
//! abort never leaves a peer reading or writing memory that is already used for something else.

use std::sync::atomic::Ordering;

use super::grouping;
use super::share::{self, Peer};
use crate::meet::futex::{SLICE, Ticket};
use crate::meet::segment::Segment;
use crate::meet::watch::{Deed, Phase, Stop};
use crate::memory::space::reach::reach;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::requests::beside;
use crate::nccl::requests::location::{LOCATION_WORDS, get_location, put_location};
use crate::nccl::requests::operation::Operation;
use crate::nccl::requests::signature::{SIGNATURE_WORDS, Signature};
use crate::nccl::state::comm::Comm;
use crate::nccl::state::shared::Shared;
use crate::nccl::wait::activity::{Activity, Watch, died};

const SCALAR_AT: usize = SIGNATURE_WORDS;
const SEND_AT: usize = 3;
const RECV_AT: usize = SEND_AT + LOCATION_WORDS;
const BESIDE_AT: usize = RECV_AT + LOCATION_WORDS;

/// A collective operation to which this rank has come.
pub(crate) struct Collective {
    activity: Activity,
    number: u64,
    stage: Stage,
}

enum Stage {
    /// Not all ranks were there yet, if there is a ticket.
    Meets(Option<Ticket>),
    /// This one has done its share; not all had, if there is a ticket.
    Parts(Option<Ticket>, Share),
}

/// What came of a share, and what every rank had beside its receive buffer.
struct Share {
    done: Outcome,
    begins: Vec<u64>,
}

impl Collective {
    /// Comes to `operation`, and waits for nobody.
    pub(crate) fn come(comm: &Comm, operation: &Operation) -> Outcome<Self> {
        let segment = comm.segment()?;
        let own = segment.own(comm.rank);
        let number = own.arrived.load(Ordering::Relaxed) + 1;
        let activity = Activity::new(operation.kind, number, operation.count as u64, operation.peer);

        Signature::of(operation).put(&own.words);
        own.words[SCALAR_AT].store(operation.scalar.bits(operation.size)?, Ordering::Relaxed);
        put_location(&own.words[SEND_AT..], &operation.send);
        put_location(&own.words[RECV_AT..], &operation.recv);
        own.words[BESIDE_AT].store(operation.beside, Ordering::Relaxed);

        own.arrived.store(number, Ordering::Release);
        Ok(Self { activity, number, stage: Stage::Meets(segment.common().arrival.arrive(comm.size)) })
    }

    /// Goes on as far as that needs no wait. Whether nothing is left to do but to [`finish`](Self::finish) it.
    pub(crate) fn attempt(&mut self, comm: &Comm, operation: &Operation) -> Outcome<bool> {
        let segment = comm.segment()?;
        let common = segment.common();
        if let Stage::Meets(ticket) = &self.stage {
            if ticket.is_some_and(|ticket| !common.arrival.open(ticket)) {
                return Ok(false);
            }
            self.share(comm, segment, operation);
        }
        Ok(match &self.stage {
            Stage::Meets(_) => false,
            Stage::Parts(ticket, _) => ticket.is_none_or(|ticket| common.departure.open(ticket)),
        })
    }

    /// Does what is left. An error is the communicator's asynchronous error; being stopped is none.
    pub(crate) fn finish(mut self, comm: &Comm, operation: &Operation, cancelled: &dyn Fn() -> bool) -> Outcome {
        let segment = comm.segment()?;
        let (me, activity) = (segment.rank(comm.rank), self.activity);
        if let Stage::Meets(ticket) = self.stage {
            if !meet(comm, segment, activity, (self.number, ticket), cancelled)? {
                activity.publish(me, Phase::Stopped);
                return Ok(());
            }
            self.share(comm, segment, operation);
        }
        let Stage::Parts(ticket, Share { done, begins }) = self.stage else { return Ok(()) };
        let parted = part(comm, segment, activity, (self.number, ticket), cancelled);
        if operation.beside != 0
            && let (Ok(()), Ok(true), Ok(recv)) =
                (&done, &parted, reach(&operation.recv, operation.spans(comm.size, comm.rank)[1]))
        {
            // SAFETY: all have done their share, and this rank's stream is still at this operation.
            unsafe { beside::spoil(operation.kind, operation.bytes(), comm.rank, recv, &begins) };
        }
        activity.publish(me, if parted == Ok(false) { Phase::Stopped } else { Phase::Done });
        done?;
        if parted? {
            operation.has_part();
        }
        Ok(())
    }

    /// Does this rank's share, once all have come, and says so.
    fn share(&mut self, comm: &Comm, segment: &Segment, operation: &Operation) {
        let done = match compare(comm, segment, self.number) {
            Ok(()) if grouping::agree(comm, segment) => work(comm, segment, operation),
            // NCCL reorders and merges what is in a group, and each rank takes the other's bytes for something else.
            Ok(()) => operation.spoil(),
            Err(mismatch) => Err(mismatch),
        };
        let begins = (0..comm.size).map(|peer| segment.own(peer).words[BESIDE_AT].load(Ordering::Relaxed)).collect();
        segment.own(comm.rank).departed.store(self.number, Ordering::Release);
        let ticket = segment.common().departure.arrive(comm.size);
        self.stage = Stage::Parts(ticket, Share { done, begins });
    }
}

/// Runs one collective operation of one rank. An error is the communicator's asynchronous error; being stopped is none.
pub(crate) fn run(comm: &Comm, operation: &Operation, cancelled: &dyn Fn() -> bool) -> Outcome {
    Collective::come(comm, operation)?.finish(comm, operation, cancelled)
}

/// Waits until all ranks have come. `false`: this rank was stopped.
fn meet(
    comm: &Comm,
    segment: &Segment,
    activity: Activity,
    (number, ticket): (u64, Option<Ticket>),
    cancelled: &dyn Fn() -> bool,
) -> Outcome<bool> {
    let gate = &segment.common().arrival;
    let Some(ticket) = ticket else { return Ok(true) };
    if gate.wait(ticket, SLICE / 50) {
        return Ok(true);
    }
    let mut watch = Watch::new(comm, segment, activity, Some(cancelled));
    loop {
        let missing = |peer| segment.own(peer).arrived.load(Ordering::Relaxed) < number;
        if let Some(stop) = watch.check(missing) {
            if !gate.leave(ticket) {
                return Ok(true);
            }
            return match stop {
                Stop::Dead(peer) => Err(died(comm, peer, &activity)),
                Stop::Aborted | Stop::Cancelled => Ok(false),
            };
        }
        if gate.wait(ticket, SLICE) {
            return Ok(true);
        }
    }
}

/// Finds the first two ranks that disagree. Every rank finds the same two.
fn compare(comm: &Comm, segment: &Segment, number: u64) -> Outcome {
    let signature = |rank: usize| Signature::read(&segment.own(rank).words);
    let first = signature(0);
    for peer in 0..comm.size {
        let theirs = signature(peer);
        if theirs == first {
            continue;
        }
        let text = |signature: Option<Signature>| signature.map_or("nonsense".to_owned(), |s| s.describe());
        return Err(Failure::usage(format!(
            "ranks disagree at collective #{number}: rank {peer} called {}, expected {}, as rank 0",
            text(theirs),
            text(first)
        ))
        .reported());
    }
    Ok(())
}

fn work(comm: &Comm, segment: &Segment, operation: &Operation) -> Outcome {
    let mut peers = Vec::with_capacity(comm.size);
    for peer in 0..comm.size {
        let rank = segment.own(peer);
        let [send, recv] = operation.spans(comm.size, peer);
        let pointer = |at: usize, bytes: usize| {
            reach(&get_location(&rank.words[at..]), bytes).map_err(|error| {
                segment.common().broken.store(1, Ordering::Release);
                Failure::system(format!("rank {} cannot reach the memory of rank {peer}: {error}", comm.rank))
            })
        };
        let scalar = rank.words[SCALAR_AT].load(Ordering::Relaxed);
        peers.push(Peer { send: pointer(SEND_AT, send)?, recv: pointer(RECV_AT, recv)?, scalar });
    }
    // SAFETY: every rank has come with the same signature, and checked that its buffers hold what the signature says; it
    // keeps them from reuse until all have parted. The shares of different ranks write different bytes, and write none
    // that another share reads.
    unsafe { share::run(operation, comm.rank, &peers) };
    Ok(())
}

/// Waits until all living ranks have done their share. That is a matter of copying, so an abort does not shorten it; but the
/// share of one that dies meanwhile is never done, and `false` says that this rank was stopped while it waited for that.
fn part(
    comm: &Comm,
    segment: &Segment,
    activity: Activity,
    (number, ticket): (u64, Option<Ticket>),
    cancelled: &dyn Fn() -> bool,
) -> Outcome<bool> {
    let common = segment.common();
    let mut dead = None;
    if let Some(ticket) = ticket {
        while !common.departure.wait(ticket, SLICE) {
            let mut missing =
                (0..comm.size).filter(|&peer| segment.own(peer).departed.load(Ordering::Acquire) < number);
            dead = missing.clone().find(|&peer| segment.rank(peer).dead());
            if missing.all(|peer| segment.rank(peer).dead()) && dead.is_some() {
                break;
            }
        }
    }
    if let Some(peer) = dead {
        let mut watch = Watch::new(comm, segment, activity, Some(cancelled));
        loop {
            match watch.check(|other| other == peer) {
                None => std::thread::sleep(SLICE / 10),
                Some(Stop::Dead(peer)) => return Err(died(comm, peer, &activity)),
                Some(Stop::Aborted | Stop::Cancelled) => return Ok(false),
            }
        }
    }
    if common.broken.load(Ordering::Acquire) != 0 {
        return Err(Failure::system(format!(
            "{} failed: a rank could not reach the memory of another",
            activity.kind.name()
        )));
    }
    Ok(true)
}
