//! Checks that the ranks of a clique use communicators that share their resources in the same
//! order.
//!
//! Such communicators use the same channels between two ranks. If one rank issued an operation on
//! one of them and its peer on another, the two would meet there. So each pair of ranks compares on
//! which communicator its next common operation is. The ranks of that communicator compare the
//! operation itself.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::lock::Mutex;
use crate::name::Name;

/// Of all communicators of a clique that share.
#[derive(Debug)]
pub(crate) struct Order {
    size: usize,
    names: Mutex<Vec<String>>,
    pairs: Box<[Mutex<Pair>]>,
}

/// The operations that one of two ranks has issued, and the other has not.
#[derive(Debug, Default)]
struct Pair {
    ahead: usize,
    /// Communicators, and how many operations on each.
    runs: VecDeque<(usize, u64)>,
}

impl Pair {
    /// `rank` issues an operation on the communicator `on`; the one on which the other has issued
    /// its own, if that is another.
    fn step(&mut self, rank: usize, on: usize) -> Result<(), usize> {
        if self.runs.is_empty() {
            self.ahead = rank;
        }
        let run = if self.ahead == rank { self.runs.back_mut() } else { self.runs.front_mut() };
        match run {
            Some((other, count)) if *other == on && self.ahead == rank => *count += 1,
            _ if self.ahead == rank => self.runs.push_back((on, 1)),
            Some((other, count)) if *other == on => {
                *count -= 1;
                if *count == 0 {
                    self.runs.pop_front();
                }
            }
            Some((other, _)) => return Err(*other),
            None => {}
        }
        Ok(())
    }
}

/// One communicator of those that share.
#[derive(Debug)]
pub(crate) struct Sharing {
    order: Arc<Order>,
    number: usize,
    /// The ranks of the first communicator that are in this one.
    ranks: Box<[usize]>,
}

/// Where two ranks differ.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Clash {
    /// The other one.
    pub(crate) peer: usize,
    /// The communicator that it has used, and the one that is used here, in words.
    pub(crate) expected: String,
    pub(crate) got: String,
}

impl Sharing {
    /// The first communicator, of so many ranks.
    pub(crate) fn new(name: &Name, size: usize) -> Self {
        let pairs = (0..size * size).map(|_| Mutex::default()).collect();
        let names = Mutex::new(vec![format!("communicator {name}")]);
        Self { order: Arc::new(Order { size, names, pairs }), number: 0, ranks: (0..size).collect() }
    }

    /// A part, in which these ranks of this communicator are.
    pub(crate) fn part(&self, name: &Name, ranks: &[usize]) -> Self {
        let mut names = self.order.names.lock();
        let number = names.len();
        names.push(format!("communicator {name}"));
        drop(names);
        let ranks = ranks.iter().filter_map(|&rank| self.ranks.get(rank).copied()).collect();
        Self { order: Arc::clone(&self.order), number, ranks }
    }

    fn name(&self, number: usize) -> String {
        let names = self.order.names.lock();
        names.get(number).cloned().unwrap_or_default()
    }

    /// `rank` issues an operation with all others.
    pub(crate) fn collective(&self, rank: usize) -> Result<(), Clash> {
        (0..self.ranks.len()).filter(|&peer| peer != rank).try_for_each(|peer| self.message(rank, peer))
    }

    /// `rank` issues an operation with `peer`, another one.
    pub(crate) fn message(&self, rank: usize, peer: usize) -> Result<(), Clash> {
        let (own, other) = (self.ranks[rank], self.ranks[peer]);
        let pair = &self.order.pairs[own.min(other) * self.order.size + own.max(other)];
        let step = pair.lock().step(own, self.number);
        step.map_err(|theirs| Clash { peer, expected: self.name(theirs), got: self.name(self.number) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_order_is_well() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let name = Name::default();
        let whole = Sharing::new(&name, 4);
        let ranks: [&[usize]; 3] = [&[3, 0], &[1, 2], &[1, 0, 2]];
        let parts = ranks.map(|ranks| whole.part(&name.part(0), ranks));
        let all = [&whole, &parts[0], &parts[1], &parts[2]];
        let calls: Vec<_> = (0..500).map(|_| all[random.usize(..4)]).collect();
        let mut at = [0; 4];
        // Each rank issues what concerns it, in that order, some of them ahead of others.
        while at.iter().any(|&at| at < calls.len()) {
            let rank = random.usize(..4);
            let some = calls.len().min(at[rank] + random.usize(..20));
            for call in &calls[at[rank]..some] {
                if let Some(own) = call.ranks.iter().position(|&one| one == rank) {
                    call.collective(own).unwrap();
                }
            }
            at[rank] = some;
        }
        assert!(whole.order.pairs.iter().all(|pair| pair.lock().runs.is_empty()));
    }

    #[test]
    fn another_order_is_told() {
        let name = Name::default();
        let whole = Sharing::new(&name, 3);
        let part = whole.part(&name.part(7), &[2, 1]);
        let of_part = part.part(&name.part(7).part(0), &[1, 0]);
        whole.collective(0).unwrap();
        part.collective(1).unwrap();
        // Rank 2 is rank 0 of the part.
        let clash = whole.collective(2).unwrap_err();
        let (expected, got) = ("communicator \"world/split(color=7)\"".into(), "communicator \"world\"".into());
        let expected = Clash { peer: 1, expected, got };
        assert_eq!(clash, expected);
        part.message(0, 1).unwrap();
        of_part.message(0, 1).unwrap();
        let clash = part.message(0, 1).unwrap_err();
        assert_eq!((clash.peer, clash.expected.as_str()), (1, "communicator \"world/split(color=7)/split(color=0)\""));
    }
}
