//! Values as they lie at the server.
//!
//! The server's compare-and-set says what is there afterwards, and neither who has set it nor whether there was nothing before. So no two
//! values that are set are equal, and none is empty: behind each stands a zero, eight bytes that were drawn for it, and a one.
//! A number in front of them is still one to the server's addition, which reads as far as there are digits; what that leaves is a
//! number without such an end.

use crate::exchange::store::nonce;

const START: u8 = 0;
const END: u8 = 1;

/// How long the end of a value is.
const LEN: usize = 10;

/// A value to be set, which is equal to no other one.
pub(super) fn seal(value: &[u8]) -> Vec<u8> {
    [value, &[START], &nonce().to_le_bytes(), &[END]].concat()
}

/// The value that lies at the server; `None` for an empty one, which none of us has set, and some servers send for what is not there.
pub(super) fn open(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    if bytes.is_empty() {
        return None;
    }
    if let Some(len) = bytes.len().checked_sub(LEN)
        && bytes[len] == START
        && bytes.last() == Some(&END)
    {
        bytes.truncate(len);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened() {
        for value in [&b""[..], b"5", b"\0\0", b"\x01", &[0; 10], &[1; 10], &[7; 300]] {
            assert_eq!(open(seal(value)).as_deref(), Some(value));
            assert_ne!(seal(value), seal(value));
            // Nor is one mistaken that looks like one of ours.
            assert_eq!(open(seal(&seal(value))).map(|value| value.len()), Some(value.len() + LEN));
        }
        assert_eq!(open(Vec::new()), None);
        assert_eq!(open(b"-12".to_vec()).as_deref(), Some(&b"-12"[..]));
    }
}
