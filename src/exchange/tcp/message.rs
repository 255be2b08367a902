//! What client and server say: frames of a length of four bytes and that many bytes.
//!
//! A connection begins with a [`Hello`], which the server answers by a [`Welcome`] or by why not. After that the client asks, one
//! [`Request`] at a time, and the server answers each. A welcome may ask for a proof that the client knows a secret; none does in
//! this version, and a client that is asked for one says that it has none.

use crate::exchange::store::{MAX_KEY, MAX_KEYS, MAX_VALUE};
use crate::exchange::wire::{Reader, Writer};

const MAGIC: &[u8; 8] = b"gpucommX";

/// Raised by every change of what is said.
const VERSION: u32 = 1;

/// The longest frame of a client that has not said who it is.
pub(super) const MAX_HELLO: usize = 1024;

/// The longest name of a job.
pub(super) const MAX_JOB: usize = 256;

/// The longest request.
pub(super) const MAX_REQUEST: usize = 2 * MAX_VALUE + MAX_KEYS * (MAX_KEY + 4) + 64;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It stays open for as long as its rank is there.
    Presence,
    Requests,
}

/// What a client says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) purpose: Purpose,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) id: u64,
    pub(super) job: String,
    /// The server that it has met before, or 0.
    pub(super) server: u64,
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let purpose = match self.purpose {
            Purpose::Presence => 0,
            Purpose::Requests => 1,
        };
        let start = Writer(MAGIC.to_vec()).u32(VERSION).u8(purpose);
        start.count(self.rank).count(self.size).u64(self.id).text(&self.job).u64(self.server).0
    }

    /// What was said, or, for a client that can be answered, why it is refused; `Err(None)` for one that is none of ours.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Option<String>> {
        let mut reader = Reader(bytes);
        if reader.take(MAGIC.len()) != Some(MAGIC) {
            return Err(None);
        }
        let version = reader.u32().ok_or(None)?;
        if version != VERSION {
            return Err(Some(format!("expected version {VERSION} of the protocol, got {version}")));
        }
        let rest = |mut reader: Reader<'_>| {
            let purpose = match reader.u8()? {
                0 => Purpose::Presence,
                1 => Purpose::Requests,
                _ => return None,
            };
            let (rank, size, id) = (reader.count()?, reader.count()?, reader.u64()?);
            let (job, server) = (reader.text()?.to_owned(), reader.u64()?);
            reader.end(Self { purpose, rank, size, id, job, server })
        };
        rest(reader).ok_or(None)
    }

    /// Why a client that speaks our language is none of the exchange of this job and size, at this server.
    pub(super) fn objection(&self, job: &str, size: usize, server: u64) -> Option<String> {
        if self.job != job {
            return Some(format!("expected a rank of the job {job:?}, got one of {:?}", self.job));
        }
        if self.size != size {
            return Some(format!("expected one of {size} ranks, got one of {}", self.size));
        }
        if self.rank >= size {
            return Some(format!("expected a rank less than {size}, got {}", self.rank));
        }
        if self.server != 0 && self.server != server {
            return Some("this server has been started anew, and has nothing of what the one before it had".to_owned());
        }
        None
    }
}

/// What the server answers to who may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Welcome {
    /// A number by which this start of the server is known.
    pub(super) server: u64,
}

/// How the server answered, as far as the client can tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reception {
    Welcome(Welcome),
    Refused(String),
    /// It speaks something else.
    Unknown,
}

impl Welcome {
    pub(super) fn encode(self) -> Vec<u8> {
        // The second 0: no proof is asked for.
        Writer(MAGIC.to_vec()).u32(VERSION).u8(0).u8(0).u64(self.server).0
    }

    pub(super) fn refuse(reason: &str) -> Vec<u8> {
        Writer(MAGIC.to_vec()).u32(VERSION).u8(1).text(reason).0
    }

    pub(super) fn decode(bytes: &[u8]) -> Reception {
        let mut reader = Reader(bytes);
        if reader.take(MAGIC.len()) != Some(MAGIC) {
            return Reception::Unknown;
        }
        match (reader.u32(), reader.u8()) {
            (Some(VERSION), Some(0)) => match (reader.u8(), reader.u64()) {
                (Some(0), Some(server)) => Reception::Welcome(Self { server }),
                (Some(_), _) => Reception::Refused("it asks for a shared secret, and this rank has none".to_owned()),
                _ => Reception::Unknown,
            },
            (Some(_), Some(1)) => reader.text().map_or(Reception::Unknown, |why| Reception::Refused(why.to_owned())),
            (Some(version), _) if version != VERSION => {
                Reception::Refused(format!("expected version {VERSION} of the protocol, got {version}"))
            }
            _ => Reception::Unknown,
        }
    }
}

/// What a client asks.
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
    /// The rank leaves in good order.
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

    /// What is asked, or what is wrong with it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
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
        for purpose in [Purpose::Presence, Purpose::Requests] {
            let hello = Hello { purpose, rank: 1, size: 4, id: 7, job: "j".to_owned(), server: 3 };
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
        assert_eq!(Welcome::decode(&Welcome { server: 5 }.encode()), Reception::Welcome(Welcome { server: 5 }));
        assert_eq!(Welcome::decode(&Welcome::refuse("no")), Reception::Refused("no".to_owned()));
    }

    #[test]
    fn garbage_is_refused() {
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bytes: Vec<u8> = (0..random.usize(..80)).map(|_| random.u8(..)).collect();
            // Near what is right: a message with some bytes changed.
            if seed % 2 == 0 {
                bytes = Request::CompareAndSet { key: "key", expected: Some(b"old"), value: b"new" }.encode();
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            if let Ok(request) = Request::decode(&bytes) {
                assert_eq!(request.encode(), bytes);
            }
            let _ = Hello::decode(&bytes);
            let _ = Welcome::decode(&bytes);
        }
        assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\n\r\n"), Err(None));
        assert!(Request::decode(&Request::Add { key: "", by: 1 }.encode()).is_err());
        assert!(Request::decode(&Request::Get { keys: vec!["k"; MAX_KEYS + 1], ms: 0 }.encode()).is_err());
    }
}
