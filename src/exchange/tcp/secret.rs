//! A secret that client and server share: how each proves that it has it, and how each marks all that it says after that.
//!
//! HMAC-SHA-256 throughout. What is proved names the one who proves it, so that nobody is answered with what it has said itself, and
//! holds a number that the other end has drawn for this connection alone, so that nothing is of use a second time.

use std::fmt;

use hmac::digest::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::proof::{End, TAG, Tag};

fn keyed(bytes: &[u8]) -> Hmac<Sha256> {
    let mut key = Key::<Hmac<Sha256>>::default();
    // Its digest, so that secrets of different lengths are different ones.
    key[..TAG].copy_from_slice(&Sha256::digest(bytes));
    <Hmac<Sha256> as KeyInit>::new(&key)
}

/// The secret, as a key: its bytes are not kept. Whoever prints it learns nothing.
#[derive(Clone)]
pub(super) struct Secret {
    key: Hmac<Sha256>,
    empty: bool,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self { key: keyed(bytes), empty: bytes.is_empty() }
    }

    /// Whether it has no bytes.
    pub(super) fn is_empty(&self) -> bool {
        self.empty
    }

    /// Over what both ends have said. All parts but the last one have the same length whoever says them.
    fn over(&self, code: u8, said: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.key.clone();
        mac.update(&[code]);
        said.iter().for_each(|part| mac.update(part));
        mac
    }

    fn proof(&self, by: End, said: &[&[u8]]) -> Hmac<Sha256> {
        self.over(if by == End::Client { 1 } else { 2 }, said)
    }

    /// What only this end can say of this connection.
    pub(super) fn prove(&self, by: End, said: &[&[u8]]) -> Tag {
        self.proof(by, said).finalize().into_bytes().into()
    }

    /// Whether that end has proved that it knows the secret. Takes as long whatever is wrong with it.
    pub(super) fn proves(&self, by: End, said: &[&[u8]], tag: &[u8]) -> bool {
        self.proof(by, said).verify_slice(tag).is_ok()
    }

    /// What `end` marks its frames with, and what it holds those of the other end against.
    pub(super) fn seals(&self, end: End, said: &[&[u8]]) -> Seals {
        let seal = |code| Seal { key: keyed(&self.over(code, said).finalize().into_bytes()), count: 0 };
        let (client, server) = (seal(3), seal(4));
        match end {
            End::Client => Seals { ours: client, theirs: server },
            End::Server => Seals { ours: server, theirs: client },
        }
    }
}

/// The key of one direction of one connection, and how many frames have gone that way.
struct Seal {
    key: Hmac<Sha256>,
    count: u64,
}

impl Seal {
    fn next<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> Hmac<Sha256> {
        let mut mac = self.key.clone();
        mac.update(&self.count.to_le_bytes());
        self.count += 1;
        parts.for_each(|part| mac.update(part));
        mac
    }
}

/// The marks of a connection: behind each frame stands one that only who knows the secret can make, for this place in this direction
/// of this connection.
pub(super) struct Seals {
    ours: Seal,
    theirs: Seal,
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seals(..)")
    }
}

impl Seals {
    /// The mark of the next frame that is sent, of these parts.
    pub(super) fn mark<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> Tag {
        self.ours.next(parts).finalize().into_bytes().into()
    }

    /// Takes the mark off the next frame that has come; `false` where it has not the right one.
    #[must_use]
    pub(super) fn open(&mut self, frame: &mut Vec<u8>) -> bool {
        let Some(len) = frame.len().checked_sub(TAG) else { return false };
        let right = self.theirs.next(std::iter::once(&frame[..len])).verify_slice(&frame[len..]).is_ok();
        frame.truncate(len);
        right
    }
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
