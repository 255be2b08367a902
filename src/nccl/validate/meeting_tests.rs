use super::*;
use End::{Receiver, Sender};

/// Promises whatever it is asked for.
fn all(_: &[usize]) -> bool {
    true
}

fn messages(peers: &[(usize, End)]) -> Need {
    let mut need = Need::default();
    peers.iter().for_each(|&(peer, end)| need.peers.add(peer, end));
    need
}

fn collective(entry: u64, peers: &[(usize, End)]) -> Need {
    Need { collective: Some(entry), ..messages(peers) }
}

/// Lets happen what has been agreed on. Checks that both sides of each message come to it in the
/// same call; says what every rank has connected, and who makes its call.
fn happen(meeting: &Meeting, size: usize) -> (Vec<Peers>, Vec<usize>) {
    let mut connected = vec![Peers::default(); size];
    loop {
        let steps: Vec<_> = (0..size).map(|rank| meeting.step(rank)).collect();
        let number = |step: &Step| if let Step::Connect(number, _) = step { Some(*number) } else { None };
        let Some(first) = steps.iter().filter_map(number).min() else { break };
        let taking_part = |rank: usize| match &steps[rank] {
            Step::Connect(number, peers) if *number == first => Some(peers),
            _ => None,
        };
        for (rank, connected) in connected.iter_mut().enumerate() {
            let Some(peers) = taking_part(rank) else { continue };
            for (peer, end) in peers.iter() {
                assert!(taking_part(peer).is_some_and(|theirs| theirs.has(rank, end.other())));
                connected.add(peer, end);
            }
            meeting.take(rank);
        }
    }
    let mut free = Vec::new();
    let calls: Vec<_> = (0..size)
        .map(|rank| {
            let Step::Go(mut peers) = meeting.step(rank) else { return None };
            let need = meeting.states()[rank].need.clone().unwrap();
            if !need.ahead {
                need.peers.iter().for_each(|(peer, end)| peers.add(peer, end));
            }
            Some(peers)
        })
        .collect();
    for (rank, peers) in calls.iter().enumerate() {
        let Some(peers) = peers else { continue };
        for (peer, end) in peers.iter() {
            assert!(
                calls[peer].as_ref().is_some_and(|theirs| theirs.has(rank, end.other())),
                "{rank} {peer}: {calls:?}"
            );
            connected[rank].add(peer, end);
        }
        meeting.leave(rank);
        free.push(rank);
    }
    (connected, free)
}

fn free(meeting: &Meeting, size: usize) -> Vec<usize> {
    happen(meeting, size).1
}

#[test]
fn a_collective_needs_every_rank() {
    let meeting = Meeting::new(3);
    for rank in [1, 0] {
        meeting.come(rank, collective(5, &[]), &all);
        assert!(free(&meeting, 3).is_empty());
    }
    assert_eq!(meeting.missing(0), [2]);
    meeting.press(0, &all);
    meeting.come(2, collective(5, &[]), &all);
    assert_eq!(free(&meeting, 3), [0, 1, 2]);
    assert!(free(&meeting, 3).is_empty());
}

#[test]
fn a_message_needs_its_other_end() {
    let meeting = Meeting::new(4);
    meeting.come(0, messages(&[(1, Sender)]), &all);
    meeting.come(2, messages(&[(3, Receiver)]), &all);
    assert_eq!((meeting.missing(0), meeting.missing(2)), (vec![1], vec![3]));
    meeting.come(1, messages(&[(0, Receiver)]), &all);
    assert_eq!(free(&meeting, 4), [0, 1]);
    meeting.leave(2);
    meeting.come(3, messages(&[(2, Sender)]), &all);
    assert!(free(&meeting, 4).is_empty());
}

#[test]
fn a_ring_goes_on_as_one() {
    let meeting = Meeting::new(4);
    for rank in 0..4 {
        assert!(free(&meeting, 4).is_empty());
        meeting.come(rank, messages(&[((rank + 1) % 4, Sender), ((rank + 3) % 4, Receiver)]), &all);
    }
    assert_eq!(free(&meeting, 4).len(), 4);
}

#[test]
fn whom_a_partner_waits_for_is_waited_for() {
    let meeting = Meeting::new(3);
    // Rank 1 needs rank 2 in the same call, so rank 0 would wait for rank 1 inside NCCL.
    meeting.come(0, messages(&[(1, Sender)]), &all);
    meeting.come(1, messages(&[(0, Receiver), (2, Sender)]), &all);
    assert!(free(&meeting, 3).is_empty());
    assert_eq!((meeting.missing(0), meeting.missing(1)), (vec![2], vec![2]));
    meeting.come(2, messages(&[(1, Receiver)]), &all);
    assert_eq!(free(&meeting, 3), [0, 1, 2]);
}

#[test]
fn ranks_of_one_call_go_together() {
    let meeting = Meeting::new(4);
    let with = |rank: usize, need: Need| Need { together: SmallVec::from_slice(&[rank]), ..need };
    meeting.come(0, with(1, messages(&[(2, Sender)])), &all);
    meeting.come(1, with(0, messages(&[(3, Sender)])), &all);
    meeting.come(2, messages(&[(0, Receiver)]), &all);
    assert!(free(&meeting, 4).is_empty());
    assert_eq!((meeting.missing(0), meeting.missing(2)), (vec![3], vec![3]));
    meeting.come(3, messages(&[(1, Receiver)]), &all);
    assert_eq!(free(&meeting, 4), [0, 1, 2, 3]);
}

#[test]
fn messages_beside_a_collective_are_connected_with_it() {
    let meeting = Meeting::new(3);
    meeting.come(0, collective(1, &[(1, Sender)]), &all);
    meeting.come(1, collective(1, &[]), &all);
    assert_eq!((meeting.missing(0), meeting.missing(1)), (vec![2], vec![2]));
    meeting.come(2, collective(1, &[]), &all);
    let (connected, free_ones) = happen(&meeting, 3);
    assert_eq!(free_ones, [0, 1, 2]);
    assert!(connected[1].has(0, Receiver));
    // The other end is at something else.
    meeting.come(0, messages(&[(1, Sender)]), &all);
    meeting.come(1, collective(2, &[]), &all);
    meeting.come(2, collective(2, &[]), &all);
    assert!(free(&meeting, 3).is_empty());
    assert_eq!((meeting.missing(0), meeting.missing(1)), (vec![1], vec![0]));
}

#[test]
fn two_that_group_differently_connect_what_either_needs() {
    let meeting = Meeting::new(2);
    for (one, other) in [
        // One exchanges in a group, the other receives first.
        (messages(&[(1, Sender), (1, Receiver)]), messages(&[(0, Receiver)])),
        // Both send first.
        (messages(&[(1, Sender)]), messages(&[(0, Sender)])),
        // One makes its call in parts.
        (Need { ahead: true, ..messages(&[(1, Sender)]) }, messages(&[(0, Receiver)])),
    ] {
        meeting.come(0, one, &all);
        meeting.come(1, other, &all);
        let (connected, free) = happen(&meeting, 2);
        assert_eq!(free, [0, 1]);
        assert!(connected[0].has(1, Sender) && connected[1].has(0, Receiver));
    }
}

#[test]
fn who_has_waited_for_long_connects_with_those_who_are_there() {
    let meeting = Meeting::new(3);
    meeting.come(0, messages(&[(1, Sender), (2, Receiver)]), &all);
    meeting.come(1, messages(&[(0, Receiver)]), &all);
    meeting.come(2, messages(&[(1, Receiver)]), &all);
    assert!(free(&meeting, 3).is_empty());
    meeting.press(0, &all);
    assert_eq!(free(&meeting, 3), [1]);
    meeting.come(1, messages(&[(2, Sender)]), &all);
    assert_eq!(free(&meeting, 3), [1, 2]);
    assert_eq!(meeting.missing(0), [2]);
    meeting.come(2, messages(&[(0, Sender)]), &all);
    assert_eq!(free(&meeting, 3), [0, 2]);
}

/// A list of messages, which every rank takes in the same order, some of them together.
#[test]
fn random_programs_come_to_their_end() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..300 {
        let size = random.usize(2..6);
        let mut next: Vec<VecDeque<(usize, End)>> = vec![VecDeque::new(); size];
        for _ in 0..20 {
            let (from, to) = (random.usize(..size), random.usize(..size));
            if from != to {
                next[from].push_back((to, Sender));
                next[to].push_back((from, Receiver));
            }
        }
        let meeting = Meeting::new(size);
        let (mut at_it, mut known) = (vec![false; size], vec![Peers::default(); size]);
        while at_it.contains(&true) || next.iter().any(|next| !next.is_empty()) {
            let rank = random.usize(..size);
            if !at_it[rank] && !next[rank].is_empty() {
                let some = random.usize(1..=next[rank].len().min(4));
                let needed: Vec<_> =
                    next[rank].drain(..some).filter(|&(peer, end)| !known[rank].has(peer, end)).collect();
                at_it[rank] = !needed.is_empty();
                if at_it[rank] {
                    meeting.come(rank, messages(&needed), &all);
                }
            }
            let stuck = (0..size).all(|rank| at_it[rank] || next[rank].is_empty());
            if stuck || random.u8(..20) == 0 {
                (0..size).filter(|&rank| at_it[rank]).for_each(|rank| meeting.press(rank, &all));
            }
            let (connected, free) = happen(&meeting, size);
            let moved = !free.is_empty() || connected.iter().any(|peers| !peers.is_empty());
            assert!(moved || !stuck || !at_it.contains(&true), "{meeting:?}");
            for (known, connected) in known.iter_mut().zip(connected) {
                connected.iter().for_each(|(peer, end)| known.add(peer, end));
            }
            free.into_iter().for_each(|rank| at_it[rank] = false);
        }
    }
}

/// An abort has come between: nobody goes on, neither in the call that all have come for nor in one
/// for that alone.
#[test]
fn who_is_not_promised_to_waits() {
    let none = |_: &[usize]| false;
    for needs in [[collective(3, &[]), collective(3, &[])], [messages(&[(1, Sender)]), messages(&[(0, Receiver)])]] {
        let meeting = Meeting::new(2);
        for (rank, need) in needs.iter().enumerate() {
            meeting.come(rank, need.clone(), &none);
        }
        meeting.press(0, &none);
        assert_eq!([0, 1].map(|rank| meeting.step(rank)), [Step::Wait, Step::Wait], "{needs:?}");
        assert_eq!([0, 1].map(|rank| meeting.leave(rank)), [0, 0]);
        for (rank, need) in needs.into_iter().enumerate() {
            meeting.come(rank, need, &all);
        }
        assert_eq!(free(&meeting, 2), [0, 1]);
    }
}
