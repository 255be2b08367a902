//! One connection as the server has it.

use std::collections::HashSet;
use std::net::TcpStream;
use std::time::Instant;

use super::gate::Asked;
use super::proof::TAG;
use super::secret::Seals;
use crate::exchange::net::line::{Line, Piece};

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// It has not said.
    Unknown,
    /// The rank that is there while this is open, by the number of its start.
    Presence(u64),
    Requests,
}

/// Keys that a client waits for.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) keys: Vec<String>,
    pub(super) missing: HashSet<String>,
    pub(super) until: Instant,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) line: Line,
    pub(super) peer: Peer,
    /// Who has not said who it is may have been asked to prove it.
    pub(super) asked: Option<Box<Asked>>,
    /// Of who has proved that it knows the secret.
    pub(super) seals: Option<Box<Seals>>,
    pub(super) waiting: Option<Waiting>,
    /// It ends once all has been sent.
    pub(super) closing: bool,
    /// When it ends if nothing more comes of what it has begun to say.
    pub(super) stale: Option<Instant>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            line: Line::new(stream),
            peer: Peer::Unknown,
            asked: None,
            seals: None,
            waiting: None,
            closing: false,
            stale: None,
        }
    }

    /// Whether its next request can be answered.
    pub(super) fn listens(&self) -> bool {
        self.waiting.is_none() && !self.closing && self.line.drained()
    }

    /// Whether there are bytes that are no whole frame yet, or have not been looked at.
    pub(super) fn begun(&self) -> bool {
        !self.line.input.is_empty()
    }

    /// How many bytes have come of what is no whole frame yet.
    pub(super) fn held(&self) -> usize {
        self.line.input.len()
    }

    /// The next whole frame; an error if one is announced that is longer than `max`, or if it has not the right mark.
    pub(super) fn frame(&mut self, max: usize) -> Result<Option<Vec<u8>>, String> {
        let Some(len) = self.line.input.first_chunk::<4>() else { return Ok(None) };
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        let max = max + if self.seals.is_some() { TAG } else { 0 };
        if len > max {
            return Err(format!("expected at most {max} bytes, got {len}"));
        }
        if self.line.input.len() - 4 < len {
            return Ok(None);
        }
        // Who asks again before it was answered keeps to no rule; many small requests at once would keep the others waiting.
        if self.line.input.len() - 4 > len {
            return Err("expected one request at a time".to_owned());
        }
        let mut frame = std::mem::take(&mut self.line.input);
        frame.drain(..4);
        if self.seals.as_mut().is_some_and(|seals| !seals.open(&mut frame)) {
            let expected = "expected a request with the mark of the shared secret";
            return Err(format!("{expected}, got one without the right one: it is not of this rank"));
        }
        Ok(Some(frame))
    }

    /// Puts a frame of these pieces behind what is to go.
    pub(super) fn send(&mut self, mut pieces: Vec<Piece>) {
        if let Some(seals) = &mut self.seals {
            let mark = seals.mark(pieces.iter().map(Piece::bytes));
            pieces.push(Piece::Own(mark.to_vec()));
        }
        let len: usize = pieces.iter().map(|piece| piece.bytes().len()).sum();
        // A frame holds at most MAX_KEYS values: far below what four bytes count.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.line.put([Piece::Own(len.to_le_bytes().to_vec())]);
        self.line.put(pieces);
    }
}
