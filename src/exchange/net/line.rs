//! One connection as a server has it: bytes that have come and those that are to go.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// How much is read of one connection before others have their turn.
const TURN: usize = 4 << 20;

/// A part of an answer. Values are shared with the table, so that many who are sent one cost no memory.
#[derive(Debug)]
pub(in crate::exchange) enum Piece {
    Own(Vec<u8>),
    Value(Arc<[u8]>),
}

impl Piece {
    pub(in crate::exchange) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Value(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
pub(in crate::exchange) struct Line {
    pub(in crate::exchange) stream: TcpStream,
    /// What has come and was not taken.
    pub(in crate::exchange) input: Vec<u8>,
    output: VecDeque<Piece>,
    sent: usize,
}

impl Line {
    pub(in crate::exchange) fn new(stream: TcpStream) -> Self {
        Self { stream, input: Vec::new(), output: VecDeque::new(), sent: 0 }
    }

    /// Takes what has come; `false` where the other end has closed.
    pub(in crate::exchange) fn read(&mut self) -> io::Result<bool> {
        let mut part = [0; 64 << 10];
        let mut taken = 0;
        while taken < TURN {
            match self.stream.read(&mut part) {
                Ok(0) => return Ok(false),
                Ok(len) => {
                    self.input.extend_from_slice(&part[..len]);
                    taken += len;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Puts pieces behind what is to go.
    pub(in crate::exchange) fn put(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        self.output.extend(pieces);
    }

    /// Whether all has gone.
    pub(in crate::exchange) fn drained(&self) -> bool {
        self.output.is_empty()
    }

    /// Sends what can be sent now; whether the other end has taken any.
    pub(in crate::exchange) fn flush(&mut self) -> io::Result<bool> {
        let mut taken = false;
        while let Some(piece) = self.output.front() {
            let bytes = piece.bytes();
            if self.sent == bytes.len() {
                self.output.pop_front();
                self.sent = 0;
                continue;
            }
            match self.stream.write(&bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => {
                    self.sent += len;
                    taken = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }
}
