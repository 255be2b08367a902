//! Valid messages of the store over TCP, with which a fuzzer begins.

use super::super::secret::TAG;
use super::*;

pub(in crate::exchange) fn greetings() -> Vec<Vec<u8>> {
    let hello = |purpose, nonce| Hello { purpose, rank: 1, size: 2, id: 7, job: String::new(), server: 0, nonce };
    let named = Hello { job: "a job".to_owned(), server: 5, ..hello(Purpose::Presence, None) };
    let mut all: Vec<_> = [hello(Purpose::Presence, None), hello(Purpose::Requests, Some([7; 32])), named]
        .iter()
        .map(Hello::encode)
        .collect();
    all.extend(
        [
            Reply::Welcome { server: 5, at_rank_0: true, proof: None },
            Reply::Welcome { server: 5, at_rank_0: false, proof: Some([9; TAG]) },
            Reply::Refused("expected another one".to_owned()),
            Reply::Challenge([7; 32]),
        ]
        .iter()
        .map(Reply::encode),
    );
    all
}

fn all_requests() -> Vec<Vec<u8>> {
    let all = [
        Request::Set { key: "g/1/u/k", value: b"a value" },
        Request::Get { keys: vec!["a", "\u{fc}"], ms: 0 },
        Request::Get { keys: vec!["a", "b"], ms: 60_000 },
        Request::Add { key: "sum", by: -3 },
        Request::CompareAndSet { key: "a", expected: None, value: b"v" },
        Request::CompareAndSet { key: "a", expected: Some(b"v"), value: b"w" },
        Request::Delete { key: "a" },
        Request::Clear { prefix: "g/" },
        Request::Ended { ids: vec![1, u64::MAX] },
        Request::Bye,
    ];
    all.iter().map(Request::encode).collect()
}

pub(in crate::exchange) fn requests() -> Vec<Vec<u8>> {
    use crate::exchange::store::Swap;
    let value = || Some(std::sync::Arc::from(&b"a value"[..]));
    let answers = [
        codec::refused("the store is full"),
        codec::swap(&Swap::Done),
        codec::swap(&Swap::Found(Some(vec![1, 2]))),
        codec::values(vec![value(), None]),
        codec::departures([None, Some("has left")].into_iter()),
    ];
    let joined = answers.iter().map(|pieces| pieces.iter().flat_map(|piece| piece.bytes().to_vec()).collect());
    all_requests().into_iter().chain(joined).collect()
}

/// Scripts: each as one server, the same with a secret, and both where no rank has the server.
pub(in crate::exchange) fn scripts() -> Vec<Vec<u8>> {
    let step =
        |who: u8, what: u8, bytes: &[u8]| [&[who << 4 | what, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let comes = |who: u8| step(who, 2, &[]);
    let all = all_requests().iter().flat_map(|request| [step(0, 5, request), step(0, 7, &[])].concat()).collect();
    let get = Request::Get { keys: vec!["x", "y"], ms: 60_000 }.encode();
    let set = |key| Request::Set { key, value: b"v" }.encode();
    let greeting = &greetings()[0];
    let scripts: [Vec<u8>; 6] = [
        [comes(0), all].concat(),
        // One waits for what another one sets; a third one dies in its wait.
        [
            comes(0),
            comes(1),
            comes(2),
            step(0, 5, &get),
            step(2, 5, &get),
            step(2, 4, &[]),
            step(1, 5, &set("x")),
            step(1, 7, &[]),
            step(1, 5, &set("y")),
            step(0, 7, &[]),
        ]
        .concat(),
        // A rank leaves, and one dies, beside one that waits.
        [
            step(0, 3, &[]),
            step(1, 3, &[]),
            comes(2),
            step(2, 5, &get),
            step(0, 5, &Request::Bye.encode()),
            step(1, 4, &[]),
            step(2, 5, &Request::Ended { ids: vec![0, 1] }.encode()),
        ]
        .concat(),
        // Halves, garbage, what keeps to no rule.
        [
            step(0, 0, &greeting[..9]),
            step(1, 1, greeting),
            step(2, 0, b"GET / HTTP/1.1\r\n\r\n"),
            comes(3),
            step(3, 0, &[9, 0, 0, 0, 1]),
            comes(1),
            step(1, 5, &get),
            step(1, 5, &get),
        ]
        .concat(),
        // Long values, and who takes none.
        [
            comes(0),
            step(0, 6, &[0; 8]),
            step(0, 7, &[]),
            step(0, 6, &[0; 200]),
            comes(1),
            step(1, 5, &Request::Get { keys: vec!["long"; 9], ms: 0 }.encode()),
            step(1, 4, &[]),
        ]
        .concat(),
        // Without the mark that there has to be.
        [comes(0), step(0, 1, &set("x")), comes(0), step(0, 5, &set("x")), step(0, 0, &[0xff; 4])].concat(),
    ];
    scripts.iter().flat_map(|script| [0, 1, 2, 3].map(|mode| [&[mode], &script[..]].concat())).collect()
}
