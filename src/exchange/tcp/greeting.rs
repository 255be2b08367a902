//! How a connection begins: the client's [`Hello`], and the server's [`Reply`].
//!
//! If both share a secret, the server first replies with a challenge, a nonce. The client answers
//! with a frame that proves that it knows the secret: a code over that nonce and its hello, which
//! holds a nonce of its own. The welcome then holds the proof of the server. After that, each frame
//! ends with a message authentication code.
//!
//! The encoding of a refusal is the same in all versions, so that a client of another version
//! learns why it is refused.

// Without the feature there are no secrets, so what follows a secret is unreachable.
#![cfg_attr(not(feature = "secret"), allow(unreachable_code, unused_variables))]

use super::secret::{End, FrameCipher, Secret, TAG, Tag};
use crate::exchange::store::{nonce, random};
use crate::exchange::wire::{Reader, Writer};

const MAGIC: &[u8; 8] = b"gpucommX";

/// The version of the protocol. Every change of the encoding raises it.
const VERSION: u32 = 4;

/// The longest frame of a client that has not been admitted.
pub(super) const MAX_HELLO: usize = 1024;

/// The longest name of a job.
pub(super) const MAX_JOB: usize = 256;

/// A number that is drawn for one connection, so that no proof can be used twice.
pub(super) type Nonce = [u8; 32];

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
    /// The number of this start of the rank.
    pub(super) id: u64,
    pub(super) job: String,
    /// The start of the server that the client has met before, or 0.
    pub(super) server: u64,
    /// From a client with a secret: what the server has to prove its own with.
    pub(super) nonce: Option<Nonce>,
}

fn read_nonce(reader: &mut Reader<'_>) -> Option<Nonce> {
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
        writer = writer.u8(self.nonce.is_some().into());
        writer.0.extend(self.nonce.iter().flatten());
        writer.0
    }

    /// The hello in a frame. Otherwise why the client is refused, or `Err(None)` for a client that
    /// does not speak this protocol.
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
            let nonce = match reader.u8()? {
                0 => None,
                1 => Some(read_nonce(&mut reader)?),
                _ => return None,
            };
            reader.end(Self { purpose, rank, size, id, job, server, nonce })
        };
        rest(reader).ok_or(None)
    }
}

fn other_version(version: u32) -> String {
    format!("expected version {VERSION} of the protocol, got {version}, of another version of gpucomm")
}

/// What the server answers to a greeting, as the client understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Welcome {
        /// The number of this start of the server.
        server: u64,
        /// Whether the server is in the process of rank 0, and ends with it.
        at_rank_0: bool,
        /// Proves that the server knows the secret.
        proof: Option<Tag>,
    },
    Refused(String),
    /// The client has to prove over this nonce that it knows the secret.
    Challenge(Nonce),
    /// The server speaks another protocol.
    Unknown,
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let start = |kind| Writer(MAGIC.to_vec()).u32(VERSION).u8(kind);
        match self {
            Self::Welcome { server, at_rank_0, proof } => {
                let mut writer = start(0).u8(proof.is_some().into()).u64(*server).u8((*at_rank_0).into());
                writer.0.extend(proof.iter().flatten());
                writer.0
            }
            Self::Refused(reason) => start(1).text(reason).0,
            Self::Challenge(nonce) => [&start(2).0[..], nonce].concat(),
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
            (Some(VERSION), Some(0)) => Self::read_welcome(reader).unwrap_or(Self::Unknown),
            (Some(VERSION), Some(2)) => {
                read_nonce(&mut reader).and_then(|nonce| reader.end(Self::Challenge(nonce))).unwrap_or(Self::Unknown)
            }
            (Some(version), _) if version != VERSION => Self::Refused(other_version(version)),
            _ => Self::Unknown,
        }
    }

    fn read_welcome(mut reader: Reader<'_>) -> Option<Self> {
        let proved = reader.u8()?;
        let server = reader.u64()?;
        let at_rank_0 = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let proof = match proved {
            0 => None,
            1 => Some(reader.take(TAG)?.try_into().ok()?),
            _ => return None,
        };
        reader.end(Self::Welcome { server, at_rank_0, proof })
    }
}

/// Whom the server admits.
#[derive(Debug)]
pub(super) struct Admission {
    /// The only job, if there is one.
    job: Option<String>,
    /// The number of its ranks. A server without it is no rank, and each job has its own.
    size: Option<usize>,
    secret: Option<Secret>,
    /// The number of this start of the server.
    server: u64,
}

/// A client that has been challenged.
#[derive(Debug)]
pub(super) struct Challenged {
    hello: Hello,
    /// The bytes of its hello.
    said: Vec<u8>,
    nonce: Nonce,
}

/// What the server does with a client, and answers.
#[derive(Debug)]
pub(super) enum Decision {
    Challenge(Box<Challenged>, Vec<u8>),
    /// The frames that follow the welcome are sealed, if there is a cipher.
    Admit(Hello, Option<Box<FrameCipher>>, Vec<u8>),
    Refuse(Vec<u8>),
    /// The client does not speak this protocol, and gets no answer.
    Ignore,
}

impl Admission {
    /// For the ranks of one job, of which rank 0 has the server.
    pub(super) fn new(job: String, size: usize, secret: Option<Secret>) -> Self {
        Self { job: Some(job), size: Some(size), secret, server: nonce() }
    }

    /// For the ranks of this job, or of any, by a server that none of them has.
    pub(super) fn of_jobs(job: Option<String>, secret: Option<Secret>) -> Self {
        Self { job, size: None, secret, server: nonce() }
    }

    /// Whether rank 0 has the server.
    pub(super) fn is_at_rank_0(&self) -> bool {
        self.size.is_some()
    }

    /// Decides about a client by its frame: its hello or, if it has been challenged, its proof.
    pub(super) fn decide(&self, challenged: Option<&Challenged>, frame: &[u8]) -> Decision {
        let decided = match challenged {
            None => self.decide_by_hello(frame),
            Some(challenged) => self.decide_by_proof(challenged, frame),
        };
        decided.unwrap_or_else(|reason| match reason {
            Some(reason) => Decision::Refuse(Reply::Refused(reason).encode()),
            None => Decision::Ignore,
        })
    }

    fn decide_by_hello(&self, frame: &[u8]) -> Result<Decision, Option<String>> {
        let hello = Hello::decode(frame)?;
        match (&self.secret, hello.nonce) {
            (None, None) => {
                self.check(&hello)?;
                let welcome = Reply::Welcome { server: self.server, at_rank_0: self.is_at_rank_0(), proof: None };
                Ok(Decision::Admit(hello, None, welcome.encode()))
            }
            (Some(_), None) => Err(Some("expected a rank with the shared secret, got one without any".to_owned())),
            (None, Some(_)) => Err(Some("expected a rank without a shared secret, got one with a secret".to_owned())),
            (Some(_), Some(_)) => {
                let nonce = random();
                let challenged = Challenged { hello, said: frame.to_vec(), nonce };
                Ok(Decision::Challenge(Box::new(challenged), Reply::Challenge(nonce).encode()))
            }
        }
    }

    fn decide_by_proof(&self, challenged: &Challenged, proof: &[u8]) -> Result<Decision, Option<String>> {
        // A server without a secret challenges nobody.
        let secret = self.secret.as_ref().ok_or(None)?;
        let Challenged { hello, said, nonce } = challenged;
        if !secret.proves(End::Client, &[nonce, said], proof) {
            let reason = "expected a proof of the shared secret, got one that is none: it has another one";
            return Err(Some(reason.to_owned()));
        }
        // Only a client that knows the secret learns which job this is.
        self.check(hello)?;
        let at_rank_0 = self.is_at_rank_0();
        let proof = secret.prove(End::Server, &[nonce, &about(self.server, at_rank_0), said]);
        let welcome = Reply::Welcome { server: self.server, at_rank_0, proof: Some(proof) };
        let cipher = secret.frame_cipher(End::Server, &[nonce, said]);
        Ok(Decision::Admit(hello.clone(), Some(Box::new(cipher)), welcome.encode()))
    }

    /// Refuses a client that is no rank of this exchange.
    fn check(&self, hello: &Hello) -> Result<(), Option<String>> {
        Err(Some(if let Some(job) = self.job.as_ref().filter(|job| **job != hello.job) {
            format!("expected a rank of the job {job:?}, got one of {:?}", hello.job)
        } else if let Some(size) = self.size.filter(|size| *size != hello.size) {
            format!("expected one of {size} ranks, got one of {}", hello.size)
        } else if hello.rank >= hello.size {
            format!("expected a rank less than {}, got {}", hello.size, hello.rank)
        } else if hello.server != 0 && hello.server != self.server {
            "this server has been started anew, and has nothing of what the one before it had".to_owned()
        } else {
            return Ok(());
        }))
    }
}

/// The proof of a client that has said `said`, over the nonce of the server.
pub(super) fn prove(secret: &Secret, nonce: &Nonce, said: &[u8]) -> Vec<u8> {
    secret.prove(End::Client, &[nonce, said]).to_vec()
}

/// What a server says of itself, as far as it proves it.
fn about(server: u64, at_rank_0: bool) -> [u8; 9] {
    let mut bytes = [u8::from(at_rank_0); 9];
    bytes[..8].copy_from_slice(&server.to_le_bytes());
    bytes
}

/// The cipher of the client's connection, if the server has proved that it knows the secret.
/// `server` is the number of its start, and whether it is at rank 0.
pub(super) fn trust(
    secret: &Secret,
    nonce: &Nonce,
    said: &[u8],
    (server, at_rank_0): (u64, bool),
    proof: &[u8],
) -> Option<FrameCipher> {
    let proved = secret.proves(End::Server, &[nonce, &about(server, at_rank_0), said], proof);
    proved.then(|| secret.frame_cipher(End::Client, &[nonce, said]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_are_decoded_as_they_were_encoded() {
        for (purpose, nonce) in [(Purpose::Presence, None), (Purpose::Requests, Some([7; 32]))] {
            let hello = Hello { purpose, rank: 1, size: 4, id: 7, job: "j".to_owned(), server: 3, nonce };
            let bytes = hello.encode();
            assert_eq!(Hello::decode(&bytes), Ok(hello));
            assert!((0..bytes.len()).all(|end| Hello::decode(&bytes[..end]) == Err(None)));
            assert_eq!(Hello::decode(&[&bytes[..], b"x"].concat()), Err(None));
        }
        let welcome = |at_rank_0, proof| Reply::Welcome { server: 5, at_rank_0, proof };
        for said in [
            welcome(true, None),
            welcome(false, Some([9; TAG])),
            Reply::Challenge(random()),
            Reply::Refused("no".into()),
        ] {
            let bytes = said.encode();
            assert_eq!(Reply::decode(&bytes), said);
            assert!((0..bytes.len()).all(|end| Reply::decode(&bytes[..end]) == Reply::Unknown));
        }
        assert_ne!(random(), random());
    }

    /// As version 1 encoded it, which had no secrets.
    #[test]
    fn another_version_is_refused_as_such() {
        let mut hello = MAGIC.to_vec();
        hello.extend([1, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0]);
        hello.extend([0; 8 + 4 + 8]);
        let expected = "expected version 4 of the protocol, got 1, of another version of gpucomm".to_owned();
        assert_eq!(Hello::decode(&hello), Err(Some(expected.clone())));
        // Its welcome, and what it says to who is of another version.
        let welcome = Writer(MAGIC.to_vec()).u32(1).u8(0).u8(0).u64(5).0;
        assert_eq!(Reply::decode(&welcome), Reply::Refused(expected));
        let refused = Writer(MAGIC.to_vec()).u32(1).u8(1).text("expected version 1").0;
        assert_eq!(Reply::decode(&refused), Reply::Refused("expected version 1".to_owned()));
    }

    #[test]
    fn garbage_is_ignored() {
        assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\n\r\n"), Err(None));
        assert_eq!(Reply::decode(b"HTTP/1.1 400 Bad Request"), Reply::Unknown);
    }

    const JOB: &str = "job";

    fn hello(nonce: Option<Nonce>) -> Hello {
        Hello { purpose: Purpose::Requests, rank: 1, size: 2, id: 7, job: JOB.to_owned(), server: 0, nonce }
    }

    fn refused(decision: &Decision) -> String {
        let Decision::Refuse(answer) = decision else { panic!("{decision:?}") };
        match Reply::decode(answer) {
            Reply::Refused(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_secret_a_hello_is_enough() {
        let admission = Admission::new(JOB.to_owned(), 2, None);
        let Decision::Admit(came, None, answer) = admission.decide(None, &hello(None).encode()) else {
            panic!("not admitted")
        };
        assert_eq!(came, hello(None));
        assert_eq!(Reply::decode(&answer), Reply::Welcome { server: admission.server, at_rank_0: true, proof: None });
        let reason = refused(&admission.decide(None, &hello(Some(random())).encode()));
        assert!(reason.contains("expected a rank without a shared secret"), "{reason}");
        let other = Hello { size: 3, ..hello(None) };
        let reason = refused(&admission.decide(None, &other.encode()));
        assert!(reason.contains("expected one of 2 ranks, got one of 3"), "{reason}");
        assert!(matches!(admission.decide(None, b"GET / HTTP/1.1"), Decision::Ignore));
    }

    #[cfg(feature = "secret")]
    mod secrets {
        use super::*;

        fn challenge(admission: &Admission, said: &[u8]) -> (Box<Challenged>, Nonce) {
            match admission.decide(None, said) {
                Decision::Challenge(challenged, answer) => match Reply::decode(&answer) {
                    Reply::Challenge(nonce) => (challenged, nonce),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }

        #[test]
        fn both_ends_prove_that_they_know_it() {
            let secret = Secret::new(b"ours");
            let admission = Admission::new(JOB.to_owned(), 2, Some(secret.clone()));
            let said = hello(Some(random())).encode();
            let (challenged, nonce) = challenge(&admission, &said);
            let decision = admission.decide(Some(&challenged), &prove(&secret, &nonce, &said));
            let Decision::Admit(_, Some(mut theirs), answer) = decision else { panic!("{decision:?}") };
            let Reply::Welcome { server, at_rank_0: true, proof: Some(proof) } = Reply::decode(&answer) else {
                panic!("{answer:?}")
            };
            let mut ours = trust(&secret, &nonce, &said, (server, true), &proof).expect("the server's proof");
            let frame = ours.seal(std::iter::once(&b"get"[..])).unwrap();
            assert_eq!(theirs.open(frame).as_deref(), Some(&b"get"[..]));
            // The proof of another server, or of another connection, is none.
            assert!(trust(&Secret::new(b"theirs"), &nonce, &said, (server, true), &proof).is_none());
            assert!(trust(&secret, &nonce, &hello(Some(random())).encode(), (server, true), &proof).is_none());
            assert!(trust(&secret, &nonce, &said, (server ^ 1, true), &proof).is_none());
            assert!(trust(&secret, &nonce, &said, (server, false), &proof).is_none());
            // Nor is the proof of the client itself.
            assert!(trust(&secret, &nonce, &said, (server, true), &prove(&secret, &nonce, &said)).is_none());
        }

        #[test]
        fn a_client_without_a_proof_is_refused() {
            let secret = Secret::new(b"ours");
            let admission = Admission::new(JOB.to_owned(), 2, Some(secret.clone()));
            let reason = refused(&admission.decide(None, &hello(None).encode()));
            assert!(reason.contains("expected a rank with the shared secret, got one without"), "{reason}");
            let said = hello(Some(random())).encode();
            let (challenged, nonce) = challenge(&admission, &said);
            let right = prove(&secret, &nonce, &said);
            // A proof is of no use a second time, be it for the same hello or for another one.
            let (again, _) = challenge(&admission, &said);
            let other = Hello { rank: 0, ..Hello::decode(&said).unwrap() }.encode();
            let (changed, _) = challenge(&admission, &other);
            for (challenged, proof) in [
                (&challenged, prove(&Secret::new(b"theirs"), &nonce, &said)),
                (&again, right.clone()),
                (&changed, prove(&secret, &nonce, &said)),
                (&challenged, right[..31].to_vec()),
                (&challenged, Vec::new()),
            ] {
                let reason = refused(&admission.decide(Some(challenged), &proof));
                assert!(reason.contains("expected a proof of the shared secret"), "{reason}");
                assert!(!reason.contains("ours"), "{reason}");
            }
            assert!(matches!(admission.decide(Some(&challenged), &right), Decision::Admit(..)));
        }

        #[test]
        fn the_job_is_told_only_after_the_proof() {
            let secret = Secret::new(b"ours");
            let admission = Admission::new(JOB.to_owned(), 2, Some(secret.clone()));
            let said = Hello { job: "another".to_owned(), ..hello(Some(random())) }.encode();
            let (challenged, nonce) = challenge(&admission, &said);
            assert!(!refused(&admission.decide(Some(&challenged), b"no proof")).contains(JOB));
            let reason = refused(&admission.decide(Some(&challenged), &prove(&secret, &nonce, &said)));
            assert!(reason.contains("expected a rank of the job \"job\", got one of \"another\""), "{reason}");
        }
    }
}
