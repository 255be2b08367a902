//! A connection as a client has it: frames that go and come, within a deadline.

use std::io;
use std::net::TcpStream;

use super::proof::TAG;
use super::secret::Seals;
use crate::deadline::Deadline;
use crate::exchange::net::stream::{fill, take, write};

/// A connection to the server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: TcpStream,
    /// Of who shares a secret with the server, once both have proved it.
    pub(super) seals: Option<Seals>,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, seals: None }
    }

    /// Sends a frame.
    pub(super) fn send(&mut self, bytes: &[u8], deadline: &Deadline) -> io::Result<()> {
        let mark = self.seals.as_mut().map(|seals| seals.mark(std::iter::once(bytes)));
        let mark = mark.as_ref().map_or(&[][..], |mark| mark);
        let len = u32::try_from(bytes.len() + mark.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // One write, so that short requests are one packet.
        write(&mut self.stream, &[&len.to_le_bytes(), bytes, mark].concat(), deadline)
    }

    /// Receives a frame of at most `max` bytes.
    pub(super) fn receive(&mut self, max: usize, deadline: &Deadline) -> io::Result<Vec<u8>> {
        let mut len = [0; 4];
        fill(&mut self.stream, &mut len, deadline)?;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        let max = max + if self.seals.is_some() { TAG } else { 0 };
        let mut bytes = take(&mut self.stream, len, max, deadline)?;
        if self.seals.as_mut().is_some_and(|seals| !seals.open(&mut bytes)) {
            let expected = "expected an answer with the mark of the shared secret";
            let reason = format!("{expected}, got one without the right one: it is not of the server");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(bytes)
    }
}
