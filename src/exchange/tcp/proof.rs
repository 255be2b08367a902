//! What is proved of a connection by a shared secret, be there one or not.

/// The bytes of a proof, and of a mark.
pub(super) const TAG: usize = 32;

pub(super) type Tag = [u8; TAG];

/// One of the two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}
