//! Calls in which NCCL connects the ranks of a clique: the first message to or from a peer, the first collective of its
//! class. The ranks meet before those; see [`meeting`](crate::nccl::validate::meeting).

use std::ptr;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::cuda::Stream;
use crate::error::Result;
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::validate::history::Exchange;
use crate::nccl::validate::in_process::InProcess;
use crate::nccl::validate::launch::messages::collectives;
use crate::nccl::validate::launch::of_clique::{bytes, class};
use crate::nccl::validate::meeting::{Need, Peers, Step, quiet};
use crate::nccl::validate::pair::End;
use crate::nccl::wait::patience::Patience;
use crate::nccl::wait::{explanation, left_ranks};

/// What one communicator connects.
struct First<'a> {
    inner: &'a Inner,
    in_process: &'a InProcess,
    /// Where calls for connections alone are made.
    stream: Option<&'a Stream>,
    need: Need,
    classes: SmallVec<[u64; 4]>,
    /// The messages that collectives consist of.
    exchanges: Peers,
}

type Firsts<'a> = SmallVec<[First<'a>; 4]>;

/// How long a rank waits for all that its call connects, before it connects with those that are there.
const PRESS: Duration = Duration::from_millis(100);

impl<'a> First<'a> {
    /// Of calls that were agreed on. `None` where they connect nothing.
    fn of(calls: &[Call<'a>], inner: &'a Inner) -> Option<Self> {
        let in_process = inner.validation.in_process().filter(|_| inner.size > 1)?;
        let history = in_process.signatures.history(inner.rank);
        let (mut need, mut classes, mut exchanges) = (Need::default(), SmallVec::new(), Peers::default());
        let count = collectives(calls, inner).count();
        let all = collectives(calls, inner).map(bytes).sum();
        let mut stream = None;
        for call in calls.iter().filter(|call| call.comm.id == inner.id && call.count > 0) {
            stream = stream.or(Some(call.stream));
            match call.kind.message() {
                Some((end, peer)) if peer != inner.rank && !history.knows_peer(peer, end) => need.peers.add(peer, end),
                Some(_) => {}
                None => {
                    let class = class(call, count, all);
                    if !history.knows_class(class) {
                        need.collective = Some(in_process.signatures.collectives().passed(inner.rank) - 1);
                        classes.push(class);
                        call.kind.exchange().into_iter().for_each(|kind| add(kind, inner, &mut exchanges));
                    }
                }
            }
        }
        (!need.is_empty()).then_some(Self { inner, in_process, stream, need, classes, exchanges })
    }

    fn step(&self) -> Step {
        self.in_process.signatures.meeting().step(self.inner.rank)
    }

    /// Leaves the meeting, because all ranks have come. The caller holds the promise until its call returns.
    fn go(&self, besides: &Peers) {
        self.in_process.signatures.meeting().leave(self.inner.rank);
        let history = self.in_process.signatures.history(self.inner.rank);
        self.classes.iter().for_each(|&class| history.connect_class(class));
        let peers = self.need.peers.iter().chain(self.exchanges.iter()).chain(besides.iter());
        peers.for_each(|(peer, end)| history.connect_peer(peer, end));
    }

    /// Who has not come.
    fn absent(&self) -> String {
        let missing = self.in_process.signatures.meeting().missing(self.inner.rank);
        let presence = self.in_process.signatures.presence();
        let advice = match missing.iter().all(|&rank| presence.is_driven_elsewhere(rank)) {
            true => "",
            false => ": one thread that drives several has to put their calls into one group",
        };
        let what = explanation::meets(self.inner, &missing);
        format!("{what}. Ranks meet before they do this for the first time{advice}")
    }
}

/// Promises all these ranks of the clique of `inner` that they may enter NCCL, each by `promise`, or none.
pub(crate) fn promise(inner: &Inner, ranks: &[usize], promise: impl Fn(&Inner) -> bool) -> bool {
    let rank = |&rank: &usize| inner.local_ranks.rank(rank);
    let refused = ranks.iter().position(|one| !rank(one).is_some_and(|inner| promise(&inner)));
    if let Some(refused) = refused {
        ranks[..refused].iter().filter_map(rank).for_each(|inner| inner.redeem());
    }
    refused.is_none()
}

/// Ranks that were promised to enter NCCL, as long as this lives.
#[derive(Debug, Default)]
pub(crate) struct Promised<'a>(SmallVec<[&'a Inner; 4]>);

impl<'a> Promised<'a> {
    /// One more.
    pub(crate) fn add(&mut self, inner: &'a Inner) {
        self.0.push(inner);
    }
}

impl Drop for Promised<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|inner| inner.redeem());
    }
}

/// Adds the messages of this rank in a collective that consists of messages.
fn add(exchange: Exchange, inner: &Inner, peers: &mut Peers) {
    let (rank, all) = (inner.rank, 0..inner.size);
    let mut rooted = |root: usize, at_root: End| match rank == root {
        true => all.clone().for_each(|peer| peers.add(peer, at_root)),
        false => peers.add(root, at_root.other()),
    };
    match exchange {
        Exchange::Gather { root } => rooted(root, End::Receiver),
        Exchange::Scatter { root } => rooted(root, End::Sender),
        Exchange::AllToAll => {
            for peer in all {
                peers.add(peer, End::Sender);
                peers.add(peer, End::Receiver);
            }
        }
    }
}

/// Connections that a call makes only because a peer needs them: the communicator, and the messages.
pub(crate) type Besides = SmallVec<[(u64, Peers); 1]>;

/// Makes calls for connections alone, on these streams of the communicators.
type Connect<'c, 'a> = &'c mut dyn FnMut(&[(&'a Inner, &'a Stream, Peers)]) -> Result<()>;

/// Waits until all ranks have come that are connected by these calls, which were agreed on. The locks of their communicators
/// are held. `in_parts` says that not all calls are made at once.
///
/// # Errors
/// What ends the clique.
#[cold]
pub(crate) fn meet<'a>(
    calls: &[Call<'a>],
    inners: &[&'a Inner],
    operation: &'static str,
    in_parts: bool,
    connect: Connect<'_, 'a>,
) -> Result<(Besides, Promised<'a>)> {
    let mut firsts: Firsts<'_> = inners.iter().filter_map(|inner| First::of(calls, inner)).collect();
    let all: SmallVec<[(*const InProcess, usize); 4]> =
        firsts.iter().map(|first| (ptr::from_ref(first.in_process), first.inner.rank)).collect();
    for first in &mut firsts {
        let (in_process, own) = (ptr::from_ref(first.in_process), first.inner.rank);
        first.need.ahead = in_parts;
        first.need.together =
            all.iter().filter(|(of, rank)| *of == in_process && *rank != own).map(|one| one.1).collect();
    }
    wait(firsts, inners, operation, connect)
}

/// The same for what the ranks do together at a point, which is collective number `entry` of each communicator.
///
/// # Errors
/// What ends the clique.
pub(crate) fn meet_at<'a>(entry: u64, members: &[&'a Inner], operation: &'static str) -> Result<Promised<'a>> {
    let mut firsts = Firsts::new();
    for &inner in members {
        if let Some(in_process) = inner.validation.in_process().filter(|_| inner.size > 1) {
            let need = Need { collective: Some(entry), ..Need::default() };
            let (classes, exchanges) = (SmallVec::new(), Peers::default());
            firsts.push(First { inner, in_process, stream: None, need, classes, exchanges });
        }
    }
    // No rank brings messages to a point.
    wait(firsts, members, operation, &mut |_| Ok(())).map(|(_, promised)| promised)
}

fn wait<'a>(
    mut firsts: Firsts<'a>,
    members: &[&Inner],
    operation: &'static str,
    connect: Connect<'_, 'a>,
) -> Result<(Besides, Promised<'a>)> {
    for First { inner, in_process, need, .. } in &firsts {
        in_process.signatures.presence().drive(inner.rank);
        in_process.signatures.meeting().come(inner.rank, need.clone(), &|ranks| promise(inner, ranks, Inner::promise));
    }
    let (mut all, mut promised) = (Besides::new(), Promised::default());
    let mut patience = Patience::default();
    let mut pressed = Instant::now();
    loop {
        let steps: SmallVec<[Step; 4]> = {
            let _quiet = quiet();
            firsts.iter().map(First::step).collect()
        };
        let number = |step: &Step| if let Step::Connect(number, _) = step { Some(*number) } else { None };
        let done = if let Some(next) = steps.iter().filter_map(number).min() {
            let parts = take_part(&firsts, &steps, next);
            let _promised = Promised(parts.iter().map(|(inner, ..)| *inner).collect());
            connect(&parts).inspect_err(|_| leave(&firsts))?;
            Ok(())
        } else {
            let mut steps = steps.into_iter();
            firsts.retain(|first| match steps.next() {
                Some(Step::Go(besides)) => {
                    first.inner.issued.compares_no_more();
                    first.go(&besides);
                    promised.0.push(first.inner);
                    if !besides.is_empty() {
                        all.push((first.inner.id, besides));
                    }
                    false
                }
                _ => true,
            });
            let Some(first) = firsts.first() else { return Ok((all, promised)) };
            if pressed.elapsed() > PRESS {
                pressed = Instant::now();
                for First { inner, in_process, .. } in &firsts {
                    in_process.signatures.meeting().press(inner.rank, &|ranks| promise(inner, ranks, Inner::promise));
                }
            }
            let is_captured = |first: &First<'_>| first.stream.is_some_and(Stream::is_captured);
            let captures = |inner| firsts.iter().any(|first| ptr::eq(first.inner, inner) && is_captured(first));
            let departed = |inner: &Inner| match captures(inner) {
                true => left_ranks::at_capture(inner, operation),
                false => left_ranks::at_meeting(inner, operation),
            };
            patience.wait(operation, members, departed, first.inner, || first.absent())
        };
        if let Err(error) = done {
            let _quiet = quiet();
            // Who was promised to go on meanwhile does so: others rely on it.
            if firsts.iter().all(|first| first.step() == Step::Wait) {
                leave(&firsts);
                return Err(error);
            }
        }
    }
}

/// Withdraws these ranks from the meeting, and their promises.
fn leave(firsts: &[First<'_>]) {
    for First { inner, in_process, .. } in firsts {
        (0..in_process.signatures.meeting().leave(inner.rank)).for_each(|_| inner.redeem());
    }
}

/// Returns the connections that these ranks make in step `event`, in a call that does nothing else.
fn take_part<'a>(firsts: &[First<'a>], steps: &[Step], event: u64) -> SmallVec<[(&'a Inner, &'a Stream, Peers); 4]> {
    let mut parts = SmallVec::new();
    for (first, step) in firsts.iter().zip(steps) {
        if let (Step::Connect(number, peers), Some(stream)) = (step, first.stream)
            && *number == event
        {
            first.in_process.signatures.meeting().take(first.inner.rank);
            let history = first.in_process.signatures.history(first.inner.rank);
            peers.iter().for_each(|(peer, end)| history.connect_peer(peer, end));
            parts.push((first.inner, stream, peers.clone()));
        }
    }
    parts
}
