use super::*;
use crate::element::ElementKind;

fn messages(seed: u64, count: usize) -> Vec<Message> {
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count)
        .map(|_| Message {
            element: random.choice(ElementKind::ALL).unwrap().into(),
            count: random.usize(..1 << 40),
            window: random.bool(),
            exchanges: random.u64(..),
            manner: Manner::Plain,
        })
        .collect()
}

fn message(element: ElementKind, count: usize) -> Message {
    Message { element: element.into(), count, window: false, exchanges: 0, manner: Manner::Plain }
}

fn is_empty(pair: &Pair) -> bool {
    pair.list().words.is_empty()
        && pair.entries.iter().flat_map(|line| &line.0).all(|entry| entry.load(Ordering::Relaxed) == 0)
}

#[test]
fn both_ends_pass_the_same_messages_whoever_is_ahead() {
    let (pair, all) = (Pair::new(), messages(fastrand::u64(..), 20_000));
    std::thread::scope(|scope| {
        for (end, seed) in [(End::Sender, 1), (End::Receiver, 2)] {
            let (pair, all) = (&pair, &all);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for (number, &message) in all.iter().enumerate() {
                    match random.u32(..1000) {
                        0 => std::thread::sleep(std::time::Duration::from_millis(1)),
                        1..100 => std::thread::yield_now(),
                        _ => {}
                    }
                    pair.expect(end);
                    assert_eq!(pair.agree(end, message).unwrap().number, number as u64);
                }
            });
        }
    });
    assert_eq!((pair.passed(End::Sender), pair.passed(End::Receiver)), (20_000, 20_000));
    assert!(is_empty(&pair));
}

/// One after the other, so that each way of going over to the list and back is met.
#[test]
fn an_end_may_be_ahead_as_far_as_it_likes() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let (pair, all) = (Pair::new(), messages(seed, 100_000));
    let mut passed = [0, 0];
    let ends = [End::Sender, End::Receiver];
    while passed != [all.len(); 2] {
        let at = random.usize(..2);
        let steps = if random.bool() { random.usize(..5) } else { random.usize(..3 * ENTRIES as usize) };
        // Often just as far as the other end is.
        let until = if random.bool() { passed[at] + steps } else { passed[1 - at].max(passed[at]) };
        while passed[at] < until.min(all.len()) {
            let (this, first) = (all[passed[at]], passed[at] >= passed[1 - at]);
            let waiting = (!first).then(|| Word::new(ends[1 - at], this));
            assert_eq!(pair.waiting(ends[at]).map(|word| word.0 & !Word::LISTED), waiting.map(|word| word.0));
            assert_eq!(pair.agree(ends[at], this), Ok(Met { number: passed[at] as u64, first }));
            passed[at] += 1;
        }
    }
    assert!(is_empty(&pair));
}

#[test]
fn whoever_comes_second_is_refused_where_they_differ() {
    let said = message(ElementKind::F32, 1000);
    for (first, second) in [(End::Sender, End::Receiver), (End::Receiver, End::Sender)] {
        for other in [
            message(ElementKind::I32, 1000),
            message(ElementKind::F32, 1001),
            message(ElementKind::F32, 0),
            message(ElementKind::F64, 1000),
            Message { exchanges: 1, ..said },
        ] {
            // In an entry, in one with a mark, and in the list.
            for before in [0, ENTRIES, 2 * ENTRIES] {
                let pair = Pair::new();
                let right = message(ElementKind::U8, 7);
                (0..before).for_each(|_| assert!(pair.agree(first, right).is_ok()));
                pair.agree(first, said).unwrap();
                (0..ENTRIES).for_each(|_| assert!(pair.agree(first, right).is_ok()));
                (0..before).for_each(|_| assert!(pair.agree(second, right).is_ok()));
                let theirs = pair.agree(second, other).unwrap_err();
                let mine = Word::new(second, other);
                let expected = theirs.against(mine, 5);
                assert!(expected.contains("of 1000 f32") && expected.contains("rank 5"), "{expected}");
                assert_ne!(expected, mine.against(theirs, 5));
                assert_eq!(pair.passed(second), before);
            }
        }
    }
}

#[test]
fn words_tell_all_messages_apart() {
    let seed = fastrand::u64(..);
    let last = Message { exchanges: 255, ..message(ElementKind::F64, (1 << 41) - 1) };
    for message in messages(seed, 1000).into_iter().chain([message(ElementKind::I8, 0), last]) {
        let word = Word::new(End::Sender, message);
        assert!(word.said_by(End::Sender) && word.mirrored().said_by(End::Receiver));
        assert_eq!(word.mirrored(), Word::new(End::Receiver, message));
        assert_eq!(word.0 & Word::LISTED, 0);
        let text = word.against(word, 3);
        assert_eq!(text, format!("send of {} {} to rank 3", message.count, message.element));
        assert_eq!(word.exchanges(), message.exchanges & Word::LAPS);
    }
}

#[test]
fn words_say_which_end_is_further() {
    let at = |exchanges| Word::new(End::Sender, Message { exchanges, ..message(ElementKind::U8, 3) });
    assert!(at(700).against(at(100), 0).ends_with("after 600 more of all_to_all, gather and scatter"));
    assert!(at(2048).against(at(2046), 0).ends_with("after 2 more of all_to_all, gather and scatter"));
    assert!(at(256).against(at(254), 0).ends_with("after 2 more of all_to_all, gather and scatter"));
    assert!(at(254).against(at(256), 0).ends_with("after 2 fewer of all_to_all, gather and scatter"));
    assert!(at(3).is_before(700) && at(2047).is_before(2048 + 300) && !at(700).is_before(3));
    assert!(at(255).is_before(256) && !at(256).is_before(256) && !at(257).is_before(256));
}

/// One end empties an entry at the very moment at which the other, which is ahead as far as there
/// are entries, marks it.
#[test]
fn a_mark_is_not_lost_that_comes_as_its_entry_is_emptied() {
    let all = messages(fastrand::u64(..), ENTRIES as usize + 2);
    let come = |pair: &Pair, end, numbers: std::ops::Range<usize>| {
        for &message in &all[numbers] {
            pair.agree(end, message).unwrap();
        }
    };
    let (full, last) = (ENTRIES as usize, all.len());
    let pairs: Vec<Pair> = (0..300).map(|_| Pair::new()).collect();
    pairs.iter().for_each(|pair| come(pair, End::Sender, 0..full));
    let here = std::sync::atomic::AtomicUsize::new(0);
    let side_by_side = |end, numbers: std::ops::Range<usize>| {
        for (round, pair) in pairs.iter().enumerate() {
            here.fetch_add(1, Ordering::SeqCst);
            while here.load(Ordering::SeqCst) < 2 * (round + 1) {
                std::hint::spin_loop();
            }
            come(pair, end, numbers.clone());
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| side_by_side(End::Sender, full..last));
        scope.spawn(|| side_by_side(End::Receiver, 0..1));
    });
    for pair in &pairs {
        come(pair, End::Receiver, 1..last);
        assert!(is_empty(pair));
    }
}

#[test]
fn words_of_captured_messages_tell_their_memory() {
    const ALL: [Backing; 3] = [Backing::Apart, Backing::Allocated, Backing::Mapped];
    let mut random = fastrand::Rng::with_seed(fastrand::u64(..));
    for (at, own) in ALL.into_iter().enumerate() {
        let counts = [0, 1, (1 << 39) - 1, random.usize(..1 << 39)];
        for (count, (other, theirs)) in
            counts.into_iter().flat_map(|count| ALL.into_iter().enumerate().map(move |of| (count, of)))
        {
            let of = |backing| Message { manner: Manner::Captured(backing), ..message(ElementKind::F32, count) };
            let (sent, wanted) = (Word::new(End::Sender, of(own)), Word::new(End::Receiver, of(theirs)));
            assert_eq!(sent.mirrored() == wanted, at == other);
            assert_eq!((sent.count(), wanted.count()), (count as u64, count as u64));
            let texts = [sent.against(wanted, 3), wanted.against(sent, 2)];
            let plain = [format!("send of {count} f32 to rank 3"), format!("recv of {count} f32 from rank 2")];
            for ((text, plain), (what, backing)) in
                texts.iter().zip(plain).zip([("sent from", own), ("received in", theirs)])
            {
                let memory = format!(", {what} {}", signature::describe_backing(signature::backing_number(backing)));
                let expected = format!("{plain}, captured into a graph{}", if at == other { "" } else { &memory });
                assert_eq!(*text, expected);
            }
            assert_ne!(sent, Word::new(End::Sender, message(ElementKind::F32, count)));
        }
    }
}
