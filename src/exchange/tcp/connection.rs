//! One connection as the server has it: bytes that have come and those that are to go.

use std::collections::{HashSet, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use super::events::keep_asking;

/// How much is read of one connection before others have their turn.
const TURN: usize = 4 << 20;

/// A part of an answer. Values are shared with the table, so that many who are sent one cost no memory.
#[derive(Debug)]
pub(super) enum Piece {
    Own(Vec<u8>),
    Value(Arc<[u8]>),
}

impl Piece {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Value(bytes) => bytes,
        }
    }
}

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
    pub(super) stream: TcpStream,
    pub(super) peer: Peer,
    pub(super) waiting: Option<Waiting>,
    /// It ends once all has been sent.
    pub(super) closing: bool,
    /// When it ends if nothing more comes of what it has begun to say.
    pub(super) stale: Option<Instant>,
    input: Vec<u8>,
    output: VecDeque<Piece>,
    sent: usize,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, stale: Instant) -> Self {
        let _ = stream.set_nodelay(true);
        keep_asking(&stream);
        Self {
            stream,
            peer: Peer::Unknown,
            waiting: None,
            closing: false,
            stale: Some(stale),
            input: Vec::new(),
            output: VecDeque::new(),
            sent: 0,
        }
    }

    /// Whether its next request can be answered.
    pub(super) fn listens(&self) -> bool {
        self.waiting.is_none() && !self.closing && self.output.is_empty()
    }

    /// Takes what has come; `false` where the other end has closed.
    pub(super) fn read(&mut self) -> io::Result<bool> {
        let mut part = [0; 64 << 10];
        let mut taken = 0;
        while taken < TURN {
            match self.stream.read(&mut part) {
                Ok(0) => return Ok(false),
                Ok(len) => {
                    self.input.extend_from_slice(&part[..len]);
                    taken += len;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether there are bytes that are no whole frame yet, or have not been looked at.
    pub(super) fn begun(&self) -> bool {
        !self.input.is_empty()
    }

    /// The next whole frame; an error if one is announced that is longer than `max`.
    pub(super) fn frame(&mut self, max: usize) -> Result<Option<Vec<u8>>, String> {
        let Some(len) = self.input.first_chunk::<4>() else { return Ok(None) };
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        if len > max {
            return Err(format!("expected at most {max} bytes, got {len}"));
        }
        if self.input.len() - 4 < len {
            return Ok(None);
        }
        // Who asks again before it was answered keeps to no rule; many small requests at once would keep the others waiting.
        if self.input.len() - 4 > len {
            return Err("expected one request at a time".to_owned());
        }
        let mut frame = std::mem::take(&mut self.input);
        frame.drain(..4);
        Ok(Some(frame))
    }

    /// Puts a frame of these pieces behind what is to go.
    pub(super) fn send(&mut self, pieces: Vec<Piece>) {
        let len: usize = pieces.iter().map(|piece| piece.bytes().len()).sum();
        // A frame holds at most MAX_KEYS values: far below what four bytes count.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.output.push_back(Piece::Own(len.to_le_bytes().to_vec()));
        self.output.extend(pieces);
    }

    /// Whether all has gone.
    pub(super) fn drained(&self) -> bool {
        self.output.is_empty()
    }

    /// Sends what can be sent now; whether the other end has taken any.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        let mut taken = false;
        while let Some(piece) = self.output.front() {
            let bytes = piece.bytes();
            if self.sent == bytes.len() {
                self.output.pop_front();
                self.sent = 0;
                continue;
            }
            match self.stream.write(&bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    self.sent += len;
                    taken = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }
}
