//! What stands beside the file descriptors of a message.

use crate::exchange::wire::{Reader, Writer};

const MAGIC: &[u8; 8] = b"gpucommF";

/// The longest purpose, in bytes.
pub(super) const MAX_PURPOSE: usize = 256;

/// The most bytes beside a purpose.
pub(super) const MAX_TEXT: usize = 1024;

/// The longest message.
pub(super) const MAX_MESSAGE: usize = MAX_PURPOSE + MAX_TEXT + 64;

/// Who sends how many file descriptors, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::exchange) struct Header {
    /// The number that the receiver has told the ranks of its exchange, and nobody else.
    pub(in crate::exchange) token: u64,
    pub(in crate::exchange) from: usize,
    pub(in crate::exchange) count: usize,
    pub(in crate::exchange) purpose: String,
    /// What the sender says of them.
    pub(in crate::exchange) about: Vec<u8>,
}

impl Header {
    pub(in crate::exchange) fn encode(&self) -> Vec<u8> {
        Writer(MAGIC.to_vec())
            .u64(self.token)
            .count(self.from)
            .count(self.count)
            .text(&self.purpose)
            .bytes(&self.about)
            .0
    }

    pub(in crate::exchange) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        (reader.take(MAGIC.len())? == MAGIC).then_some(())?;
        let (token, from, count) = (reader.u64()?, reader.count()?, reader.count()?);
        let purpose = reader.text()?.to_owned();
        let about = reader.bytes()?.to_vec();
        reader.end(Self { token, from, count, purpose, about })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let header = Header { token: 7, from: 1, count: 2, purpose: "memory".to_owned(), about: vec![1, 2] };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        for end in 0..bytes.len() {
            assert_eq!(Header::decode(&bytes[..end]), None);
        }
    }
}
