//! Queries, as bytes: which number each has in the two versions of the protocol, and where a query
//! and its parts end.
//!
//! A query is one byte, and the keys and values that it is about, each behind its length of eight
//! bytes. A connection of the current version begins with a hello of five bytes, which has no
//! answer. The old version has no hello, and other numbers of queries.

use std::ops::Range;

use crate::exchange::store::MAX_VALUE;

/// The beginning of a connection of the current version.
pub(super) const HELLO: [u8; 5] = [0, 0xce, 0xf7, 0x85, 0x3c];

/// The answer to a wait: all keys are set.
pub(super) const STOP_WAITING: u8 = 0;

/// The answer to the end of a wait.
pub(super) const WAIT_CANCELED: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Query {
    Set,
    CompareSet,
    Get,
    Add,
    Check,
    Wait,
    CountKeys,
    Delete,
    Append,
    MultiGet,
    MultiSet,
    CancelWait,
    Ping,
    QueuePush,
    QueuePop,
    QueueLen,
    ListKeys,
}

/// The queries of the current version, by their numbers.
pub(super) const CURRENT: [Option<Query>; 18] = [
    None,
    Some(Query::Set),
    Some(Query::CompareSet),
    Some(Query::Get),
    Some(Query::Add),
    Some(Query::Check),
    Some(Query::Wait),
    Some(Query::CountKeys),
    Some(Query::Delete),
    Some(Query::Append),
    Some(Query::MultiGet),
    Some(Query::MultiSet),
    Some(Query::CancelWait),
    Some(Query::Ping),
    Some(Query::QueuePush),
    Some(Query::QueuePop),
    Some(Query::QueueLen),
    Some(Query::ListKeys),
];

/// The queries of the old version. The last four came after PyTorch 1.13 and before the hello.
const OLD: [Option<Query>; 13] = [
    Some(Query::Set),
    Some(Query::CompareSet),
    Some(Query::Get),
    Some(Query::Add),
    Some(Query::Check),
    Some(Query::Wait),
    Some(Query::CountKeys),
    // Watching a key, which no server supports any more.
    None,
    Some(Query::Delete),
    Some(Query::Append),
    Some(Query::MultiGet),
    Some(Query::MultiSet),
    Some(Query::CancelWait),
];

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Current,
    /// As in PyTorch 1.13.
    Old,
}

impl Dialect {
    const fn queries(self) -> &'static [Option<Query>] {
        match self {
            Self::Current => &CURRENT,
            Self::Old => &OLD,
        }
    }

    pub(super) fn query(self, number: u8) -> Option<Query> {
        *self.queries().get(usize::from(number))?
    }

    /// The number of a query, or 255, which no query has, if this version has no such query.
    pub(super) fn number(self, query: Query) -> u8 {
        let at = self.queries().iter().position(|other| *other == Some(query));
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
    }

    /// The version of a client, by the first bytes that it has sent. `Ok(None)` if they are too
    /// few, and an error if it is neither.
    pub(super) fn of_client(start: &[u8]) -> Result<Option<Self>, ()> {
        match start.first() {
            None => Ok(None),
            Some(0) => match start.first_chunk::<5>() {
                None => Ok(None),
                Some(&HELLO) => Ok(Some(Self::Current)),
                // A set and the length of its key.
                Some(_) => Ok(Some(Self::Old)),
            },
            Some(number) => Self::Old.query(*number).map(|_| Some(Self::Old)).ok_or(()),
        }
    }
}

/// The longest key. Clients may put a prefix before theirs.
pub(super) const MAX_TEXT: usize = 64 << 10;

/// The longest value: the longest of a store, and what clients put behind it.
pub(super) const MAX_BYTES: usize = MAX_VALUE + 64;

/// The most keys of one query, as in PyTorch.
const MAX_COUNT: usize = 128 << 10;

/// The longest query.
const MAX_QUERY: usize = 64 << 20;

/// A part of a query.
#[derive(Debug, Clone, Copy)]
enum Part {
    Text,
    Bytes,
    /// Bytes of a length that is known.
    Plain(usize),
}

/// The parts of a query, and whether they are repeated, behind a count of how often.
fn shape(query: Query) -> (&'static [Part], bool) {
    match query {
        Query::Set | Query::Append | Query::QueuePush => (&[Part::Text, Part::Bytes], false),
        Query::CompareSet => (&[Part::Text, Part::Bytes, Part::Bytes], false),
        Query::Get | Query::Delete | Query::QueuePop | Query::QueueLen => (&[Part::Text], false),
        Query::Add => (&[Part::Text, Part::Plain(8)], false),
        Query::Check | Query::Wait | Query::MultiGet => (&[Part::Text], true),
        Query::MultiSet => (&[Part::Text, Part::Bytes], true),
        Query::CountKeys | Query::CancelWait | Query::ListKeys => (&[], false),
        Query::Ping => (&[Part::Plain(4)], false),
    }
}

/// A query of which a part has come.
#[derive(Debug, Default)]
pub(super) struct Scan {
    query: Option<Query>,
    /// How often its parts are still to come, once the count is known.
    rounds: Option<usize>,
    /// The part that is next.
    next: usize,
    /// Where that part begins.
    at: usize,
    parts: Vec<Range<usize>>,
}

/// A query that has come whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) query: Query,
    pub(super) len: usize,
    parts: Vec<Range<usize>>,
}

impl Whole {
    /// Its parts, which stand in `bytes`.
    pub(super) fn parts<'a>(&self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        self.parts.iter().map(|part| &bytes[part.clone()]).collect()
    }
}

impl Scan {
    /// Goes on in `bytes`, which begin with what was given before. Returns the query once it is
    /// whole, or what is wrong with it.
    pub(super) fn scan(&mut self, dialect: Dialect, bytes: &[u8]) -> Result<Option<Whole>, String> {
        let Some(number) = bytes.first() else { return Ok(None) };
        let query = match self.query {
            Some(query) => query,
            None => dialect.query(*number).ok_or_else(|| format!("expected a query, got {number}"))?,
        };
        if self.query.is_none() {
            self.query = Some(query);
            self.at = 1;
        }
        let (parts, counted) = shape(query);
        let mut rounds = match self.rounds {
            Some(rounds) => rounds,
            None if parts.is_empty() => 0,
            None if counted => match self.length(bytes, MAX_COUNT, "keys")? {
                Some(count) => {
                    self.at += 8;
                    count
                }
                None => return Ok(None),
            },
            None => 1,
        };
        while rounds > 0 {
            self.rounds = Some(rounds);
            let (skip, len) = match parts[self.next] {
                Part::Plain(len) => (0, Some(len)),
                Part::Text => (8, self.length(bytes, MAX_TEXT, "bytes of a key")?),
                Part::Bytes => (8, self.length(bytes, MAX_BYTES, "bytes of a value")?),
            };
            let Some(len) = len else { return Ok(None) };
            let part = self.at + skip..self.at + skip + len;
            if part.end > MAX_QUERY {
                return Err(format!("expected at most {MAX_QUERY} bytes of a query, got more"));
            }
            if part.end > bytes.len() {
                return Ok(None);
            }
            self.at = part.end;
            self.parts.push(part);
            self.next += 1;
            if self.next == parts.len() {
                self.next = 0;
                rounds -= 1;
            }
        }
        let scan = std::mem::take(self);
        Ok(Some(Whole { query, len: scan.at, parts: scan.parts }))
    }

    /// The length or count that stands here, once it has come.
    fn length(&self, bytes: &[u8], max: usize, what: &str) -> Result<Option<usize>, String> {
        let Some(number) = bytes.get(self.at..).and_then(|rest| rest.first_chunk()) else { return Ok(None) };
        let number = u64::from_le_bytes(*number);
        match usize::try_from(number) {
            Ok(number) if number <= max => Ok(Some(number)),
            _ => Err(format!("expected at most {max} {what}, got {number}")),
        }
    }
}

/// A query that is being encoded.
#[derive(Debug)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn count(mut self, count: usize) -> Self {
        self.0.extend(u64::try_from(count).unwrap_or(u64::MAX).to_le_bytes());
        self
    }

    /// Bytes behind their length.
    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        self.count(bytes.len()).plain(bytes)
    }

    /// Bytes of a length that is known.
    pub(super) fn plain(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_queries() {
        assert_eq!(Dialect::Current.query(0), None);
        assert_eq!((Dialect::Current.number(Query::Set), Dialect::Old.number(Query::Set)), (1, 0));
        assert_eq!((Dialect::Current.number(Query::CancelWait), Dialect::Old.number(Query::CancelWait)), (12, 12));
        assert_eq!((Dialect::Current.number(Query::Delete), Dialect::Old.number(Query::Delete)), (8, 8));
        assert_eq!((Dialect::Current.number(Query::ListKeys), Dialect::Old.number(Query::Ping)), (17, 255));
        for dialect in [Dialect::Current, Dialect::Old] {
            for number in 0..=u8::MAX {
                assert!(dialect.query(number).is_none_or(|query| dialect.number(query) == number));
            }
        }
    }

    #[test]
    fn versions_by_their_first_bytes() {
        assert_eq!(HELLO[1..], 0x3C85_F7CE_u32.to_le_bytes());
        assert_eq!(Dialect::of_client(b""), Ok(None));
        assert_eq!(Dialect::of_client(&HELLO[..4]), Ok(None));
        assert_eq!(Dialect::of_client(&HELLO), Ok(Some(Dialect::Current)));
        assert_eq!(Dialect::of_client(&[0, 3, 0, 0, 0]), Ok(Some(Dialect::Old)));
        assert_eq!(Dialect::of_client(&[6]), Ok(Some(Dialect::Old)));
        assert_eq!(Dialect::of_client(b"GET / HTTP/1.1"), Err(()));
    }

    fn text(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text].concat()
    }

    /// A query, its bytes, and the texts in them.
    type Example = (Query, Vec<u8>, Vec<&'static [u8]>);

    fn examples() -> Vec<Example> {
        let two = 2_u64.to_le_bytes();
        vec![
            (Query::Set, [text(b"k"), text(b"")].concat(), vec![b"k", b""]),
            (Query::CompareSet, [text(b"k"), text(b"old"), text(b"new")].concat(), vec![b"k", b"old", b"new"]),
            (Query::Get, text(b"key"), vec![b"key"]),
            (Query::Add, [text(b"k"), vec![7; 8]].concat(), vec![b"k", &[7; 8]]),
            (Query::Wait, [two.to_vec(), text(b"a"), text(b"")].concat(), vec![b"a", b""]),
            (Query::Check, 0_u64.to_le_bytes().to_vec(), vec![]),
            (
                Query::MultiSet,
                [two.to_vec(), text(b"a"), text(b"1"), text(b"b"), text(b"2")].concat(),
                vec![b"a", b"1", b"b", b"2"],
            ),
            (Query::CountKeys, Vec::new(), vec![]),
            (Query::CancelWait, Vec::new(), vec![]),
            (Query::Append, [text(b"k"), text(b"more")].concat(), vec![b"k", b"more"]),
        ]
    }

    #[test]
    fn queries_in_pieces() {
        for dialect in [Dialect::Current, Dialect::Old] {
            for (query, rest, parts) in examples() {
                let bytes = [&[dialect.number(query)], &rest[..], b"next"].concat();
                let (mut scan, len) = (Scan::default(), bytes.len() - 4);
                for end in 0..len {
                    assert_eq!(scan.scan(dialect, &bytes[..end]), Ok(None), "{query:?} {end}");
                }
                let whole = scan.scan(dialect, &bytes).unwrap().unwrap();
                assert_eq!((whole.query, whole.len, whole.parts(&bytes)), (query, len, parts));
                // At once, and with the same scan again.
                assert_eq!(scan.scan(dialect, &bytes).unwrap(), Some(whole));
            }
        }
    }

    #[test]
    fn lengths_beyond_the_limits_are_refused_at_once() {
        let refused = |bytes: &[u8], text: &str| {
            let error = Scan::default().scan(Dialect::Current, bytes).unwrap_err();
            assert!(error.contains(text), "{error}");
        };
        let number = |query| Dialect::Current.number(query);
        refused(&[0], "expected a query, got 0");
        refused(&[200], "expected a query, got 200");
        refused(&[&[number(Query::Get)], &u64::MAX.to_le_bytes()[..]].concat(), "bytes of a key");
        refused(&[&[number(Query::Get)], &(1_u64 << 63).to_le_bytes()[..]].concat(), "bytes of a key");
        refused(&[vec![number(Query::Set)], text(b"k"), u64::MAX.to_le_bytes().to_vec()].concat(), "bytes of a value");
        refused(&[&[number(Query::Wait)], &u64::MAX.to_le_bytes()[..]].concat(), "keys");
        let part = [text(b"k"), text(&vec![0; MAX_BYTES - 64])].concat();
        refused(&[vec![number(Query::MultiSet)], 5_u64.to_le_bytes().to_vec(), part.repeat(4)].concat(), "of a query");
    }

    #[test]
    fn garbage() {
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let dialect = if random.bool() { Dialect::Current } else { Dialect::Old };
            let mut bytes: Vec<u8> = (0..random.usize(..80)).map(|_| random.u8(..)).collect();
            // A valid query with one byte changed.
            if seed % 2 == 0 {
                let mut all = examples();
                let (query, rest, _) = all.swap_remove(random.usize(..all.len()));
                bytes = [&[dialect.number(query)], &rest[..]].concat();
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            let at_once = Scan::default().scan(dialect, &bytes);
            if let Ok(Some(whole)) = &at_once {
                assert!(whole.len <= bytes.len());
                whole.parts(&bytes);
            }
            let (mut scan, end) = (Scan::default(), random.usize(..=bytes.len()));
            let mut by_parts = scan.scan(dialect, &bytes[..end]);
            if by_parts == Ok(None) {
                by_parts = scan.scan(dialect, &bytes);
            }
            assert_eq!(by_parts, at_once, "{bytes:?}");
        }
    }
}
