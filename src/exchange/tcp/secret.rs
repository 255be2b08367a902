//! The shared secret: proofs that an end of a connection knows it, and the encryption of each frame.
//!
//! A proof is an HMAC over everything that both ends have said, and over the end that makes it. So
//! an end cannot be answered with its own proof. What was said holds a nonce of the other end,
//! which is drawn for this connection, so no proof can be used twice.

pub(super) use keyed::{FrameCipher, Secret};

/// By how much a frame is longer that is sealed.
pub(super) const SEAL: usize = 16;

/// The length of a proof.
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

    use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
    use ring::digest::{SHA256, digest};
    use ring::hmac::{self, HMAC_SHA256};

    use super::{End, SEAL, TAG, Tag};

    /// The secret as a key. Its bytes are not kept, and it prints nothing of them.
    #[derive(Clone)]
    pub(in crate::exchange::tcp) struct Secret {
        key: hmac::Key,
        is_empty: bool,
    }

    impl fmt::Debug for Secret {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Secret(..)")
        }
    }

    impl Secret {
        pub(in crate::exchange::tcp) fn new(bytes: &[u8]) -> Self {
            // Of the digest, so that secrets of different lengths have different keys.
            let key = hmac::Key::new(HMAC_SHA256, digest(&SHA256, bytes).as_ref());
            Self { key, is_empty: bytes.is_empty() }
        }

        pub(in crate::exchange::tcp) fn is_empty(&self) -> bool {
            self.is_empty
        }

        /// An HMAC over `parts`. All but the last part have the same length in each use.
        fn over(&self, purpose: u8, parts: &[&[u8]]) -> Tag {
            let mut mac = hmac::Context::with_key(&self.key);
            mac.update(&[purpose]);
            parts.iter().for_each(|part| mac.update(part));
            let mut tag = [0; TAG];
            tag.copy_from_slice(mac.sign().as_ref());
            tag
        }

        /// The proof of an end of the connection on which `said` was said.
        pub(in crate::exchange::tcp) fn prove(&self, by: End, said: &[&[u8]]) -> Tag {
            self.over(if by == End::Client { 1 } else { 2 }, said)
        }

        /// Whether `proof` is the one of that end. Takes the same time whatever is wrong with it.
        pub(in crate::exchange::tcp) fn proves(&self, by: End, said: &[&[u8]], proof: &[u8]) -> bool {
            let message = [&[if by == End::Client { 1 } else { 2 }], said.concat().as_slice()].concat();
            hmac::verify(&self.key, &message, proof).is_ok()
        }

        /// The cipher of a connection, as `end` uses it.
        pub(in crate::exchange::tcp) fn frame_cipher(&self, end: End, said: &[&[u8]]) -> FrameCipher {
            let direction = |purpose| Direction { key: cipher_key(&self.over(purpose, said)), count: 0 };
            let (client, server) = (direction(3), direction(4));
            match end {
                End::Client => FrameCipher { sent: client, received: server },
                End::Server => FrameCipher { sent: server, received: client },
            }
        }
    }

    fn cipher_key(key: &Tag) -> LessSafeKey {
        // It fails for keys of another length only.
        LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("a key of 32 bytes"))
    }

    /// The cipher of one direction of a connection, whose key is of this connection alone, and how many frames have gone
    /// that way.
    struct Direction {
        key: LessSafeKey,
        count: u64,
    }

    impl Direction {
        /// The nonce of the next frame: none is used twice with a key.
        fn next(&mut self) -> Nonce {
            let mut nonce = [0; 12];
            nonce[..8].copy_from_slice(&self.count.to_le_bytes());
            self.count += 1;
            Nonce::assume_unique_for_key(nonce)
        }
    }

    /// Encrypts and authenticates the frames of a connection. A frame can be opened at its place in its direction only.
    pub(in crate::exchange::tcp) struct FrameCipher {
        sent: Direction,
        received: Direction,
    }

    impl fmt::Debug for FrameCipher {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("FrameCipher(..)")
        }
    }

    impl FrameCipher {
        /// Seals the next frame that is sent, which consists of these parts. `None` if it is too long for the cipher, at 256 GiB.
        pub(in crate::exchange::tcp) fn seal<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
            let parts: Vec<_> = parts.collect();
            let mut frame = Vec::with_capacity(parts.iter().map(|part| part.len()).sum::<usize>() + SEAL);
            parts.into_iter().for_each(|part| frame.extend_from_slice(part));
            let nonce = self.sent.next();
            self.sent.key.seal_in_place_append_tag(nonce, Aad::empty(), &mut frame).ok()?;
            Some(frame)
        }

        /// Opens the next frame that has come. `None` if the other end has not sealed it so.
        pub(in crate::exchange::tcp) fn open(&mut self, mut frame: Vec<u8>) -> Option<Vec<u8>> {
            let nonce = self.received.next();
            let len = self.received.key.open_in_place(nonce, Aad::empty(), &mut frame).ok()?.len();
            frame.truncate(len);
            Some(frame)
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

        pub(in crate::exchange::tcp) fn frame_cipher(&self, _end: End, _said: &[&[u8]]) -> FrameCipher {
            match *self {}
        }
    }

    #[derive(Debug)]
    pub(in crate::exchange::tcp) enum FrameCipher {}

    impl FrameCipher {
        pub(in crate::exchange::tcp) fn seal<'a>(&mut self, _parts: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
            match *self {}
        }

        pub(in crate::exchange::tcp) fn open(&mut self, _frame: Vec<u8>) -> Option<Vec<u8>> {
            match *self {}
        }
    }
}

#[cfg(all(test, feature = "secret"))]
mod tests {
    use ring::digest::{SHA256, digest};

    use super::*;

    fn hash(bytes: &[u8]) -> [u8; 32] {
        digest(&SHA256, bytes).as_ref().try_into().unwrap()
    }

    const SAID: &[&[u8]] = &[b"nonce", b"hello"];

    /// HMAC-SHA-256 as in the second case of RFC 4231, by the code that is used here.
    #[test]
    fn it_is_the_hmac_of_the_standard() {
        let key = hash(b"Jefe");
        let mut padded = [0x36; 64];
        key.iter().zip(&mut padded).for_each(|(key, byte)| *byte ^= key);
        let inner = hash(&[&padded[..], &[1], b"what do ya want ", b"for nothing?"].concat());
        padded.iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
        let outer: Tag = hash(&[&padded[..], &inner].concat());
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
    fn frames_can_be_opened_at_their_place_only() {
        let secret = Secret::new(b"a secret");
        let ends = || (secret.frame_cipher(End::Client, SAID), secret.frame_cipher(End::Server, SAID));
        let sent = |cipher: &mut FrameCipher, frame: &[u8]| {
            let sealed = cipher.seal([&frame[..1], &frame[1..]].into_iter()).unwrap();
            assert_eq!(sealed.len(), frame.len() + SEAL);
            assert!(!sealed.starts_with(frame), "it is not encrypted");
            sealed
        };
        let (mut client, mut server) = ends();
        for frame in [&b"one"[..], b"one", b"other", &[7; 100_000]] {
            assert_eq!(server.open(sent(&mut client, frame)).as_deref(), Some(frame));
            assert_eq!(client.open(sent(&mut server, frame)).as_deref(), Some(frame));
        }
        // Equal frames do not look equal.
        assert_ne!(sent(&mut client, b"same"), sent(&mut client, b"same"));
        assert_ne!(sent(&mut ends().0, b"same"), sent(&mut ends().1, b"same"));
        // Sent again, too late, changed, cut off, sent back, and on another connection.
        let (mut client, mut server) = ends();
        let first = sent(&mut client, b"first");
        assert!(server.open(first.clone()).is_some() && server.open(first.clone()).is_none());
        assert_eq!(ends().1.open(sent(&mut client, b"second")), None);
        for at in 0..first.len() {
            let mut changed = first.clone();
            changed[at] ^= 1;
            assert_eq!(ends().1.open(changed), None, "{at}");
            assert_eq!(ends().1.open(first[..at].to_vec()), None, "{at}");
        }
        assert_eq!(ends().0.open(first.clone()), None);
        assert_eq!(secret.frame_cipher(End::Server, &[b"noncx", b"hello"]).open(first), None);
    }

    #[test]
    fn nothing_of_it_is_printed() {
        let secret = Secret::new(b"hunter2");
        let shown = format!("{secret:?} {:#?}", secret.frame_cipher(End::Client, SAID));
        assert_eq!(shown, "Secret(..) FrameCipher(..)");
    }
}
