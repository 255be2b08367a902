//! Where the ranks of a clique meet before a call in which NCCL connects them.
//!
//! NCCL connects ranks when it first needs that: for an algorithm of its collectives, and for messages from one rank to
//! another. It does so inside the call, which then waits for the other ranks to make theirs, and cannot be aborted. So
//! ranks wait for each other here before that, where they can be. A rank says what its call connects, and all go on whose
//! calls then find each other: for a collective every rank, for a message the other end; and those that these need in
//! their turn, since a call returns only when all that it connects is connected.
//!
//! Between two ranks NCCL connects both directions at once if both need them in the same call, and takes it for granted that
//! they agree on which; where they do not, the call fails or hangs. But one rank may send and receive in one group, and the
//! other one after the other. So where two ranks meet, for messages or for a collective, both connect whatever either needs:
//! what a rank does not need itself, it connects by a message without elements.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::pair::End;

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

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The other rank of each message, and which end this rank is.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, End)> {
        self.0.iter().copied()
    }
}

/// What a call of one rank connects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Need {
    /// All ranks, for this collective: its number in the sequence.
    pub(crate) collective: Option<u64>,
    /// The messages.
    pub(crate) peers: Peers,
    /// Whether the messages come later than this call.
    pub(crate) ahead: bool,
}

impl Need {
    pub(crate) fn is_empty(&self) -> bool {
        self.collective.is_none() && self.peers.is_empty()
    }
}

#[derive(Debug, Default)]
enum Seat {
    #[default]
    Away,
    Waiting(Need),
    /// May go on, and has to connect these besides.
    Free(Peers),
}

/// Who waits for whom.
#[derive(Debug)]
pub(crate) struct Meeting {
    seats: Mutex<Box<[Seat]>>,
}

impl Meeting {
    pub(crate) fn new(size: usize) -> Self {
        Self { seats: Mutex::new((0..size).map(|_| Seat::Away).collect()) }
    }

    fn seats(&self) -> MutexGuard<'_, Box<[Seat]>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `rank` is there.
    pub(crate) fn come(&self, rank: usize, need: Need) {
        let mut seats = self.seats();
        seats[rank] = Seat::Waiting(need);
        let Some(party) = party(&seats, rank) else { return };
        let more: Vec<_> = party.iter().map(|&member| (member, unneeded(&seats, &party, member))).collect();
        for (member, more) in more {
            seats[member] = Seat::Free(more);
        }
    }

    /// Whether `rank` may go on, and what else it has to connect then: asked until it may.
    pub(crate) fn go(&self, rank: usize) -> Option<Peers> {
        let mut seats = self.seats();
        match std::mem::take(&mut seats[rank]) {
            Seat::Free(more) => Some(more),
            other => {
                seats[rank] = other;
                None
            }
        }
    }

    /// `rank` waits no longer.
    pub(crate) fn leave(&self, rank: usize) {
        self.seats()[rank] = Seat::Away;
    }

    /// The ranks that `rank` waits for, of which each has not come, or not to the same.
    pub(crate) fn missing(&self, rank: usize) -> Vec<usize> {
        let seats = self.seats();
        let Seat::Waiting(need) = &seats[rank] else { return Vec::new() };
        // Where all of its own are there, others wait for others.
        let own: Vec<_> = partners(need, seats.len()).filter(|&other| !finds(&seats, rank, need, other)).collect();
        if !own.is_empty() {
            return own;
        }
        let (mut known, mut at) = (vec![rank], 0);
        while at < known.len() {
            if let Seat::Waiting(need) = &seats[known[at]] {
                for other in partners(need, seats.len()) {
                    if !finds(&seats, known[at], need, other) {
                        return vec![other];
                    }
                    if !known.contains(&other) {
                        known.push(other);
                    }
                }
            }
            at += 1;
        }
        Vec::new()
    }
}

/// The ranks that `need` needs, of so many.
fn partners(need: &Need, size: usize) -> impl Iterator<Item = usize> {
    let all = if need.collective.is_some() { size } else { 0 };
    (0..all).chain(need.peers.iter().map(|(peer, _)| peer))
}

/// Whether `other` waits for what `rank`, which needs `need`, needs of it.
fn finds(seats: &[Seat], rank: usize, need: &Need, other: usize) -> bool {
    let Seat::Waiting(theirs) = &seats[other] else { return false };
    match need.collective {
        Some(_) => theirs.collective == need.collective,
        None => theirs.peers.knows(rank),
    }
}

/// The ranks that go on together with `rank`, if all of them are there.
fn party(seats: &[Seat], rank: usize) -> Option<Vec<usize>> {
    let mut party = vec![rank];
    let mut at = 0;
    while let Some(&member) = party.get(at) {
        let Seat::Waiting(need) = &seats[member] else { return None };
        for other in partners(need, seats.len()) {
            if !finds(seats, member, need, other) {
                return None;
            }
            if !party.contains(&other) {
                party.push(other);
            }
        }
        at += 1;
    }
    Some(party)
}

/// What `rank` has to connect because others of its party do.
fn unneeded(seats: &[Seat], party: &[usize], rank: usize) -> Peers {
    let mut more = Peers::default();
    let Seat::Waiting(need) = &seats[rank] else { return more };
    for &peer in party.iter().filter(|&&peer| peer != rank) {
        let Seat::Waiting(theirs) = &seats[peer] else { continue };
        for end in [End::Sender, End::Receiver] {
            let needs = (need.peers.has(peer, end), theirs.peers.has(rank, end.other()));
            // What not both of them need now gets a message in front, on both sides.
            if needs.0 != needs.1 || needs.0 && (need.ahead || theirs.ahead) {
                more.add(peer, end);
            }
        }
    }
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use End::{Receiver, Sender};

    fn messages(peers: &[(usize, End)]) -> Need {
        let mut need = Need::default();
        peers.iter().for_each(|&(peer, end)| need.peers.add(peer, end));
        need
    }

    fn collective(entry: u64, peers: &[(usize, End)]) -> Need {
        Need { collective: Some(entry), ..messages(peers) }
    }

    /// Who may go on, with how many connections besides.
    fn free(meeting: &Meeting, size: usize) -> Vec<(usize, usize)> {
        (0..size).filter_map(|rank| meeting.go(rank).map(|more| (rank, more.iter().count()))).collect()
    }

    #[test]
    fn a_collective_needs_every_rank() {
        let meeting = Meeting::new(3);
        for rank in [1, 0] {
            meeting.come(rank, collective(5, &[]));
            assert!(free(&meeting, 3).is_empty());
        }
        assert_eq!(meeting.missing(0), [2]);
        meeting.come(2, collective(5, &[]));
        assert_eq!(free(&meeting, 3), [(0, 0), (1, 0), (2, 0)]);
        assert!(free(&meeting, 3).is_empty());
    }

    #[test]
    fn a_message_needs_its_other_end() {
        let meeting = Meeting::new(4);
        meeting.come(0, messages(&[(1, Sender)]));
        meeting.come(2, messages(&[(3, Receiver)]));
        assert_eq!((meeting.missing(0), meeting.missing(2)), (vec![1], vec![3]));
        meeting.come(1, messages(&[(0, Receiver)]));
        assert_eq!(free(&meeting, 4), [(0, 0), (1, 0)]);
        meeting.leave(2);
        meeting.come(3, messages(&[(2, Sender)]));
        assert!(free(&meeting, 4).is_empty());
    }

    #[test]
    fn a_ring_goes_on_as_one() {
        let meeting = Meeting::new(4);
        for rank in 0..4 {
            assert!(free(&meeting, 4).is_empty());
            meeting.come(rank, messages(&[((rank + 1) % 4, Sender), ((rank + 3) % 4, Receiver)]));
        }
        assert_eq!(free(&meeting, 4).len(), 4);
    }

    #[test]
    fn whom_a_partner_waits_for_is_waited_for() {
        let meeting = Meeting::new(3);
        // Rank 1 needs rank 2 in the same call, so rank 0 would wait for rank 1 inside NCCL.
        meeting.come(0, messages(&[(1, Sender)]));
        meeting.come(1, messages(&[(0, Receiver), (2, Sender)]));
        assert!(free(&meeting, 3).is_empty());
        assert_eq!((meeting.missing(0), meeting.missing(1)), (vec![2], vec![2]));
        meeting.come(2, messages(&[(1, Receiver)]));
        assert_eq!(free(&meeting, 3), [(0, 0), (1, 0), (2, 0)]);
    }

    #[test]
    fn messages_beside_a_collective_are_connected_with_it() {
        let meeting = Meeting::new(3);
        meeting.come(0, collective(1, &[(1, Sender)]));
        meeting.come(1, collective(1, &[]));
        assert_eq!((meeting.missing(0), meeting.missing(1)), (vec![2], vec![2]));
        meeting.come(2, collective(1, &[]));
        assert_eq!(free(&meeting, 3), [(0, 1), (1, 1), (2, 0)]);
        // The other end is at something else.
        meeting.come(0, messages(&[(1, Sender)]));
        meeting.come(1, collective(2, &[]));
        meeting.come(2, collective(2, &[]));
        assert!(free(&meeting, 3).is_empty());
        assert_eq!((meeting.missing(0), meeting.missing(1)), (vec![1], vec![0]));
    }

    #[test]
    fn two_that_group_differently_connect_what_either_needs() {
        let meeting = Meeting::new(2);
        // One exchanges in a group, the other receives first.
        meeting.come(0, messages(&[(1, Sender), (1, Receiver)]));
        meeting.come(1, messages(&[(0, Receiver)]));
        let mut more = Peers::default();
        more.add(1, Receiver);
        assert_eq!(meeting.go(0), Some(more));
        let mut more = Peers::default();
        more.add(0, Sender);
        assert_eq!(meeting.go(1), Some(more));
        // One makes its call in parts.
        meeting.come(0, messages(&[(1, Sender)]));
        meeting.come(1, Need { ahead: true, ..messages(&[(0, Receiver)]) });
        assert_eq!(free(&meeting, 2), [(0, 1), (1, 1)]);
        // Both send first.
        meeting.come(0, messages(&[(1, Sender)]));
        meeting.come(1, messages(&[(0, Sender)]));
        assert_eq!(free(&meeting, 2), [(0, 2), (1, 2)]);
    }
}
