//! How ranks cut a sequence of messages into groups, so that NCCL can do them.
//!
//! A group of NCCL goes in epochs: the first message to each peer and the first one from each are under way together, and the second
//! ones begin when these are done. So a rank may do one by one what its peer does in one group only where nothing comes back in
//! between.

use std::collections::HashMap;

use crate::generator::Generator;
use crate::operation::Operation;

/// For each rank and message, whether a new group begins with it.
pub type Cuts = Vec<Vec<bool>>;

/// Cuts for each rank that get to the end.
pub fn draw(g: &mut Generator, messages: &[Operation]) -> Cuts {
    let ends: Vec<_> = messages.iter().filter_map(Ends::of).collect();
    for _ in 0..4 {
        let one_in = g.each(|g| g.rng.u32(1..5));
        let cuts: Cuts = one_in.into_iter().map(|one_in| messages.iter().map(|_| g.chance(one_in)).collect()).collect();
        if come_to_the_end(&ends, &cuts) {
            return cuts;
        }
    }
    let cuts = g.each(|_| vec![false; messages.len()]);
    assert!(come_to_the_end(&ends, &cuts), "one group of {messages:?}");
    cuts
}

/// What a message is, for who asks when it comes about.
#[derive(Debug, Clone, Copy)]
struct Ends {
    from: usize,
    to: usize,
    /// The crate leaves out what has no elements.
    is_empty: bool,
}

impl Ends {
    fn of(operation: &Operation) -> Option<Self> {
        match operation {
            Operation::Message(message) => {
                Some(Self { from: message.from, to: message.to, is_empty: message.send.len == 0 })
            }
            Operation::Collective(_) => None,
        }
    }
}

/// The epochs of one rank, each a list of messages and whether it sends them.
fn epochs(all: &[Ends], rank: usize, cuts: &[bool]) -> Vec<Vec<(usize, bool)>> {
    let (mut epochs, mut group) = (Vec::new(), 0);
    let mut counts = HashMap::new();
    let concerned = all.iter().enumerate().filter(|(_, ends)| ends.from == rank || ends.to == rank);
    for (at, &Ends { from, to, is_empty }) in concerned {
        if cuts[at] {
            group = epochs.len();
            counts.clear();
        }
        for (sends, own, peer) in [(true, from, to), (false, to, from)] {
            if own != rank || is_empty {
                continue;
            }
            let count = counts.entry((sends, peer)).or_insert(0);
            if epochs.len() == group + *count {
                epochs.push(Vec::new());
            }
            epochs[group + *count].push((at, sends));
            *count += 1;
        }
    }
    epochs
}

/// Whether all messages come about if none can go before its receiver is there.
fn come_to_the_end(all: &[Ends], cuts: &[Vec<bool>]) -> bool {
    let epochs: Vec<_> = cuts.iter().enumerate().map(|(rank, cuts)| epochs(all, rank, cuts)).collect();
    let mut now = vec![0; epochs.len()];
    let mut done: Vec<bool> = all.iter().map(|ends| ends.is_empty).collect();
    loop {
        let under_way =
            |rank: usize, end: (usize, bool)| epochs[rank].get(now[rank]).is_some_and(|epoch| epoch.contains(&end));
        for (at, ends) in all.iter().enumerate() {
            done[at] |= under_way(ends.from, (at, true)) && under_way(ends.to, (at, false));
        }
        let mut moved = false;
        for (epochs, now) in epochs.iter().zip(&mut now) {
            while epochs.get(*now).is_some_and(|epoch| epoch.iter().all(|(at, _)| done[*at])) {
                *now += 1;
                moved = true;
            }
        }
        if !moved {
            return epochs.iter().zip(now).all(|(epochs, now)| now == epochs.len());
        }
    }
}

#[test]
fn what_nccl_can_do_comes_to_the_end() {
    let message = |(from, to)| Ends { from, to, is_empty: false };
    let [a, b, c] = [(1, 0), (1, 0), (0, 1)].map(message);
    let d = Ends { is_empty: true, ..c };
    let (one_by_one, grouped) = (vec![true; 3], vec![false; 3]);
    assert!(come_to_the_end(&[a, b, c], &[grouped.clone(), grouped.clone()]));
    assert!(come_to_the_end(&[a, b, c], &[one_by_one.clone(), one_by_one.clone()]));
    // The second message waits for the one that comes back, and that for the second.
    assert!(!come_to_the_end(&[a, b, c], &[one_by_one.clone(), grouped.clone()]));
    assert!(come_to_the_end(&[c, a, b], &[one_by_one.clone(), grouped.clone()]));
    assert!(!come_to_the_end(&[a, d, b, c], &[vec![true; 4], vec![false; 4]]));
    assert!(come_to_the_end(&[a, b, b], &[one_by_one, grouped]));
}
