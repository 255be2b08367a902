//! Requests and answers, as bytes.
//!
//! Each message is a frame: its length in four bytes, and that many bytes. A connection begins with
//! a [greeting](super::greeting). After that the client sends one [`Request`] at a time, and the
//! server answers each with a 0 and the result, or a 1 and a reason. If both share a secret, each
//! frame ends with a message authentication code, which its length counts.

use std::sync::Arc;

use crate::exchange::net::server::Piece;
use crate::exchange::store::{MAX_KEY, MAX_KEYS, MAX_VALUE, Swap};
use crate::exchange::wire::{Reader, Writer};

/// The longest request.
pub(super) const MAX_REQUEST: usize = 2 * MAX_VALUE + MAX_KEYS * (MAX_KEY + 4) + 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Set {
        key: &'a str,
        value: &'a [u8],
    },
    Get {
        keys: Vec<&'a str>,
        ms: u32,
    },
    Add {
        key: &'a str,
        by: i64,
    },
    CompareAndSet {
        key: &'a str,
        expected: Option<&'a [u8]>,
        value: &'a [u8],
    },
    Delete {
        key: &'a str,
    },
    Clear {
        prefix: &'a str,
    },
    Ended {
        ids: Vec<u64>,
    },
    /// The rank leaves.
    Bye,
}

impl<'a> Request<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let start = |kind| Writer::default().u8(kind);
        let writer = match self {
            Self::Set { key, value } => start(0).text(key).bytes(value),
            Self::Get { keys, ms } => {
                keys.iter().fold(start(1).u32(*ms).count(keys.len()), |writer, key| writer.text(key))
            }
            Self::Add { key, by } => start(2).text(key).u64(by.cast_unsigned()),
            Self::CompareAndSet { key, expected: None, value } => start(3).text(key).bytes(value).u8(0),
            Self::CompareAndSet { key, expected: Some(expected), value } => {
                start(3).text(key).bytes(value).u8(1).bytes(expected)
            }
            Self::Delete { key } => start(4).text(key),
            Self::Clear { prefix } => start(5).text(prefix),
            Self::Ended { ids } => ids.iter().fold(start(6).count(ids.len()), |writer, id| writer.u64(*id)),
            Self::Bye => start(7),
        };
        writer.0
    }

    /// The request, or what is wrong with it.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        let mut reader = Reader(bytes);
        let request = Self::read(&mut reader).filter(|_| reader.0.is_empty());
        let request = request.ok_or_else(|| format!("expected a request, got {} bytes that are none", bytes.len()))?;
        let (keys, values): (&[&str], &[usize]) = match &request {
            Self::Set { key, value } => (&[key], &[value.len()]),
            Self::CompareAndSet { key, expected, value } => (&[key], &[value.len(), expected.map_or(0, <[u8]>::len)]),
            Self::Get { keys, .. } if keys.len() > MAX_KEYS => {
                return Err(format!("expected at most {MAX_KEYS} keys, got {}", keys.len()));
            }
            Self::Get { keys, .. } => (keys, &[]),
            Self::Add { key, .. } | Self::Delete { key } | Self::Clear { prefix: key } => (&[key], &[]),
            Self::Ended { .. } | Self::Bye => (&[], &[]),
        };
        if let Some(key) = keys.iter().find(|key| !(1..=MAX_KEY).contains(&key.len())) {
            return Err(format!("expected a key of 1 to {MAX_KEY} bytes, got {}", key.len()));
        }
        if let Some(len) = values.iter().find(|len| **len > MAX_VALUE) {
            return Err(format!("expected a value of at most {MAX_VALUE} bytes, got {len}"));
        }
        Ok(request)
    }

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        Some(match reader.u8()? {
            0 => Self::Set { key: reader.text()?, value: reader.bytes()? },
            1 => {
                let ms = reader.u32()?;
                Self::Get { keys: reader.list(Reader::text)?, ms }
            }
            2 => Self::Add { key: reader.text()?, by: reader.u64()?.cast_signed() },
            3 => {
                let (key, value) = (reader.text()?, reader.bytes()?);
                let expected = match reader.u8()? {
                    0 => None,
                    1 => Some(reader.bytes()?),
                    _ => return None,
                };
                Self::CompareAndSet { key, expected, value }
            }
            4 => Self::Delete { key: reader.text()? },
            5 => Self::Clear { prefix: reader.text()? },
            6 => Self::Ended { ids: reader.list(Reader::u64)? },
            7 => Self::Bye,
            _ => return None,
        })
    }
}

/// The answer to a request that has been carried out: its result.
pub(super) fn done(result: Writer) -> Vec<Piece> {
    let mut bytes = vec![0];
    bytes.extend(result.0);
    vec![Piece::Own(bytes)]
}

/// The answer to a request that has not been carried out.
pub(super) fn refused(reason: &str) -> Vec<Piece> {
    vec![Piece::Own(Writer::default().u8(1).text(reason).0)]
}

pub(super) fn swap(swap: &Swap) -> Vec<Piece> {
    done(match swap {
        Swap::Done => Writer::default().u8(0),
        Swap::Found(None) => Writer::default().u8(1),
        Swap::Found(Some(value)) => Writer::default().u8(2).bytes(value),
    })
}

pub(super) fn values(values: Vec<Option<Arc<[u8]>>>) -> Vec<Piece> {
    let mut pieces = done(Writer::default().count(values.len()));
    for value in values {
        match value {
            None => pieces.push(Piece::Own(vec![0])),
            Some(value) => {
                pieces.push(Piece::Own(Writer::default().u8(1).count(value.len()).0));
                pieces.push(Piece::Value(value));
            }
        }
    }
    pieces
}

/// How ranks departed, or `None` for those that have not.
pub(super) fn departures<'a>(departures: impl ExactSizeIterator<Item = Option<&'a str>>) -> Vec<Piece> {
    let start = Writer::default().count(departures.len());
    done(departures.fold(start, |writer, how| match how {
        None => writer.u8(0),
        Some(how) => writer.u8(1).text(how),
    }))
}

/// The result in an answer, or the reason; `None` if it is no answer.
pub(super) fn open(bytes: &[u8]) -> Option<Result<Reader<'_>, &str>> {
    let mut reader = Reader(bytes);
    match reader.u8()? {
        0 => Some(Ok(reader)),
        1 => reader.text().map(Err),
        _ => None,
    }
}

pub(super) fn read_swap(mut reader: Reader<'_>) -> Option<Swap> {
    Some(match reader.u8()? {
        0 => Swap::Done,
        1 => Swap::Found(None),
        2 => Swap::Found(Some(reader.bytes()?.to_vec())),
        _ => return None,
    })
}

pub(super) fn read_values(mut reader: Reader<'_>) -> Option<Vec<Option<Vec<u8>>>> {
    reader.list(|reader| match reader.u8()? {
        0 => Some(None),
        1 => Some(Some(reader.bytes()?.to_vec())),
        _ => None,
    })
}

pub(super) fn read_departures(mut reader: Reader<'_>) -> Option<Vec<Option<String>>> {
    reader.list(|reader| match reader.u8()? {
        0 => Some(None),
        1 => Some(Some(reader.text()?.to_owned())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_decoded_as_they_were_encoded() {
        let requests = [
            Request::Set { key: "k", value: b"" },
            Request::Get { keys: vec!["a", "ü"], ms: 9 },
            Request::Add { key: "k", by: -3 },
            Request::CompareAndSet { key: "k", expected: None, value: b"v" },
            Request::CompareAndSet { key: "k", expected: Some(b""), value: b"v" },
            Request::Delete { key: "k" },
            Request::Clear { prefix: "p/" },
            Request::Ended { ids: vec![1, u64::MAX] },
            Request::Bye,
        ];
        for request in requests {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Ok(request));
            for end in 0..bytes.len() {
                assert!(Request::decode(&bytes[..end]).is_err());
            }
            assert!(Request::decode(&[&bytes[..], b"x"].concat()).is_err());
        }
    }

    #[test]
    fn garbage_is_refused() {
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bytes: Vec<u8> = (0..random.usize(..80)).map(|_| random.u8(..)).collect();
            // A valid request with one byte changed.
            if seed % 2 == 0 {
                bytes = Request::CompareAndSet { key: "key", expected: Some(b"old"), value: b"new" }.encode();
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            if let Ok(request) = Request::decode(&bytes) {
                assert_eq!(request.encode(), bytes);
            }
        }
        assert!(Request::decode(&Request::Add { key: "", by: 1 }.encode()).is_err());
        assert!(Request::decode(&Request::Get { keys: vec!["k"; MAX_KEYS + 1], ms: 0 }.encode()).is_err());
    }
}
