//! How a client comes to the server, which may not be there yet.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::events::keep_asking;
use super::resolve::resolve;
use super::stream::left;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// How long one try may take: a server that does not answer may be one that is about to end.
const TRY: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(5) };

/// The longest pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Why one try failed.
pub(in crate::exchange) enum Failure {
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

/// Comes to the server at `address` as `rank`, and has `greet` say what is said first; tries again while nobody answers, until the
/// deadline, or until there is no `hope` that anybody will.
pub(in crate::exchange) fn dial<T>(
    operation: &'static str,
    address: &str,
    rank: usize,
    deadline: &Deadline,
    hope: impl Fn() -> bool,
    mut greet: impl FnMut(TcpStream, &Deadline) -> Result<T, Failure>,
) -> Result<T> {
    let mut pause = Duration::from_millis(5);
    loop {
        let why = match once(address, deadline, &mut greet) {
            Ok(connected) => return Ok(connected),
            Err(Failure::Never(reason)) => {
                let reason = format!("rank {rank} is refused: {reason}");
                return Err(Error::Exchange { operation, key: address.to_owned(), reason });
            }
            Err(Failure::Later(why)) => why,
        };
        if deadline.expired() || !hope() {
            let detail = format!("rank {rank}: the server of rank 0 at {address} has not come: {why}");
            return Err(deadline.error(operation, detail));
        }
        std::thread::sleep(pause.min(deadline.remaining()));
        pause = (pause * 2).min(PAUSE);
    }
}

fn once<T>(
    address: &str,
    deadline: &Deadline,
    greet: &mut impl FnMut(TcpStream, &Deadline) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut why = Failure::Later(format!("{address} has no address"));
    for address in resolve(address, deadline)? {
        let one_try = Deadline::after(deadline.remaining().min(TRY));
        match connect(&address, &one_try).and_then(|stream| greet(stream, &one_try)) {
            Ok(connected) => return Ok(connected),
            Err(failure) => why = failure,
        }
    }
    Err(why)
}

/// A connection to somebody else at `address`.
pub(in crate::exchange) fn connect(address: &SocketAddr, deadline: &Deadline) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect_timeout(address, left(deadline))?;
    if stream.local_addr()? == stream.peer_addr()? {
        // A free port of this host may be given to the very connection that asks for it.
        return Err(Failure::Later("nobody listens".to_owned()));
    }
    stream.set_nodelay(true)?;
    keep_asking(&stream);
    Ok(stream)
}
