//! What stores over TCP have in common: how a client comes to its server, and how one thread serves many connections.

pub(super) mod accept;
pub(super) mod dial;
pub(super) mod events;
pub(super) mod line;
pub(super) mod listen;
pub(super) mod resolve;
pub(super) mod server;
pub(super) mod serving;
pub(super) mod stream;
pub(super) mod timers;
