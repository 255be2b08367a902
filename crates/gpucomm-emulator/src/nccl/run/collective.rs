//! Operations of all ranks: meet, compare, each do a share of the work, part.
//!
//! Nobody touches another rank's memory before all ranks have come to the operation with the same signature, and no rank
//! goes on before all have done their share. A rank that gives up while it waits poisons the gate, so that no other can
//! come to believe it is there; once the gate has opened, a rank always does its share and waits for the others'. So an
//! abort never leaves a peer reading or writing memory that is already used for something else.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::meet::futex::{SLICE, Ticket};
use crate::meet::segment::Segment;
use crate::meet::watch::{Deed, Phase, Stop};
use crate::memory::usage::reach;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::Kind;
use crate::nccl::bytes::reduce;
use crate::nccl::bytes::transfer::Way;
use crate::nccl::requests::beside;
use crate::nccl::requests::operation::{Operation, SIGNATURE_WORDS, Signature};
use crate::nccl::requests::request::{LOCATION_WORDS, get_location, put_location};
use crate::nccl::state::comm::Comm;
use crate::nccl::state::shared::{GROUP_WORDS, Own, Shared};
use crate::nccl::wait::activity::{Activity, Watch, died};
use crate::report;

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
            Ok(()) if agree_on_group(comm, segment) => work(comm, segment, operation),
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
    unsafe { do_share(operation, comm.rank, &peers) };
    Ok(())
}

/// Waits until all living ranks have done their share. That is a matter of copying, so an abort does not shorten it. A rank
/// that dies meanwhile never does its share, nor does one whose process is halted: a GPU would go on. `false`: this rank was
/// stopped while it waited for such a rank.
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
            let is_missing = |peer: &usize| segment.own(*peer).departed.load(Ordering::Acquire) < number;
            let is_dead = |peer: &usize| segment.rank(*peer).dead();
            let is_stopped = comm.resources.abort.is_set() || cancelled();
            if is_stopped && (0..comm.size).filter(is_missing).all(|peer| segment.rank(peer).is_halted()) {
                return Ok(false);
            }
            let mut missing = (0..comm.size).filter(is_missing);
            dead = missing.clone().find(is_dead);
            // A rank may die after it has done its share, and before it comes to the gate, which stays shut then.
            if missing.all(|peer| is_dead(&peer)) && (0..comm.size).any(|peer| is_dead(&peer)) {
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

// One rank's share of a collective operation: which bytes it reads from whom, and writes to whom.
//
// The work is divided so that each byte of input is read once, and each byte of output written once, whoever owns it.

/// The buffers of one rank, as pointers of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) send: *mut u8,
    pub(crate) recv: *mut u8,
    pub(crate) scalar: u64,
}

/// The part of `0..total` that is `rank`'s of `ranks`: equal parts, but no page is divided.
fn slice(total: usize, rank: usize, ranks: usize) -> Range<usize> {
    let part = total.div_ceil(ranks).next_multiple_of(PAGE);
    (rank * part).min(total)..((rank + 1) * part).min(total)
}

const PAGE: usize = 4096;

/// Does the share of `rank`.
///
/// # Safety
/// The buffers of all peers hold what the operation says, stay valid meanwhile, and the peers do nothing with them but
/// their shares of this same operation.
pub(crate) unsafe fn do_share(operation: &Operation, rank: usize, peers: &[Peer]) {
    let ranks = peers.len();
    let bytes = operation.bytes();
    let root = &peers[operation.peer];
    let me = &peers[rank];
    let way = Way::for_total(bytes * writes(operation.kind, ranks));
    let reduction = operation.reduction();
    // SAFETY: all offsets below stay inside the buffers: `slice` lies in 0..bytes, and rank * bytes lies in a buffer of
    // `ranks` parts. The caller vouches for the buffers.
    unsafe {
        match operation.kind {
            Kind::AllReduce | Kind::Reduce => {
                let part = slice(bytes, rank, ranks);
                let summed = from(first(operation, ranks), peers);
                let sources: Vec<_> = summed.clone().map(|peer| peer.send.add(part.start).cast_const()).collect();
                let scalars: Vec<_> = summed.map(|peer| peer.scalar).collect();
                let targets: Vec<_> = match operation.kind {
                    Kind::AllReduce => peers.iter().map(|peer| peer.recv.add(part.start)).collect(),
                    _ => vec![root.recv.add(part.start)],
                };
                reduce::run(reduction, &sources, &scalars, &targets, part.len() / operation.size, way);
            }
            Kind::ReduceScatter => {
                let summed = from(first(operation, ranks), peers);
                let sources: Vec<_> = summed.clone().map(|peer| peer.send.add(rank * bytes).cast_const()).collect();
                let scalars: Vec<_> = summed.map(|peer| peer.scalar).collect();
                reduce::run(reduction, &sources, &scalars, &[me.recv], operation.count, way);
            }
            Kind::Broadcast => {
                let part = slice(bytes, rank, ranks);
                let targets: Vec<_> = peers.iter().map(|peer| peer.recv.add(part.start)).collect();
                way.copy_to_all(root.send.add(part.start), &targets, part.len());
            }
            Kind::AllGather => {
                let targets: Vec<_> = peers.iter().map(|peer| peer.recv.add(rank * bytes)).collect();
                way.copy_to_all(me.send, &targets, bytes);
            }
            _ => {}
        }
    }
    way.finish();
}

/// All peers, from one on.
fn from(first: usize, peers: &[Peer]) -> impl Iterator<Item = &Peer> + Clone {
    peers[first..].iter().chain(&peers[..first])
}

/// The rank at which sums begin.
fn first(operation: &Operation, ranks: usize) -> usize {
    // Its keys are others each time.
    if operation.any_order { RandomState::new().build_hasher().finish() as usize % ranks } else { 0 }
}

/// Does an operation of one rank.
///
/// # Safety
/// The buffers hold what the operation says, stay valid meanwhile, and nobody else touches them.
pub(super) unsafe fn do_alone(operation: &Operation, send: *mut u8, recv: *mut u8, scalar: u64) {
    let way = Way::for_total(operation.bytes());
    // SAFETY: the caller vouches for the buffers.
    unsafe {
        if operation.kind.reduces() {
            reduce::run(operation.reduction(), &[send.cast_const()], &[scalar], &[recv], operation.count, way);
        } else {
            way.copy(send, recv, operation.bytes());
        }
    }
    way.finish();
}

/// How many parts all ranks together write.
fn writes(kind: Kind, ranks: usize) -> usize {
    match kind {
        Kind::Reduce => 1,
        Kind::AllGather => ranks * ranks,
        _ => ranks,
    }
}

// Which collectives a group holds: ranks must agree on that too.
//
// NCCL sorts the collectives of a group by their size and launches neighbours together. A rank that has two in one group and a
// rank that issues the same two one after the other run different kernels against each other: the data is wrong, or they
// wait for ever. Messages may be grouped as one likes, and so may what NCCL makes of messages.

/// How many collectives of a group are named; of others only the number and a digest are compared.
const NAMED: usize = 8;

// In these words a rank shows the group that it is at: how many collectives, their digest, and the first of them.
const _: () = assert!(GROUP_WORDS == 2 + NAMED * SIGNATURE_WORDS);

/// Shows the others what the group holds whose operations this rank comes to now.
///
/// All ranks have compared the last one, since none parts from a collective before all have.
pub(crate) fn show_group(comm: &Comm, segment: &Segment, operations: &[Operation]) {
    let group = &segment.own(comm.rank).group;
    let (mut number, mut digest) = (0, 0u64);
    for operation in operations.iter().filter(|operation| !operation.kind.by_messages()) {
        let signature = Signature::of(operation);
        if number < NAMED {
            signature.put(&group[2 + number * SIGNATURE_WORDS..]);
        }
        number += 1;
        for word in signature.words() {
            digest = (digest ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }
    if number > 0 {
        group[0].store(number as u64, Ordering::Relaxed);
        group[1].store(digest, Ordering::Relaxed);
    }
}

/// Whether all ranks, which have come to `operation`, have come to it in groups of the same collectives.
pub(crate) fn agree_on_group(comm: &Comm, segment: &Segment) -> bool {
    let shown = |rank: usize| segment.own(rank).group.each_ref().map(|word| word.load(Ordering::Relaxed));
    let first = shown(0);
    let listed = |words: &[u64; GROUP_WORDS]| 2 + SIGNATURE_WORDS * NAMED.min(words[0] as usize);
    let odd = (1..comm.size).find(|&rank| {
        let theirs = shown(rank);
        theirs[..listed(&theirs)] != first[..listed(&first)]
    });
    let Some(odd) = odd else { return true };
    report::violation(format!(
        "ranks group their collectives differently: rank {odd} has {}, expected {}, as rank 0",
        describe(segment.own(odd)),
        describe(segment.own(0))
    ));
    false
}

fn describe(rank: &Own) -> String {
    let number = rank.group[0].load(Ordering::Relaxed) as usize;
    let name =
        |words: &[AtomicU64]| Signature::read(words).map_or("nonsense".to_owned(), |signature| signature.describe());
    let mut names: Vec<String> = rank.group[2..].chunks(SIGNATURE_WORDS).take(number).map(name).collect();
    if number > NAMED {
        names.push(format!("and {} more", number - NAMED));
    }
    format!("[{}] in one group", names.join("; "))
}

#[cfg(test)]
mod share_tests {
    use super::*;

    #[test]
    fn slices_cover_everything_once() {
        for total in [0, 1, 5, 4096, 4097, 100_000, 1 << 20] {
            for ranks in 1..=5 {
                let mut next = 0;
                for rank in 0..ranks {
                    let part = slice(total, rank, ranks);
                    assert!(part.is_empty() || part.start == next);
                    next = next.max(part.end);
                }
                assert_eq!(next, total);
            }
        }
    }
}

#[cfg(test)]
mod part_tests {
    use std::sync::Barrier;

    use super::*;
    use crate::isolated::alone;
    use crate::meet::segment::Life;
    use crate::nccl::state::registry;
    use crate::nccl::tests::spmd;

    /// A rank that is killed after it has reported its share, and before it arrives at the gate, does not hold up the others.
    #[test]
    fn a_rank_that_dies_in_front_of_the_gate() {
        alone!();
        let both = Barrier::new(2);
        spmd(2, move |rank| {
            both.wait();
            if rank.rank == 0 {
                let comm = registry::find(rank.comm).expect("a communicator");
                let segment = comm.segment().expect("it has started");
                let activity = Activity::new(Kind::AllReduce, 1, 1, 0);
                (0..2).for_each(|peer| segment.own(peer).departed.store(1, Ordering::Release));
                let ticket = segment.common().departure.arrive(2);
                assert!(ticket.is_some(), "the other one has not come");
                segment.rank(1).set_life(Life::Dead);
                let parted = part(&comm, segment, activity, (1, ticket), &|| false);
                segment.rank(1).set_life(Life::Joined);
                assert_eq!(parted, Ok(true));
            }
            both.wait();
        });
    }
}
