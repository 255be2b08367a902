//! What NCCL's own service for reliability and availability (RAS) says: which ranks answer, in whatever process, and how many collectives
//! each has issued.
//!
//! Since 2.24 a thread of each process that uses NCCL belongs to it, and answers on a port of the host whoever speaks lines of text with it;
//! since 2.28.7 in JSON. It gathers that from the other processes, and waits for them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::backend::{Backend, backend};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange;
use crate::nccl::setup::environment;
use crate::version::{Version, running_nccl};

/// Where it listens unless `NCCL_RAS_ADDR` says otherwise.
const DEFAULT: &str = "localhost:28028";

/// The first version that answers in JSON.
const FIRST: Version = Version::new(2, 28, 7);

/// More than that is no answer.
const MOST: usize = 64 << 20;

/// Where it is to be asked.
pub(crate) fn address() -> String {
    environment::said("NCCL_RAS_ADDR").unwrap_or_else(|| DEFAULT.to_owned())
}

/// Where it runs, if it does: in a process that uses NCCL, or where somebody says that there is one.
pub(super) fn place() -> Option<String> {
    if environment::said("NCCL_RAS_ENABLE").is_some_and(|value| value.trim() != "1") {
        return None;
    }
    let runs = || backend() == Backend::Nvidia && running_nccl().is_ok_and(|running| running >= FIRST);
    (environment::said("NCCL_RAS_ADDR").is_some() || runs()).then(address)
}

/// What it answers, in JSON, within `timeout`.
pub(crate) fn ask(operation: &'static str, address: &str, timeout: Duration) -> Result<String> {
    let deadline = Deadline::after(timeout);
    let stream = connect(address, &deadline).map_err(|error| failed(operation, address, &deadline, &error))?;
    let mut talk = Talk { operation, address, deadline, stream, heard: Vec::new() };
    let protocol = talk.say("CLIENT PROTOCOL 2")?;
    if !protocol.to_ascii_uppercase().starts_with("SERVER PROTOCOL ") {
        return Err(talk.wrong("SERVER PROTOCOL", &protocol));
    }
    // What is left of it, once others have been waited for that long, is for those that were slow and the way back.
    let patience = format!("TIMEOUT {}", (timeout / 2).as_secs().max(1));
    let answer = talk.say(&patience)?;
    if answer != "OK" {
        return Err(talk.wrong("OK", &answer));
    }
    let answer = talk.say("SET FORMAT json")?;
    if answer.starts_with("ERROR: Unknown command") {
        let needs = format!("NCCL {FIRST} or newer in the process that answers at {address}");
        return Err(Error::Unsupported { operation, needs });
    }
    if answer != "OK" {
        return Err(talk.wrong("OK", &answer));
    }
    talk.send("STATUS")?;
    while talk.hear()? {}
    let text = String::from_utf8_lossy(&talk.heard).into_owned();
    if text.trim_start().starts_with('{') { Ok(mended(&text)) } else { Err(talk.wrong("JSON", &text)) }
}

fn connect(address: &str, deadline: &Deadline) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "no such address");
    for address in exchange::resolve(address, deadline)? {
        match TcpStream::connect_timeout(&address, remaining(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// What sockets take for a timeout, which must not be zero.
fn remaining(deadline: &Deadline) -> io::Result<Duration> {
    let left = deadline.remaining();
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn failed(operation: &'static str, address: &str, deadline: &Deadline, error: &io::Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            deadline.error(operation, format!("NCCL's RAS service at {address} has not answered"))
        }
        _ => Error::InvalidUsage {
            operation,
            reason: format!("NCCL's RAS service at {address} cannot be asked: {error}"),
        },
    }
}

/// A conversation.
struct Talk<'a> {
    operation: &'static str,
    address: &'a str,
    deadline: Deadline,
    stream: TcpStream,
    /// What was heard, and no line of it taken off.
    heard: Vec<u8>,
}

impl Talk<'_> {
    fn failed(&self, error: &io::Error) -> Error {
        failed(self.operation, self.address, &self.deadline, error)
    }

    fn wrong(&self, expected: &str, got: &str) -> Error {
        let got: String = got.chars().take(80).collect();
        let got = format!("{got:?} from {}", self.address);
        Error::argument(self.operation, "answer of NCCL's RAS service", expected, got)
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let left = remaining(&self.deadline).and_then(|left| self.stream.set_write_timeout(Some(left)));
        let sent = left.and_then(|()| self.stream.write_all(format!("{line}\n").as_bytes()));
        sent.map_err(|error| self.failed(&error))
    }

    /// Waits for more; false when it has hung up.
    fn hear(&mut self) -> Result<bool> {
        let mut bytes = [0; 4096];
        loop {
            let left = remaining(&self.deadline).and_then(|left| self.stream.set_read_timeout(Some(left)));
            match left.and_then(|()| self.stream.read(&mut bytes)) {
                Ok(count) if self.heard.len() + count > MOST => {
                    return Err(self.wrong("an answer of at most 64 MiB", "a longer one"));
                }
                Ok(count) => {
                    self.heard.extend_from_slice(&bytes[..count]);
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// Sends a line, and waits for that which answers it.
    fn say(&mut self, line: &str) -> Result<String> {
        self.send(line)?;
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if !self.hear()? {
                let heard = String::from_utf8_lossy(&self.heard).into_owned();
                return Err(self.wrong("a line", &format!("{heard}, and then nothing")));
            }
        }
    }
}

/// The same, with the comma that NCCL 2.28.7 and 2.28.9 forget where a rank is missing (`ras-json` in the known bugs).
fn mended(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut whole = String::with_capacity(text.len() + 16);
    while let Some(line) = lines.next() {
        whole.push_str(line);
        let is_status = lines.peek().is_some_and(|next| next.trim_start().starts_with("\"status\":"));
        if is_status && !line.ends_with(',') {
            whole.push(',');
        }
        whole.push('\n');
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_that_was_forgotten() {
        let right = "{\n  \"rank\": 1,\n  \"nvml_dev\": 3,\n  \"status\": {\n    \"dead\": true\n  }\n}\n";
        assert_eq!(mended(right), right);
        assert_eq!(mended(&right.replace("3,", "3")), right);
    }
}
