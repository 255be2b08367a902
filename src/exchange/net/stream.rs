//! Bytes to and from a connection, until a deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::deadline::Deadline;

/// How much memory is taken at once for what was announced and has not come.
const PART: usize = 1 << 20;

/// What is left; not nothing, which sockets do not take for a time.
pub(super) fn left(deadline: &Deadline) -> Duration {
    deadline.remaining().max(Duration::from_millis(1))
}

/// Sends all of `bytes`.
pub(in crate::exchange) fn write(stream: &mut TcpStream, mut bytes: &[u8], deadline: &Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if deadline.expired() && !bytes.is_empty() {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Receives as many bytes as `bytes` has room for.
pub(in crate::exchange) fn fill(stream: &mut TcpStream, mut bytes: &mut [u8], deadline: &Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(deadline)))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server has closed the connection")),
            Ok(len) => bytes = &mut bytes[len..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if deadline.expired() && !bytes.is_empty() {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Receives `len` bytes, with memory for what has come and not for what was announced; refuses more than `max`.
pub(in crate::exchange) fn take(
    stream: &mut TcpStream,
    len: usize,
    max: usize,
    deadline: &Deadline,
) -> io::Result<Vec<u8>> {
    if len > max {
        let reason = format!("expected at most {max} bytes, got {len}");
        return Err(io::Error::new(ErrorKind::InvalidData, reason));
    }
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let start = bytes.len();
        bytes.resize(len.min(start + PART), 0);
        fill(stream, &mut bytes[start..], deadline)?;
    }
    Ok(bytes)
}

/// Whether `error` says that the other end has closed the connection.
pub(in crate::exchange) fn closed(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// Whether `error` says that time was up.
pub(in crate::exchange) fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
