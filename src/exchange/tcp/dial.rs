//! How a client comes to the server, which may not be there yet.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::message::{Hello, Reception, Welcome};
use super::resolve::resolve;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// How long one try may take: a server that does not answer may be one that is about to end.
const TRY: Duration = Duration::from_secs(5);

/// The longest pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest answer to a hello.
const MAX_RECEPTION: usize = 4096;

/// Why one try failed.
enum Failure {
    /// It may work later.
    Later(String),
    /// It will not.
    Never(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Later(error.to_string())
    }
}

/// Comes to the server at `address` and says `hello`; tries again while nobody answers, until the deadline, or until there
/// is no `hope` that anybody will.
pub(super) fn dial(
    operation: &'static str,
    address: &str,
    hello: &Hello,
    deadline: &Deadline,
    hope: impl Fn() -> bool,
) -> Result<(TcpStream, Welcome)> {
    let mut pause = Duration::from_millis(5);
    loop {
        let why = match once(address, hello, deadline) {
            Ok(connected) => return Ok(connected),
            Err(Failure::Never(reason)) => {
                let reason = format!("rank {} is refused: {reason}", hello.rank);
                return Err(Error::Exchange { operation, key: address.to_owned(), reason });
            }
            Err(Failure::Later(why)) => why,
        };
        if deadline.expired() || !hope() {
            let detail = format!("rank {}: the server of rank 0 at {address} has not come: {why}", hello.rank);
            return Err(deadline.error(operation, detail));
        }
        std::thread::sleep(pause.min(deadline.remaining()));
        pause = (pause * 2).min(PAUSE);
    }
}

fn once(address: &str, hello: &Hello, deadline: &Deadline) -> Result<(TcpStream, Welcome), Failure> {
    let mut why = Failure::Later(format!("{address} has no address"));
    for address in resolve(address, deadline)? {
        let one_try = Deadline::after(deadline.remaining().min(TRY));
        match greet(&address, hello, &one_try) {
            Ok(connected) => return Ok(connected),
            Err(failure) => why = failure,
        }
    }
    Err(why)
}

fn greet(address: &SocketAddr, hello: &Hello, deadline: &Deadline) -> Result<(TcpStream, Welcome), Failure> {
    let mut stream = TcpStream::connect_timeout(address, left(deadline))?;
    if stream.local_addr()? == stream.peer_addr()? {
        // A free port of this host may be given to the very connection that asks for it.
        return Err(Failure::Later("nobody listens".to_owned()));
    }
    stream.set_nodelay(true)?;
    send(&mut stream, &hello.encode(), deadline)?;
    let answer = receive(&mut stream, MAX_RECEPTION, deadline)?;
    match Welcome::decode(&answer) {
        Reception::Welcome(welcome) => Ok((stream, welcome)),
        Reception::Refused(reason) => Err(Failure::Never(reason)),
        Reception::Unknown => Err(Failure::Never("expected a server of an exchange, got something else".to_owned())),
    }
}

/// What is left; not nothing, which sockets do not take for a time.
fn left(deadline: &Deadline) -> Duration {
    deadline.remaining().max(Duration::from_millis(1))
}

/// Sends a frame.
pub(super) fn send(stream: &mut TcpStream, bytes: &[u8], deadline: &Deadline) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?.to_le_bytes();
    // One write, so that short requests are one packet.
    let frame = [&len, bytes].concat();
    let mut rest = &frame[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => rest = &rest[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if deadline.expired() && !rest.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Receives a frame of at most `max` bytes.
pub(super) fn receive(stream: &mut TcpStream, max: usize, deadline: &Deadline) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    fill(stream, &mut len, deadline)?;
    let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
    if len > max {
        let reason = format!("expected at most {max} bytes, got {len}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    // Memory for what has come, and not for what was announced.
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let start = bytes.len();
        bytes.resize(len.min(start + (1 << 20)), 0);
        fill(stream, &mut bytes[start..], deadline)?;
    }
    Ok(bytes)
}

fn fill(stream: &mut TcpStream, mut bytes: &mut [u8], deadline: &Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(deadline)))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed the connection")),
            Ok(len) => bytes = &mut bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if deadline.expired() && !bytes.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}
