//! The shared secret: proofs that an end of a connection knows it, and codes that follow each
//! frame.
//!
//! A proof is an HMAC over everything that both ends have said, and over the end that makes it. So
//! an end cannot be answered with its own proof. What was said holds a nonce of the other end,
//! which is drawn for this connection, so no proof can be used twice.

pub(super) use keyed::{FrameCodes, Secret};

/// The length of a proof and of a code.
pub(super) const TAG: usize = 32;

pub(super) type Tag = [u8; TAG];

/// One of the two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

#[cfg(feature = "secret")]
mod keyed {
    use std::fmt;

    use hmac::digest::Key;
    use hmac::{Hmac, KeyInit, Mac};
    use sha2::{Digest, Sha256};

    use super::{End, TAG, Tag};

    fn keyed(bytes: &[u8]) -> Hmac<Sha256> {
        let mut key = Key::<Hmac<Sha256>>::default();
        // The digest, so that secrets of different lengths have different keys.
        key[..TAG].copy_from_slice(&Sha256::digest(bytes));
        <Hmac<Sha256> as KeyInit>::new(&key)
    }

    /// The secret as a key. Its bytes are not kept, and it prints nothing of them.
    #[derive(Clone)]
    pub(in crate::exchange::tcp) struct Secret {
        key: Hmac<Sha256>,
        is_empty: bool,
    }

    impl fmt::Debug for Secret {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Secret(..)")
        }
    }

    impl Secret {
        pub(in crate::exchange::tcp) fn new(bytes: &[u8]) -> Self {
            Self { key: keyed(bytes), is_empty: bytes.is_empty() }
        }

        pub(in crate::exchange::tcp) fn is_empty(&self) -> bool {
            self.is_empty
        }

        /// An HMAC over `parts`. All but the last part have the same length in each use.
        fn over(&self, purpose: u8, parts: &[&[u8]]) -> Hmac<Sha256> {
            let mut mac = self.key.clone();
            mac.update(&[purpose]);
            parts.iter().for_each(|part| mac.update(part));
            mac
        }

        fn proof(&self, by: End, said: &[&[u8]]) -> Hmac<Sha256> {
            self.over(if by == End::Client { 1 } else { 2 }, said)
        }

        /// The proof of an end of the connection on which `said` was said.
        pub(in crate::exchange::tcp) fn prove(&self, by: End, said: &[&[u8]]) -> Tag {
            self.proof(by, said).finalize().into_bytes().into()
        }

        /// Whether `proof` is the one of that end. Takes the same time whatever is wrong with it.
        pub(in crate::exchange::tcp) fn proves(&self, by: End, said: &[&[u8]], proof: &[u8]) -> bool {
            self.proof(by, said).verify_slice(proof).is_ok()
        }

        /// The codes of a connection, as `end` uses them.
        pub(in crate::exchange::tcp) fn frame_codes(&self, end: End, said: &[&[u8]]) -> FrameCodes {
            let direction =
                |purpose| Direction { key: keyed(&self.over(purpose, said).finalize().into_bytes()), count: 0 };
            let (client, server) = (direction(3), direction(4));
            match end {
                End::Client => FrameCodes { sent: client, received: server },
                End::Server => FrameCodes { sent: server, received: client },
            }
        }
    }

    /// The key of one direction of a connection, and how many frames have gone that way.
    struct Direction {
        key: Hmac<Sha256>,
        count: u64,
    }

    impl Direction {
        fn next<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> Hmac<Sha256> {
            let mut mac = self.key.clone();
            mac.update(&self.count.to_le_bytes());
            self.count += 1;
            parts.for_each(|part| mac.update(part));
            mac
        }
    }

    /// The message authentication codes of a connection. The code of a frame holds for its place in
    /// its direction.
    pub(in crate::exchange::tcp) struct FrameCodes {
        sent: Direction,
        received: Direction,
    }

    impl fmt::Debug for FrameCodes {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("FrameCodes(..)")
        }
    }

    impl FrameCodes {
        /// The code of the next frame that is sent, which consists of these parts.
        pub(in crate::exchange::tcp) fn sign<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> Tag {
            self.sent.next(parts).finalize().into_bytes().into()
        }

        /// The next frame that has come without its code, or `None` if the code is wrong.
        pub(in crate::exchange::tcp) fn verify<'a>(&mut self, frame: &'a [u8]) -> Option<&'a [u8]> {
            let (content, code) = frame.split_at_checked(frame.len().checked_sub(TAG)?)?;
            self.received.next(std::iter::once(content)).verify_slice(code).is_ok().then_some(content)
        }
    }
}

/// Without the feature nobody has a secret.
#[cfg(not(feature = "secret"))]
mod keyed {
    use super::{End, Tag};

    #[derive(Debug, Clone)]
    pub(in crate::exchange::tcp) enum Secret {}

    impl Secret {
        pub(in crate::exchange::tcp) fn is_empty(&self) -> bool {
            match *self {}
        }

        pub(in crate::exchange::tcp) fn prove(&self, _by: End, _said: &[&[u8]]) -> Tag {
            match *self {}
        }

        pub(in crate::exchange::tcp) fn proves(&self, _by: End, _said: &[&[u8]], _proof: &[u8]) -> bool {
            match *self {}
        }

        pub(in crate::exchange::tcp) fn frame_codes(&self, _end: End, _said: &[&[u8]]) -> FrameCodes {
            match *self {}
        }
    }

    #[derive(Debug)]
    pub(in crate::exchange::tcp) enum FrameCodes {}

    impl FrameCodes {
        pub(in crate::exchange::tcp) fn sign<'a>(&mut self, _parts: impl Iterator<Item = &'a [u8]>) -> Tag {
            match *self {}
        }

        pub(in crate::exchange::tcp) fn verify<'a>(&mut self, _frame: &'a [u8]) -> Option<&'a [u8]> {
            match *self {}
        }
    }
}

#[cfg(all(test, feature = "secret"))]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    const SAID: &[&[u8]] = &[b"nonce", b"hello"];

    /// HMAC-SHA-256 as in the second case of RFC 4231, by the code that is used here.
    #[test]
    fn it_is_the_hmac_of_the_standard() {
        let key: [u8; 32] = Sha256::digest(b"Jefe").into();
        let mut padded = [0x36; 64];
        key.iter().zip(&mut padded).for_each(|(key, byte)| *byte ^= key);
        let inner = Sha256::digest([&padded[..], &[1], b"what do ya want ", b"for nothing?"].concat());
        padded.iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
        let outer: Tag = Sha256::digest([&padded[..], &inner].concat()).into();
        assert_eq!(Secret::new(b"Jefe").prove(End::Client, &[b"what do ya want ", b"for nothing?"]), outer);
    }

    #[test]
    fn a_proof_is_of_one_secret_one_end_and_one_connection() {
        let secret = Secret::new(b"a secret");
        let proof = secret.prove(End::Client, SAID);
        assert!(secret.proves(End::Client, SAID, &proof));
        assert!(!secret.proves(End::Server, SAID, &proof), "the proof of an end answers itself");
        assert!(!secret.proves(End::Client, &[b"noncx", b"hello"], &proof));
        assert!(!secret.proves(End::Client, SAID, &proof[..31]));
        assert!(!secret.proves(End::Client, SAID, &[]));
        for other in [&b"a secreT"[..], b"a secret\0", b"", b"a secret "] {
            assert!(!Secret::new(other).proves(End::Client, SAID, &proof), "{other:?}");
        }
    }

    #[test]
    fn a_code_is_of_one_frame_at_one_place() {
        let secret = Secret::new(b"a secret");
        let ends = || (secret.frame_codes(End::Client, SAID), secret.frame_codes(End::Server, SAID));
        let sent = |codes: &mut FrameCodes, frame: &[u8]| {
            let code = codes.sign([&frame[..1], &frame[1..]].into_iter());
            [frame, &code].concat()
        };
        let (mut client, mut server) = ends();
        for frame in [&b"one"[..], b"one", b"other"] {
            assert_eq!(server.verify(&sent(&mut client, frame)), Some(frame));
            assert_eq!(client.verify(&sent(&mut server, frame)), Some(frame));
        }
        // Sent again, too late, changed, cut off, sent back, and on another connection.
        let (mut client, mut server) = ends();
        let first = sent(&mut client, b"first");
        assert!(server.verify(&first).is_some() && server.verify(&first).is_none());
        assert_eq!(ends().1.verify(&sent(&mut client, b"second")), None);
        for at in 0..first.len() {
            let mut changed = first.clone();
            changed[at] ^= 1;
            assert_eq!(ends().1.verify(&changed), None, "{at}");
            assert_eq!(ends().1.verify(&first[..at]), None, "{at}");
        }
        assert_eq!(ends().0.verify(&first), None);
        assert_eq!(secret.frame_codes(End::Server, &[b"noncx", b"hello"]).verify(&first), None);
    }

    #[test]
    fn nothing_of_it_is_printed() {
        let secret = Secret::new(b"hunter2");
        let shown = format!("{secret:?} {:#?}", secret.frame_codes(End::Client, SAID));
        assert_eq!(shown, "Secret(..) FrameCodes(..)");
    }
}
