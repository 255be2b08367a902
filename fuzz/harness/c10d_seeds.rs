//! Valid messages of PyTorch's store, with which a fuzzer begins.

use super::*;

fn number(count: u64) -> Vec<u8> {
    count.to_le_bytes().to_vec()
}

fn text(text: &[u8]) -> Vec<u8> {
    [&number(text.len() as u64)[..], text].concat()
}

/// A query and its parts, as scripts have them.
fn asked() -> [(Query, &'static [u8]); 17] {
    [
        (Query::Set, b"k|a value"),
        (Query::CompareSet, b"k|a value|other"),
        (Query::Get, b"k"),
        (Query::Add, b"n|\x07"),
        (Query::Check, b"k|n"),
        (Query::Wait, b"k|x"),
        (Query::CountKeys, b""),
        (Query::Delete, b"k"),
        (Query::Append, b"k|more"),
        (Query::MultiGet, b"k|n|k"),
        (Query::MultiSet, b"a|1|b|2"),
        (Query::CancelWait, b""),
        (Query::Ping, b"ping"),
        (Query::QueuePush, b"q|first"),
        (Query::QueuePop, b"q"),
        (Query::QueueLen, b"q"),
        (Query::ListKeys, b""),
    ]
}

/// The parts of what is asked.
fn parts(query: Query, parts: &'static [u8]) -> Vec<&'static [u8]> {
    match query {
        Query::Add => vec![b"n", &[7, 0, 0, 0, 0, 0, 0, 0]],
        Query::CountKeys | Query::CancelWait | Query::ListKeys => Vec::new(),
        _ => parts.split(|byte| *byte == BETWEEN).collect(),
    }
}

/// Each query, all of them one after the other, in both protocols; and what is answered.
pub(in crate::exchange) fn messages() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (what, dialect) in [(0, Dialect::Current), (1, Dialect::Old)] {
        let there = asked().into_iter().filter(|(query, _)| dialect.number(*query) != u8::MAX);
        let each: Vec<Vec<u8>> = there.map(|(query, text)| encoded(dialect, query, &parts(query, text))).collect();
        if dialect == Dialect::Current {
            all.extend(each.iter().map(|query| [&[what], &query[..]].concat()));
        }
        all.push([&[what], &each.concat()[..]].concat());
    }
    let value = text(b"a value\x00\x01\x02\x03\x04\x05\x06\x07\x08\x01");
    let answers = [
        (0, [&value[..], &text(b"")].concat()),
        (1, number(3)),
        (2, value.clone()),
        (3, (-7_i64).to_le_bytes().to_vec()),
        (4, [number(1), number(0)].concat()),
        (5, [number(2), text(b"a"), text(b"a/key")].concat()),
        (6, vec![0]),
        (6, vec![1]),
        (7, number(3)),
        (8, [number(3), number(3), text(&[9; 8])].concat()),
    ];
    for (asked, answer) in answers {
        all.extend([0, 1].map(|dialect| [&[asked << 2 | 2 | dialect], &answer[..]].concat()));
    }
    // What an old server is asked about each key, and answers.
    all.push([&[0x3][..], &[0], &value, &[1]].concat());
    all
}

/// Scripts of clients.
pub(in crate::exchange) fn scripts() -> Vec<Vec<u8>> {
    let step =
        |who: u8, what: u8, bytes: &[u8]| [&[who << 4 | what, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let ask = |who: u8, query: Query, parts: &[u8]| {
        let at = queries_of_scripts().iter().position(|one| *one == query).unwrap();
        step(who, 5, &[&[u8::try_from(at).unwrap()], parts].concat())
    };
    let (new, old) = (|who| step(who, 1, &[]), |who| step(who, 2, &[]));
    let listen = |who| step(who, 7, &[]);
    let all: Vec<u8> = asked().iter().flat_map(|(query, parts)| [ask(0, *query, parts), listen(0)].concat()).collect();
    vec![
        [new(0), all.clone()].concat(),
        [old(0), all].concat(),
        // Two wait for what others set, push and add; one dies in its wait, and one gives up.
        [
            new(0),
            old(1),
            new(2),
            new(3),
            ask(0, Query::Wait, b"x|y"),
            ask(1, Query::Wait, b"x"),
            ask(2, Query::Wait, b"x"),
            step(2, 3, &[]),
            ask(3, Query::Set, b"x|v"),
            listen(1),
            ask(3, Query::Add, b"y|\x01"),
            listen(0),
            ask(0, Query::Wait, b"q"),
            ask(3, Query::QueuePush, b"q|v"),
            listen(0),
            ask(0, Query::Wait, b"never"),
            ask(0, Query::CancelWait, b""),
            listen(0),
        ]
        .concat(),
        // Halves, garbage, and one that leaves with what it has said last.
        [
            step(0, 0, &HELLO[..3]),
            step(1, 0, b"GET / HTTP/1.1\r\n\r\n"),
            new(2),
            step(2, 0, &[1, 9, 0, 0, 0, 0, 0, 0, 0, b'k']),
            new(3),
            ask(3, Query::Set, b"last|words"),
            step(3, 4, &[]),
            listen(3),
            step(0, 0, &HELLO[3..]),
            ask(0, Query::Get, b"last"),
            listen(0),
        ]
        .concat(),
        // Long values, and who takes none.
        [
            new(0),
            step(0, 6, &[0; 8]),
            step(0, 6, &[0; 200]),
            old(1),
            ask(1, Query::MultiGet, b"long|long|long"),
            ask(1, Query::Set, b"k|v"),
            listen(1),
            listen(1),
            ask(1, Query::Get, b"long"),
            step(1, 3, &[]),
        ]
        .concat(),
        // Of a queue one who waits is told, and who waits for more than that is told of nothing
        // else.
        [
            new(0),
            new(1),
            ask(0, Query::Wait, b"q|k"),
            ask(1, Query::QueuePush, b"q|1"),
            ask(1, Query::QueuePush, b"q|2"),
            ask(1, Query::Set, b"k|v"),
            listen(0),
            ask(0, Query::QueuePop, b"q"),
            listen(0),
        ]
        .concat(),
        // What there is nothing of.
        [
            old(0),
            ask(0, Query::CancelWait, b""),
            ask(0, Query::Wait, b""),
            ask(0, Query::MultiGet, b""),
            ask(0, Query::Append, b"k|"),
            ask(0, Query::Delete, b"none"),
            listen(0),
        ]
        .concat(),
    ]
}
