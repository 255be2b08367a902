//! Where the ranks of a clique meet before a call in which NCCL connects them.
//!
//! NCCL connects ranks when it first needs that: for an algorithm of its collectives, and for
//! messages from one rank to another. It does so inside the call, which then waits for the other
//! ranks to make theirs, and cannot be aborted. So ranks wait for each other here before that,
//! where they can be. A rank says what its call connects, and a party goes on together whose calls
//! find each other: for a collective every rank, for a message the other end; and those that these
//! need in their turn, since a call returns only when all that it connects is connected.
//!
//! Between two ranks NCCL takes it for granted that both connect the same directions in the same
//! call. But one rank may send and receive in one group, and the other one after the other. So
//! where two ranks meet, for messages or for a collective, both connect whatever either needs: what
//! a rank does not need itself, it connects by a message without elements.
//!
//! There are programs in which no party is ever complete: one rank exchanges with two others in a
//! group, and one of these comes to its end only after something that the other does after its own.
//! So who has waited for a while connects with those that are there, in a call for that alone, and
//! goes on waiting for the rest. All that happens has a number, and a rank takes part in one after
//! the other, so that no two wait for each other in different calls.
//!
//! An abort may come at any moment. So the ranks that go on together are promised entry together, or
//! not at all. A promised rank goes on even after an abort.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::pair::End;
use crate::lock::{Mutex, MutexGuard};

/// Messages to and from other ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Peers(SmallVec<[(usize, End); 4]>);

impl Peers {
    pub(crate) fn add(&mut self, peer: usize, end: End) {
        if !self.has(peer, end) {
            self.0.push((peer, end));
        }
    }

    fn has(&self, peer: usize, end: End) -> bool {
        self.0.contains(&(peer, end))
    }

    fn knows(&self, peer: usize) -> bool {
        self.0.iter().any(|(other, _)| *other == peer)
    }

    fn remove(&mut self, peer: usize) {
        self.0.retain(|(other, _)| *other != peer);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The other rank of each message, and which end this rank is.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, End)> {
        self.0.iter().copied()
    }
}

/// What a call of one rank connects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// All ranks, for this collective: its number in the sequence.
    pub(crate) collective: Option<u64>,
    /// The messages.
    pub(crate) peers: Peers,
    /// Whether the messages come later than this call.
    pub(crate) ahead: bool,
    /// Other ranks that the same call is made for.
    pub(crate) together: SmallVec<[usize; 4]>,
}

impl Need {
    pub(crate) fn is_empty(&self) -> bool {
        self.collective.is_none() && self.peers.is_empty()
    }
}

/// What a rank that has come does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// It waits.
    Wait,
    /// It connects these messages by a call for that alone, as part of what has this number: see
    /// [`Meeting::take`].
    Connect(u64, Peers),
    /// It makes its call, and connects these messages besides.
    Go(Peers),
}

/// Promises all these ranks that they may go on, or none.
pub(crate) type Promise<'p> = &'p dyn Fn(&[usize]) -> bool;

#[derive(Debug, Default)]
struct RankState {
    /// What it still needs; `None` where the rank is not there.
    need: Option<Need>,
    /// What it connects before its call.
    events: VecDeque<(u64, Peers)>,
    /// What it connects in its call, if it may make that.
    free: Option<Peers>,
}

impl RankState {
    /// What the rank waits for.
    fn waiting(&self) -> Option<&Need> {
        self.need.as_ref().filter(|_| self.free.is_none())
    }
}

/// Who waits for whom.
#[derive(Debug)]
pub(crate) struct Meeting {
    states: Mutex<Box<[RankState]>>,
}

/// The number of what happens next, in any clique.
static NEXT: Mutex<u64> = Mutex::new(0);

/// Stops all meetings while it lives, for a consistent look at several ranks.
pub(crate) struct Quiet(MutexGuard<'static, u64>);

pub(crate) fn quiet() -> Quiet {
    Quiet(NEXT.lock())
}

impl Meeting {
    pub(crate) fn new(size: usize) -> Self {
        Self { states: Mutex::new((0..size).map(|_| RankState::default()).collect()) }
    }

    fn states(&self) -> MutexGuard<'_, Box<[RankState]>> {
        self.states.lock()
    }

    /// `rank` is there.
    pub(crate) fn come(&self, rank: usize, need: Need, promise: Promise<'_>) {
        let _quiet = quiet();
        let mut states = self.states();
        states[rank].need = Some(need);
        release(&mut states, rank, promise);
    }

    /// `rank` has waited for long: it connects with whoever is there for it.
    pub(crate) fn press(&self, rank: usize, promise: Promise<'_>) {
        let mut quiet = quiet();
        let mut states = self.states();
        let mut members: SmallVec<[usize; 8]> =
            (0..states.len()).filter(|&peer| is_there(&states, rank, peer)).collect();
        members.push(rank);
        if members.len() == 1 || !promise(&members) {
            return;
        }
        let mut own = Peers::default();
        for &peer in members.iter().filter(|&&peer| peer != rank) {
            let (Some(mine), Some(theirs)) = (states[rank].waiting(), states[peer].waiting()) else { continue };
            let mut shared = Peers::default();
            for end in [End::Sender, End::Receiver] {
                if mine.peers.has(peer, end) || theirs.peers.has(rank, end.other()) {
                    own.add(peer, end);
                    shared.add(rank, end.other());
                }
            }
            states[peer].events.push_back((*quiet.0, shared));
            for (one, other) in [(rank, peer), (peer, rank)] {
                states[one].need.as_mut().into_iter().for_each(|need| need.peers.remove(other));
            }
        }
        states[rank].events.push_back((*quiet.0, own));
        *quiet.0 += 1;
        for member in members {
            release(&mut states, member, promise);
        }
    }

    /// What `rank` does next.
    pub(crate) fn step(&self, rank: usize) -> Step {
        let states = self.states();
        let state = &states[rank];
        match (state.events.front(), &state.free) {
            (Some((number, peers)), _) => Step::Connect(*number, peers.clone()),
            (None, Some(besides)) => Step::Go(besides.clone()),
            (None, None) => Step::Wait,
        }
    }

    /// `rank` takes part in what comes next for it.
    pub(crate) fn take(&self, rank: usize) {
        self.states()[rank].events.pop_front();
    }

    /// `rank` makes its call, or waits no longer; how often it was promised to go on and has not
    /// taken part.
    pub(crate) fn leave(&self, rank: usize) -> usize {
        let state = std::mem::take(&mut self.states()[rank]);
        state.events.len() + usize::from(state.free.is_some())
    }

    /// The ranks that `rank` waits for; where its own are all there, those that others wait for.
    pub(crate) fn missing(&self, rank: usize) -> Vec<usize> {
        let states = self.states();
        let (mut known, mut at) = (vec![rank], 0);
        while let Some(&member) = known.get(at) {
            let Some(need) = states[member].waiting() else { return Vec::new() };
            let partners: Vec<_> = partners(need, states.len()).collect();
            let missing: Vec<_> =
                partners.iter().copied().filter(|&other| !finds(&states, member, need, other)).collect();
            if !missing.is_empty() {
                return missing;
            }
            for other in partners {
                if !known.contains(&other) {
                    known.push(other);
                }
            }
            at += 1;
        }
        Vec::new()
    }
}

/// Whether `rank` and `peer` wait for messages between them.
fn is_there(states: &[RankState], rank: usize, peer: usize) -> bool {
    let (Some(mine), Some(theirs)) = (states[rank].waiting(), states[peer].waiting()) else { return false };
    // Ranks of one call have no other to connect in.
    peer != rank && mine.peers.knows(peer) && theirs.peers.knows(rank) && !mine.together.contains(&peer)
}

/// The ranks that `need` needs, of so many.
fn partners(need: &Need, size: usize) -> impl Iterator<Item = usize> {
    let all = if need.collective.is_some() { size } else { 0 };
    (0..all).chain(need.peers.iter().map(|(peer, _)| peer)).chain(need.together.iter().copied())
}

/// Whether `other` waits for what `rank`, which needs `need`, needs of it.
fn finds(states: &[RankState], rank: usize, need: &Need, other: usize) -> bool {
    let Some(theirs) = states[other].waiting() else { return false };
    match need.collective {
        Some(_) => theirs.collective == need.collective,
        None => theirs.peers.knows(rank) || need.together.contains(&other),
    }
}

/// The party of `rank` goes on, if all of it are there and are promised that they may.
fn release(states: &mut [RankState], rank: usize, promise: Promise<'_>) {
    let mut party = vec![rank];
    let mut at = 0;
    while let Some(&member) = party.get(at) {
        let Some(need) = states[member].waiting() else { return };
        for other in partners(need, states.len()) {
            if !finds(states, member, need, other) {
                return;
            }
            if !party.contains(&other) {
                party.push(other);
            }
        }
        at += 1;
    }
    if !promise(&party) {
        return;
    }
    let besides: Vec<_> = party.iter().map(|&member| (member, unneeded(states, &party, member))).collect();
    for (member, besides) in besides {
        states[member].free = Some(besides);
    }
}

/// What `rank` has to connect beside what its call does.
fn unneeded(states: &[RankState], party: &[usize], rank: usize) -> Peers {
    let mut besides = Peers::default();
    let Some(need) = states[rank].waiting() else { return besides };
    for &peer in party.iter().filter(|&&peer| peer != rank) {
        let Some(theirs) = states[peer].waiting() else { continue };
        for end in [End::Sender, End::Receiver] {
            let needs = (need.peers.has(peer, end), theirs.peers.has(rank, end.other()));
            // What not both of them need in these calls gets a message in front, on both sides.
            if needs.0 != needs.1 || needs.0 && (need.ahead || theirs.ahead) {
                besides.add(peer, end);
            }
        }
    }
    besides
}

#[cfg(test)]
#[path = "meeting_tests.rs"]
mod tests;
