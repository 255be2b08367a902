//! First meetings, inside the call.
//!
//! NCCL connects ranks when they first need each other, in the thread that calls: since 2.22.3 the first collective of each
//! algorithm waits there for all ranks, and the first message from one rank to another waits for that one. In a group they
//! wait at its end. So a thread that calls one rank after the other, without a group, stays in the first call for ever, here
//! as there. Which algorithm NCCL takes depends on the operation and its size, so each pair of those counts as one here.
//!
//! `ncclCommRevoke` from another thread ends such a call.
//!
//! That a message is to be connected NCCL notes when it is issued, and never looks at again. So what was issued in a group that has
//! failed is not connected by any later one either, and has no transport.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::meet::futex::{SLICE, Ticket};
use crate::meet::segment::Segment;
use crate::meet::watch::{Deed, Phase, Stop};
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::Kind;
use crate::nccl::requests::operation::Batch;
use crate::nccl::requests::operation::Operation;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::shared::Link;
use crate::nccl::state::shared::{Between, Shared};
use crate::nccl::wait::activity::{Activity, Watch, died};
use crate::report;

/// How long one of several meetings may keep the others of its group waiting.
const TURN: Duration = Duration::from_millis(1);

/// Bytes up to which collectives are small, and up to which they are not large.
const CLASSES: [usize; 2] = [32 << 10, 1 << 20];

// What a rank has done at its end of a pair. The first two tell whether it has come for messages both ways.
const COME: u32 = 1;
const COME_BOTH: u32 = 2;
const CONNECTED: u32 = 3;
const REFUSED: u32 = 4;

/// Calls `visit` with everything that `operation` needs.
fn links(comm: &Comm, operation: &Operation, mut visit: impl FnMut(Link)) {
    let others = (0..comm.size).filter(|&peer| peer != comm.rank);
    let root = operation.peer == comm.rank;
    match operation.kind {
        Kind::Send => others.filter(|&peer| peer == operation.peer).for_each(|peer| visit(Link::To(peer))),
        Kind::Recv => others.filter(|&peer| peer == operation.peer).for_each(|peer| visit(Link::From(peer))),
        // NCCL makes messages of these three.
        Kind::AlltoAll => others.for_each(|peer| {
            visit(Link::To(peer));
            visit(Link::From(peer));
        }),
        Kind::Gather if root => others.for_each(|peer| visit(Link::From(peer))),
        Kind::Gather => visit(Link::To(operation.peer)),
        Kind::Scatter if root => others.for_each(|peer| visit(Link::To(peer))),
        Kind::Scatter => visit(Link::From(operation.peer)),
        kind => {
            let class = CLASSES.iter().filter(|&&limit| operation.bytes() > limit).count();
            visit(Link::All(kind, class as u8));
        }
    }
}

/// The group of `batch` has failed before it was launched.
pub(super) fn never_connect(batch: &Batch) {
    let mut known = batch.comm.connected.lock();
    for operation in &batch.operations {
        links(&batch.comm, operation, |link| {
            if !known.contains(&link) {
                known.extend(link.never());
            }
        });
    }
}

/// Connects what the operations of one group need and have not yet: messages first, then collectives, one family of
/// communicators after the other.
pub(crate) fn connect(batches: &[Batch]) -> Outcome {
    let mut pairs = Vec::new();
    let mut alls: Vec<Vec<All<'_>>> = Vec::new();
    for Batch { comm, epoch, operations, .. } in batches {
        let mut new: Vec<Link> = Vec::new();
        let known = comm.connected.lock();
        for operation in operations {
            links(comm, operation, |link| {
                if !known.contains(&link) && !new.contains(&link) {
                    new.push(link);
                }
            });
        }
        if new.iter().filter_map(|link| link.never()).any(|never| known.contains(&never)) {
            return Err(Failure::internal(format!(
                "rank {} has no transport for messages: the first ones were in a group that has failed, and NCCL connects them only once",
                comm.rank
            )));
        }
        drop(known);
        if new.is_empty() {
            continue;
        }
        let segment = comm.segment()?;
        let pick = |pick: fn(&Link) -> Option<usize>| new.iter().filter_map(pick).collect::<Vec<_>>();
        let to = pick(|link| if let Link::To(peer) = link { Some(*peer) } else { None });
        let from = pick(|link| if let Link::From(peer) = link { Some(*peer) } else { None });
        if !to.is_empty() || !from.is_empty() {
            pairs.push(Pairs { comm, epoch: *epoch, segment, to, from, step: 0, heard: 0, watch: None });
        }
        new.retain(|link| matches!(link, Link::All(..)));
        if !new.is_empty() {
            let all = All { comm, epoch: *epoch, segment, left: new, ticket: None, number: 0, watch: None };
            match alls.iter_mut().find(|family| family[0].segment.nonce() == segment.nonce()) {
                Some(family) => family.push(all),
                None => alls.push(vec![all]),
            }
        }
    }
    check_sharers(&pairs)?;
    hold(&mut pairs)?;
    alls.iter_mut().try_for_each(|family| hold(family))
}

/// NCCL connects the messages of each communicator of a group on a thread of its own; collectives go one communicator after the other.
fn check_sharers(pairs: &[Pairs<'_>]) -> Outcome {
    let share =
        |one: &Pairs<'_>, other: &Pairs<'_>| Arc::ptr_eq(&one.comm.resources.progress, &other.comm.resources.progress);
    let met = pairs.iter().enumerate().find(|(at, one)| pairs[..*at].iter().any(|other| share(one, other)));
    met.map_or(Ok(()), |(_, one)| {
        Err(Failure::unnoticed(format!(
            "one group has first messages of communicators that share the resources of a rank, rank {} of one of them: NCCL connects each on \
             a thread of its own, and these use what is shared without a lock",
            one.comm.rank
        )))
    })
}

/// One rank's part in a meeting.
trait Meeting {
    /// Goes on as far as the others are; whether it is over.
    fn advance(&mut self) -> Outcome<bool>;
    /// Sleeps until another rank has come further, for at most `nap`.
    fn sleep(&self, nap: Duration);
    /// Whether the wait has lost its purpose.
    fn look(&mut self) -> Option<Stop>;
    /// Leaves, so that nobody comes to believe that this rank is there.
    fn withdraw(&mut self);
    fn comm(&self) -> &Arc<Comm>;
    fn activity(&self) -> Activity;
}

/// Holds meetings side by side, as NCCL does on a thread for each.
fn hold(meetings: &mut [impl Meeting]) -> Outcome {
    let outcome = hold_all(meetings);
    if outcome.is_err() {
        meetings.iter_mut().for_each(Meeting::withdraw);
        if meetings.len() > 1 {
            // NCCL raises the flags of all that are in the group when one of them fails.
            meetings.iter().for_each(|meeting| meeting.comm().resources.abort.set());
        }
    }
    outcome
}

fn hold_all(meetings: &mut [impl Meeting]) -> Outcome {
    loop {
        let mut open = Vec::new();
        for (i, meeting) in meetings.iter_mut().enumerate() {
            if !meeting.advance()? {
                open.push(i);
            }
        }
        let Some(&first) = open.first() else { return Ok(()) };
        let nap = if open.len() == 1 { SLICE } else { TURN };
        meetings[first].sleep(nap);
        for i in open {
            let Some(stop) = meetings[i].look() else { continue };
            let (comm, activity) = (meetings[i].comm(), meetings[i].activity());
            return Err(match stop {
                Stop::Dead(peer) => died(comm, peer, &activity),
                Stop::Aborted | Stop::Cancelled => Failure::internal(format!(
                    "rank {}: aborted or revoked while waiting for peers inside the call of its first {}",
                    comm.rank,
                    Kind::from_code(activity.number).map_or("operation", Kind::name),
                )),
            });
        }
    }
}

/// What reports say of a rank that waits: `what` names the operation.
fn activity(what: Kind, peer: usize) -> Activity {
    Activity::new(Kind::Connect, what as u64, 0, peer)
}

/// All ranks meet, once for each collective and class that is new.
struct All<'a> {
    comm: &'a Arc<Comm>,
    epoch: u32,
    segment: &'a Segment,
    left: Vec<Link>,
    /// This rank has come, and waits.
    ticket: Option<Ticket>,
    /// Which of these meetings of this communicator.
    number: u64,
    watch: Option<Watch<'a>>,
}

impl All<'_> {
    fn arrive(&mut self) {
        let connected = &self.segment.own(self.comm.rank).connected;
        self.number = connected.load(Ordering::Relaxed) + 1;
        connected.store(self.number, Ordering::Release);
        self.ticket = self.segment.common().connect.arrive(self.comm.size);
    }
}

impl Meeting for All<'_> {
    fn advance(&mut self) -> Outcome<bool> {
        let gate = &self.segment.common().connect;
        while let Some(&link) = self.left.first() {
            if self.ticket.is_none() {
                self.arrive();
            }
            if self.ticket.is_some_and(|ticket| !gate.open(ticket)) {
                return Ok(false);
            }
            (self.ticket, self.watch) = (None, None);
            self.comm.connected.lock().insert(link);
            self.left.remove(0);
        }
        Ok(true)
    }

    fn sleep(&self, nap: Duration) {
        if let Some(ticket) = self.ticket {
            self.segment.common().connect.wait(ticket, nap);
        }
    }

    fn look(&mut self) -> Option<Stop> {
        let (comm, epoch, segment, activity, number) =
            (self.comm, self.epoch, self.segment, self.activity(), self.number);
        let watch = self.watch.get_or_insert_with(|| Watch::new(comm, segment, activity, None).since(epoch));
        watch.check(|peer| segment.own(peer).connected.load(Ordering::Relaxed) < number)
    }

    fn withdraw(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.segment.common().connect.leave(ticket);
            self.activity().publish(self.segment.rank(self.comm.rank), Phase::Stopped);
        }
    }

    fn comm(&self) -> &Arc<Comm> {
        self.comm
    }

    fn activity(&self) -> Activity {
        let what = self.left.first().map_or(Kind::AllReduce, |link| match link {
            Link::All(kind, _) => *kind,
            Link::To(_) | Link::NeverTo(_) => Kind::Send,
            Link::From(_) | Link::NeverFrom(_) => Kind::Recv,
        });
        activity(what, 0)
    }
}

/// One rank meets those it exchanges messages with for the first time. Nobody leaves before all of its peers have met all
/// of theirs.
struct Pairs<'a> {
    comm: &'a Arc<Comm>,
    epoch: u32,
    segment: &'a Segment,
    to: Vec<usize>,
    from: Vec<usize>,
    /// How far this rank is: 0, [`COME`] or [`CONNECTED`].
    step: u32,
    heard: u32,
    watch: Option<Watch<'a>>,
}

impl Pairs<'_> {
    /// The peers, with this rank's end of each pair first.
    fn ends(&self) -> impl Iterator<Item = (usize, &Between, [usize; 2])> {
        let me = self.comm.rank;
        let to = self.to.iter().map(move |&peer| (peer, self.segment.between(me, peer), [0, 1]));
        to.chain(self.from.iter().map(move |&peer| (peer, self.segment.between(peer, me), [1, 0])))
    }

    /// What this rank's ends say when it has come: NCCL sends what it knows of both directions in one piece to the rank
    /// that is as far away forwards as backwards.
    fn coming(&self, peer: usize) -> u32 {
        let size = self.comm.size;
        let opposite = (peer + size - self.comm.rank) * 2 % (2 * size) == size;
        let both = self.to.contains(&peer) && self.from.contains(&peer);
        if opposite && both { COME_BOTH } else { COME }
    }

    fn go(&mut self, step: u32) {
        self.step = step;
        for (peer, pair, [mine, _]) in self.ends() {
            pair.met[mine].store(if step == COME { self.coming(peer) } else { step }, Ordering::Release);
            self.segment.rank(peer).bell.ring();
        }
    }

    /// Peers whose ends have not come as far as this rank's.
    fn behind(&self) -> impl Iterator<Item = usize> {
        let behind = |pair: &Between, theirs: usize| pair.met[theirs].load(Ordering::Acquire) < self.step;
        self.ends().filter(move |&(_, pair, [_, theirs])| behind(pair, theirs)).map(|(peer, ..)| peer)
    }

    /// Whether all peers have come as far as this rank; an error if one has come for other directions.
    fn all_here(&self) -> Outcome<bool> {
        let mut here = true;
        for (peer, pair, [mine, theirs]) in self.ends() {
            let [mine, theirs] = [mine, theirs].map(|end| &pair.met[end]);
            let came = theirs.load(Ordering::Acquire);
            here &= came >= self.step;
            let expected = mine.load(Ordering::Relaxed);
            if came == REFUSED || [COME, COME_BOTH].contains(&came) && self.step == COME && came != expected {
                mine.store(REFUSED, Ordering::Release);
                self.segment.rank(peer).bell.ring();
                let text = format!(
                    "the first messages between rank {} and rank {peer} go both ways in one call of one of them and not of \
                     the other: NCCL, which connects both ways at once here, takes one for the other",
                    self.comm.rank
                );
                report::violation(&text);
                return Err(Failure::internal(text));
            }
        }
        Ok(here)
    }
}

impl Meeting for Pairs<'_> {
    fn advance(&mut self) -> Outcome<bool> {
        if self.step == 0 {
            self.go(COME);
        }
        self.heard = self.segment.rank(self.comm.rank).bell.read();
        if self.step == COME && self.all_here()? {
            self.go(CONNECTED);
        }
        if self.step == COME || !self.all_here()? {
            return Ok(false);
        }
        let mut connected = self.comm.connected.lock();
        connected.extend(self.to.drain(..).map(Link::To));
        connected.extend(self.from.drain(..).map(Link::From));
        Ok(true)
    }

    fn sleep(&self, nap: Duration) {
        self.segment.rank(self.comm.rank).bell.sleep(self.heard, nap);
    }

    fn look(&mut self) -> Option<Stop> {
        let (comm, epoch, segment, activity) = (self.comm, self.epoch, self.segment, self.activity());
        let mut watch = self.watch.take().unwrap_or_else(|| Watch::new(comm, segment, activity, None).since(epoch));
        let stop = watch.check(|peer| self.behind().any(|other| other == peer));
        self.watch = Some(watch);
        stop
    }

    fn withdraw(&mut self) {
        for (_, pair, [mine, _]) in self.ends() {
            let came = &pair.met[mine];
            if came.load(Ordering::Relaxed) != REFUSED {
                came.store(0, Ordering::Release);
            }
        }
        self.activity().publish(self.segment.rank(self.comm.rank), Phase::Stopped);
    }

    fn comm(&self) -> &Arc<Comm> {
        self.comm
    }

    fn activity(&self) -> Activity {
        let what = if self.to.is_empty() { Kind::Recv } else { Kind::Send };
        activity(what, self.to.first().or(self.from.first()).copied().unwrap_or(0))
    }
}
