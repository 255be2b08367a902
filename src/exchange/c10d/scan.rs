//! Where a query ends, and where its parts lie, found while its bytes come.

use std::ops::Range;

use super::dialect::{Dialect, Query};
use crate::exchange::store::MAX_VALUE;

/// The longest key, which may be that of a client with a prefix.
pub(super) const MAX_TEXT: usize = 64 << 10;

/// The longest value: the longest of a store, and what its clients put behind it.
pub(super) const MAX_BYTES: usize = MAX_VALUE + 64;

/// The most keys of one query, as PyTorch has it.
const MAX_COUNT: usize = 128 << 10;

/// The longest query.
const MAX_QUERY: usize = 64 << 20;

/// A part of a query.
#[derive(Debug, Clone, Copy)]
enum Part {
    Text,
    Bytes,
    /// Of a length that is known.
    Plain(usize),
}

/// The parts of a query, and whether a count stands before them of how often they come.
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

/// A query that has come in part.
#[derive(Debug, Default)]
pub(super) struct Scan {
    query: Option<Query>,
    /// How often its parts are still to come, once that is known.
    rounds: Option<usize>,
    /// The next of the parts.
    next: usize,
    /// How far it has been looked at.
    at: usize,
    parts: Vec<Range<usize>>,
}

/// A query that has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) query: Query,
    pub(super) len: usize,
    parts: Vec<Range<usize>>,
}

impl Whole {
    /// Its parts, in the bytes that it was found in.
    pub(super) fn parts<'a>(&self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        self.parts.iter().map(|part| &bytes[part.clone()]).collect()
    }
}

impl Scan {
    /// Goes on in `bytes`, which begin as they did before: the query once it has come, or what is wrong with it.
    pub(super) fn go_on(&mut self, dialect: Dialect, bytes: &[u8]) -> Result<Option<Whole>, String> {
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

    /// The length or the count that stands here, once it has come.
    fn length(&self, bytes: &[u8], max: usize, what: &str) -> Result<Option<usize>, String> {
        let Some(number) = bytes.get(self.at..).and_then(|rest| rest.first_chunk()) else { return Ok(None) };
        let number = u64::from_le_bytes(*number);
        match usize::try_from(number) {
            Ok(number) if number <= max => Ok(Some(number)),
            _ => Err(format!("expected at most {max} {what}, got {number}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn queries_that_come_in_pieces() {
        for dialect in [Dialect::Today, Dialect::Old] {
            for (query, rest, parts) in examples() {
                let bytes = [&[dialect.number(query)], &rest[..], b"next"].concat();
                let (mut scan, len) = (Scan::default(), bytes.len() - 4);
                for end in 0..len {
                    assert_eq!(scan.go_on(dialect, &bytes[..end]), Ok(None), "{query:?} {end}");
                }
                let whole = scan.go_on(dialect, &bytes).unwrap().unwrap();
                assert_eq!((whole.query, whole.len, whole.parts(&bytes)), (query, len, parts));
                // At once, too, and with the same scan again.
                assert_eq!(scan.go_on(dialect, &bytes).unwrap(), Some(whole));
            }
        }
    }

    #[test]
    fn what_is_too_much_is_refused_before_it_comes() {
        let refused = |bytes: &[u8], text: &str| {
            let error = Scan::default().go_on(Dialect::Today, bytes).unwrap_err();
            assert!(error.contains(text), "{error}");
        };
        let number = |query| Dialect::Today.number(query);
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
            let dialect = if random.bool() { Dialect::Today } else { Dialect::Old };
            let mut bytes: Vec<u8> = (0..random.usize(..80)).map(|_| random.u8(..)).collect();
            // Near what is right: a query with one byte changed.
            if seed % 2 == 0 {
                let mut all = examples();
                let (query, rest, _) = all.swap_remove(random.usize(..all.len()));
                bytes = [&[dialect.number(query)], &rest[..]].concat();
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            let at_once = Scan::default().go_on(dialect, &bytes);
            if let Ok(Some(whole)) = &at_once {
                assert!(whole.len <= bytes.len());
                whole.parts(&bytes);
            }
            let (mut scan, end) = (Scan::default(), random.usize(..=bytes.len()));
            let mut by_parts = scan.go_on(dialect, &bytes[..end]);
            if by_parts == Ok(None) {
                by_parts = scan.go_on(dialect, &bytes);
            }
            assert_eq!(by_parts, at_once, "{bytes:?}");
        }
    }
}
