//! How a connection begins: a [`Hello`], which the server answers by a [`Reception`].
//!
//! Where both share a secret, the server first asks for a proof by a number that it has drawn; the client answers with a frame that is
//! its proof, over that number and all of its hello, which holds a number of its own; and the welcome has the proof of the server.
//! Then each frame has a mark behind it.
//!
//! How a client is refused stays the same in all versions, so that each end understands that the other one is of another version.

use super::proof::{TAG, Tag};
use crate::exchange::store::nonce;
use crate::exchange::wire::{Reader, Writer};

const MAGIC: &[u8; 8] = b"gpucommX";

/// Raised by every change of what is said.
const VERSION: u32 = 2;

/// The longest frame of a client that has not been let in.
pub(super) const MAX_HELLO: usize = 1024;

/// The longest name of a job.
pub(super) const MAX_JOB: usize = 256;

/// A number that nobody else draws, nor foretells.
pub(super) type Number = [u8; 32];

pub(super) fn draw() -> Number {
    let mut number = [0; 32];
    number.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&nonce().to_le_bytes()));
    number
}

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
    /// Of who has a secret: what the server is to prove its own by.
    pub(super) number: Option<Number>,
}

fn number(reader: &mut Reader<'_>) -> Option<Number> {
    reader.take(32)?.try_into().ok()
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let purpose = match self.purpose {
            Purpose::Presence => 0,
            Purpose::Requests => 1,
        };
        let start = Writer(MAGIC.to_vec()).u32(VERSION).u8(purpose);
        let mut writer = start.count(self.rank).count(self.size).u64(self.id).text(&self.job).u64(self.server);
        writer = writer.u8(self.number.is_some().into());
        writer.0.extend(self.number.iter().flatten());
        writer.0
    }

    /// What was said, or, for a client that can be answered, why it is refused; `Err(None)` for one that is none of ours.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Option<String>> {
        let mut reader = Reader(bytes);
        if reader.take(MAGIC.len()) != Some(MAGIC) {
            return Err(None);
        }
        let version = reader.u32().ok_or(None)?;
        if version != VERSION {
            return Err(Some(other_version(version)));
        }
        let rest = |mut reader: Reader<'_>| {
            let purpose = match reader.u8()? {
                0 => Purpose::Presence,
                1 => Purpose::Requests,
                _ => return None,
            };
            let (rank, size, id) = (reader.count()?, reader.count()?, reader.u64()?);
            let (job, server) = (reader.text()?.to_owned(), reader.u64()?);
            let number = match reader.u8()? {
                0 => None,
                1 => Some(number(&mut reader)?),
                _ => return None,
            };
            reader.end(Self { purpose, rank, size, id, job, server, number })
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

fn other_version(version: u32) -> String {
    format!("expected version {VERSION} of the protocol, got {version}")
}

/// How the server answers, as far as the client can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reception {
    Welcome {
        /// A number by which this start of the server is known.
        server: u64,
        /// That the server knows the secret.
        proof: Option<Tag>,
    },
    Refused(String),
    /// It asks for a proof over this number.
    Asked(Number),
    /// It speaks something else.
    Unknown,
}

impl Reception {
    pub(super) fn encode(&self) -> Vec<u8> {
        let start = |kind| Writer(MAGIC.to_vec()).u32(VERSION).u8(kind);
        match self {
            Self::Welcome { server, proof } => {
                let mut writer = start(0).u8(proof.is_some().into()).u64(*server);
                writer.0.extend(proof.iter().flatten());
                writer.0
            }
            Self::Refused(reason) => start(1).text(reason).0,
            Self::Asked(number) => [&start(2).0[..], number].concat(),
            Self::Unknown => Vec::new(),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let mut reader = Reader(bytes);
        if reader.take(MAGIC.len()) != Some(MAGIC) {
            return Self::Unknown;
        }
        match (reader.u32(), reader.u8()) {
            (Some(_), Some(1)) => reader.text().map_or(Self::Unknown, |why| Self::Refused(why.to_owned())),
            (Some(VERSION), Some(0)) => Self::welcome(reader).unwrap_or(Self::Unknown),
            (Some(VERSION), Some(2)) => {
                number(&mut reader).and_then(|number| reader.end(Self::Asked(number))).unwrap_or(Self::Unknown)
            }
            (Some(version), _) if version != VERSION => Self::Refused(other_version(version)),
            _ => Self::Unknown,
        }
    }

    fn welcome(mut reader: Reader<'_>) -> Option<Self> {
        let proved = reader.u8()?;
        let server = reader.u64()?;
        let proof = match proved {
            0 => None,
            1 => Some(reader.take(TAG)?.try_into().ok()?),
            _ => return None,
        };
        reader.end(Self::Welcome { server, proof })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        for (purpose, number) in [(Purpose::Presence, None), (Purpose::Requests, Some([7; 32]))] {
            let hello = Hello { purpose, rank: 1, size: 4, id: 7, job: "j".to_owned(), server: 3, number };
            let bytes = hello.encode();
            assert_eq!(Hello::decode(&bytes), Ok(hello));
            assert!((0..bytes.len()).all(|end| Hello::decode(&bytes[..end]) == Err(None)));
            assert_eq!(Hello::decode(&[&bytes[..], b"x"].concat()), Err(None));
        }
        let welcome = |proof| Reception::Welcome { server: 5, proof };
        for said in [welcome(None), welcome(Some([9; TAG])), Reception::Asked(draw()), Reception::Refused("no".into())]
        {
            let bytes = said.encode();
            assert_eq!(Reception::decode(&bytes), said);
            assert!((0..bytes.len()).all(|end| Reception::decode(&bytes[..end]) == Reception::Unknown));
        }
        assert_ne!(draw(), draw());
    }

    /// As version 1 said it, which had no secrets.
    #[test]
    fn another_version_is_understood_to_be_one() {
        let mut hello = MAGIC.to_vec();
        hello.extend([1, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0]);
        hello.extend([0; 8 + 4 + 8]);
        let expected = "expected version 2 of the protocol, got 1".to_owned();
        assert_eq!(Hello::decode(&hello), Err(Some(expected.clone())));
        // Its welcome, and what it says to who is of another version.
        let welcome = Writer(MAGIC.to_vec()).u32(1).u8(0).u8(0).u64(5).0;
        assert_eq!(Reception::decode(&welcome), Reception::Refused(expected));
        let refused = Writer(MAGIC.to_vec()).u32(1).u8(1).text("expected version 1").0;
        assert_eq!(Reception::decode(&refused), Reception::Refused("expected version 1".to_owned()));
    }

    #[test]
    fn garbage_is_none_of_ours() {
        assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\n\r\n"), Err(None));
        assert_eq!(Reception::decode(b"HTTP/1.1 400 Bad Request"), Reception::Unknown);
    }
}
