//! File descriptors that pass between the processes of one host.

mod socket;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;

pub use self::socket::MAX_FDS;
use self::socket::{accept, connect, listener, receive, send, stranger, wait};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::handle::Exchange;
use crate::exchange::owner_process::OwnerProcess;
use crate::exchange::store::{check_rank, nonce};
use crate::exchange::view::{GRACE, LOOK};
use crate::exchange::wire::{Reader, Writer};
use crate::lock::{Mutex, MutexGuard};

/// The longest path of a Unix socket.
const MAX_PATH: usize = 107;

/// How long a process that has connected may send nothing. Ranks send at once.
const SILENCE: Duration = Duration::from_secs(5);

/// The most processes that have connected and sent nothing. The oldest one is closed when another
/// one connects.
const STRANGERS: usize = 64;

/// How many reasons for refusals an error lists.
const REASONS: usize = 4;

const MAGIC: &[u8; 8] = b"gpucommF";

/// The longest purpose, in bytes.
const MAX_PURPOSE: usize = 256;

/// The most bytes beside a purpose.
const MAX_TEXT: usize = 1024;

/// The longest message.
const MAX_MESSAGE: usize = MAX_PURPOSE + MAX_TEXT + 64;

/// Who sends how many file descriptors, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::exchange) struct Header {
    /// The number that only the ranks of the receiver's exchange know.
    pub(in crate::exchange) token: u64,
    pub(in crate::exchange) from: usize,
    pub(in crate::exchange) count: usize,
    pub(in crate::exchange) purpose: String,
    /// What the sender says about them.
    pub(in crate::exchange) about: Vec<u8>,
}

impl Header {
    pub(in crate::exchange) fn encode(&self) -> Vec<u8> {
        Writer(MAGIC.to_vec())
            .u64(self.token)
            .count(self.from)
            .count(self.count)
            .text(&self.purpose)
            .bytes(&self.about)
            .0
    }

    pub(in crate::exchange) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        (reader.take(MAGIC.len())? == MAGIC).then_some(())?;
        let (token, from, count) = (reader.u64()?, reader.count()?, reader.count()?);
        let purpose = reader.text()?.to_owned();
        let about = reader.bytes()?.to_vec();
        reader.end(Self { token, from, count, purpose, about })
    }
}

/// Passes file descriptors between the ranks of an exchange that run on one host, over Unix
/// sockets.
///
/// Each rank has a socket in a directory, so that containers which share that directory reach each
/// other. A message names its rank and purpose, and holds a number that only the ranks of this
/// exchange know. The kernel confirms that the sender is a process of the same user, which must be
/// the same in all containers.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::fd::AsFd;
/// use gpucomm::exchange::{Exchange, FdSocket, Threads};
///
/// # fn main() -> gpucomm::Result<()> {
/// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
/// let socket = FdSocket::new(&exchange, std::env::temp_dir())?;
/// let (mut reader, writer) = std::io::pipe().expect("a pipe");
/// // To itself, as there is no other rank here.
/// socket.send(0, "greetings", &[writer.as_fd()])?;
/// drop(writer);
///
/// let fds = socket.receive(0, "greetings")?;
/// let mut writer = std::fs::File::from(fds.into_iter().next().expect("one descriptor"));
/// writer.write_all(b"hello").expect("it is open");
/// drop(writer);
/// let mut text = String::new();
/// reader.read_to_string(&mut text).expect("an end");
/// assert_eq!(text, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FdSocket {
    exchange: Exchange,
    socket: OwnedFd,
    path: PathBuf,
    token: u64,
    owner: OwnerProcess,
    /// The socket and the number of each rank.
    peers: Vec<(PathBuf, u64)>,
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// Processes that have connected and sent nothing yet.
    silent: Vec<(OwnedFd, Instant)>,
    /// Messages that have come and were not asked for yet.
    messages: Vec<(Header, Vec<OwnedFd>)>,
    /// Why messages were refused: the last [`REASONS`] different reasons.
    refused: Vec<String>,
}

impl Inbox {
    /// Keeps why a message was refused.
    fn refuse(&mut self, reason: String) {
        self.refused.retain(|earlier| *earlier != reason);
        if self.refused.len() == REASONS {
            self.refused.remove(0);
        }
        self.refused.push(reason);
    }
}

impl FdSocket {
    /// Makes the socket of this rank in `directory`, and gets the paths of the others. All ranks
    /// must call it within the timeout of the exchange, which also limits [`send`](Self::send) and
    /// [`receive`](Self::receive).
    ///
    /// Paths of Unix sockets have at most 107 bytes, of which about 30 are added here.
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if the path of the directory is too long,
    /// [`Error::Exchange`] if no socket can be made there, and the errors of
    /// [`Exchange::all_gather`].
    pub fn new(exchange: &Exchange, directory: impl AsRef<Path>) -> Result<Self> {
        let operation = "FdSocket::new";
        let token = nonce();
        let path = directory.as_ref().join(format!("gpucomm-{:016x}.sock", nonce()));
        let len = path.as_os_str().len();
        let made = if len > MAX_PATH {
            let expected = format!("a socket's path of at most {MAX_PATH} bytes");
            Err(Error::argument(operation, "directory", expected, format_args!("{len}: {}", path.display())))
        } else {
            listener(&path).map_err(|error| failed(operation, &path, &error))
        };
        // A rank without a socket takes part all the same: the others wait for it, and go on with
        // the next round.
        let mine = made.as_ref().map(|_| Writer::default().u64(token).bytes(path.as_os_str().as_bytes()).0);
        let all = exchange.all_gather(mine.as_deref().unwrap_or_default());
        let socket = made?;
        let mut this = Self {
            exchange: exchange.clone(),
            socket,
            path,
            token,
            owner: OwnerProcess::this(),
            peers: Vec::new(),
            inbox: Mutex::default(),
        };
        for (rank, bytes) in all?.iter().enumerate() {
            let mut reader = Reader(bytes);
            let peer = reader.u64().and_then(|token| Some((reader.bytes()?.to_vec(), token)));
            let (path, token) = peer.ok_or_else(|| Error::Exchange {
                operation,
                key: format!("rank {rank}"),
                reason: format!("expected the path of a socket, got {} bytes that are none", bytes.len()),
            })?;
            this.peers.push((PathBuf::from(std::ffi::OsString::from_vec(path)), token));
        }
        Ok(this)
    }

    /// The exchange whose ranks it is for.
    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Sends 1 to [`MAX_FDS`] file descriptors to a rank, which asks for them by a purpose of at
    /// most 256 bytes.
    ///
    /// It returns when the kernel has them. They stay open for the receiver when the sender closes
    /// its own.
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if `to` is out of range, the purpose is too long, or
    /// there are no descriptors or too many. Returns [`Error::Departed`] if the rank has ended,
    /// [`Error::Timeout`] if it does not take the messages that were sent before, and
    /// [`Error::Exchange`] if its socket cannot be reached, or belongs to another user.
    pub fn send(&self, to: usize, purpose: &str, fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.send_as("FdSocket::send", to, purpose, &[], fds)
    }

    /// As [`send`](Self::send), with up to 1024 bytes that describe the descriptors.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, FdSocket, Threads};
    /// # use std::os::fd::AsFd;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// let socket = FdSocket::new(&exchange, std::env::temp_dir())?;
    /// let file = std::fs::File::open("/dev/zero").expect("it is there");
    /// socket.send_with(0, "weights", b"all of them", &[file.as_fd()])?;
    /// let (about, fds) = socket.receive_with(0, "weights")?;
    /// assert_eq!((about, fds.len()), (b"all of them".to_vec(), 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`Error::InvalidArgument`] if there are more bytes.
    pub fn send_with(&self, to: usize, purpose: &str, about: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.send_as("FdSocket::send_with", to, purpose, about, fds)
    }

    fn send_as(
        &self,
        operation: &'static str,
        to: usize,
        purpose: &str,
        about: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<()> {
        check_rank(operation, to, self.peers.len())?;
        check_purpose(operation, purpose)?;
        if about.len() > MAX_TEXT {
            return Err(Error::argument(operation, "about", format_args!("at most {MAX_TEXT} bytes"), about.len()));
        }
        if !(1..=MAX_FDS).contains(&fds.len()) {
            return Err(Error::argument(operation, "fds", format_args!("1 to {MAX_FDS} descriptors"), fds.len()));
        }
        let (path, token) = &self.peers[to];
        let from = self.exchange.rank();
        let header =
            Header { token: *token, from, count: fds.len(), purpose: purpose.to_owned(), about: about.to_vec() };
        let deadline = self.exchange.deadline();
        let sent = deadline.until(|| {
            let result = connect(path).and_then(|socket| match stranger(&socket) {
                Ok(None) => send(&socket, &header.encode(), fds).map(|()| None),
                reason => reason,
            });
            match result {
                Ok(None) => Ok(Some(())),
                Ok(Some(reason)) => Err(Error::Exchange { operation, key: path.display().to_string(), reason }),
                // It has too many connections that it has not accepted, or this user too many
                // descriptors on their way.
                Err(error) if is(&error, &[Errno::AGAIN, Errno::INTR, Errno::TOOMANYREFS]) => Ok(None),
                Err(error) => Err(match self.ended(to)? {
                    Some(how) => Error::Departed { operation, rank: to, how: format!("{how}; {purpose:?} is for it") },
                    None => failed(operation, path, &error),
                }),
            }
        })?;
        sent.ok_or_else(|| {
            let late =
                deadline.error(operation, format!("rank {to} has not taken what others sent before {purpose:?}"));
            late.between((Some(self.exchange.rank()), Some(to)))
        })
    }

    /// Waits for the file descriptors that a rank sends for a purpose.
    ///
    /// Messages of one rank and purpose come in the order in which they were sent.
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if `from` is out of range or the purpose is too long.
    /// Returns [`Error::Departed`] if the rank has ended and has not sent them, [`Error::Timeout`],
    /// which lists the messages that came instead or were refused, and [`Error::Exchange`] if this
    /// rank's socket fails.
    pub fn receive(&self, from: usize, purpose: &str) -> Result<Vec<OwnedFd>> {
        self.receive_as("FdSocket::receive", from, purpose).map(|(_, fds)| fds)
    }

    /// As [`receive`](Self::receive), with the bytes that describe the descriptors.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_with(&self, from: usize, purpose: &str) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        self.receive_as("FdSocket::receive_with", from, purpose)
    }

    fn receive_as(&self, operation: &'static str, from: usize, purpose: &str) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        check_rank(operation, from, self.peers.len())?;
        check_purpose(operation, purpose)?;
        let deadline = self.exchange.deadline();
        let mut asked = Instant::now();
        loop {
            if let Some(message) = self.take(operation, from, purpose)? {
                return Ok(message);
            }
            let up = deadline.expired();
            if up || asked.elapsed() >= LOOK {
                asked = Instant::now();
                if let Some(how) = self.ended(from)? {
                    // It may have sent it before that.
                    let last = self.take(operation, from, purpose)?;
                    let how = format!("{how}; rank {} waits for its {purpose:?}", self.exchange.rank());
                    return last.ok_or(Error::Departed { operation, rank: from, how });
                }
            }
            if up {
                let late = deadline.error(operation, self.missing(from, purpose));
                return Err(late.between((Some(self.exchange.rank()), Some(from))));
            }
            self.wait(&deadline);
        }
    }

    /// Waits until a process connects, or for a moment. Holds no lock, so that several threads can
    /// wait.
    fn wait(&self, deadline: &Deadline) {
        let silent = !self.inbox().silent.is_empty();
        let longest = if silent { Duration::from_millis(1) } else { Duration::from_millis(20) };
        wait(&self.socket, deadline.remaining().min(longest));
    }

    /// What was received instead, in words.
    fn missing(&self, from: usize, purpose: &str) -> String {
        let inbox = self.inbox();
        let mut text = format!("rank {}: rank {from} has not sent {purpose:?}", self.exchange.rank());
        for (header, _) in &inbox.messages {
            text.push_str(&format!("; rank {} has sent {:?}", header.from, header.purpose));
        }
        for refused in &inbox.refused {
            text.push_str(&format!("; refused: {refused}"));
        }
        text
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock()
    }

    /// How each rank has departed, if it has.
    fn all_ended(&self) -> Result<Vec<Option<String>>> {
        let view = &self.exchange.view;
        let ids: Vec<_> = view.members.iter().map(|member| member.id).collect();
        view.store.ended(&ids, GRACE)
    }

    fn ended(&self, rank: usize) -> Result<Option<String>> {
        let view = &self.exchange.view;
        Ok(view.store.ended(&[view.members[rank].id], GRACE)?.swap_remove(0))
    }

    /// Takes the message that is asked for, if it has come.
    fn take(&self, operation: &'static str, from: usize, purpose: &str) -> Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let mut inbox = self.inbox();
        loop {
            match accept(&self.socket) {
                Ok(socket) => {
                    if inbox.silent.len() >= STRANGERS {
                        inbox.silent.remove(0);
                    }
                    inbox.silent.push((socket, Instant::now()));
                    self.read_silent(&mut inbox);
                }
                Err(error) if is(&error, &[Errno::AGAIN]) => break,
                Err(error) if is(&error, &[Errno::INTR, Errno::CONNABORTED]) => {}
                Err(error) => return Err(failed(operation, &self.path, &error)),
            }
        }
        self.read_silent(&mut inbox);
        let at = inbox.messages.iter().position(|(header, _)| header.from == from && header.purpose == purpose);
        Ok(at.map(|at| inbox.messages.remove(at)).map(|(header, fds)| (header.about, fds)))
    }

    /// Receives messages from the processes that have sent nothing so far.
    fn read_silent(&self, inbox: &mut Inbox) {
        let mut bytes = [0; MAX_MESSAGE];
        for (socket, since) in std::mem::take(&mut inbox.silent) {
            match receive(&socket, &mut bytes) {
                Ok((len, fds, whole)) => match self.check(&socket, &bytes[..len], fds, whole) {
                    Ok(message) => inbox.messages.push(message),
                    Err(reason) => inbox.refuse(reason),
                },
                Err(error) if is(&error, &[Errno::AGAIN, Errno::INTR]) => {
                    if since.elapsed() < SILENCE {
                        inbox.silent.push((socket, since));
                        continue;
                    }
                    inbox.refuse("somebody connected and said nothing".to_owned())
                }
                Err(error) => inbox.refuse(error.to_string()),
            }
        }
    }

    /// Accepts a message that is whole and from a rank of this exchange. Otherwise its descriptors
    /// are closed.
    fn check(
        &self,
        socket: &OwnedFd,
        bytes: &[u8],
        fds: Vec<OwnedFd>,
        whole: bool,
    ) -> Result<(Header, Vec<OwnedFd>), String> {
        if let Some(reason) = stranger(socket).map_err(|error| error.to_string())? {
            return Err(reason);
        }
        let header = Header::decode(bytes);
        let header =
            header.ok_or_else(|| format!("expected a message of a rank, got {} bytes that are none", bytes.len()))?;
        if header.token != self.token {
            return Err(format!("expected a rank of this exchange, got one of another that says {:?}", header.purpose));
        }
        if header.from >= self.peers.len() {
            return Err(format!("expected a rank less than {}, got {}", self.peers.len(), header.from));
        }
        if !whole || header.count != fds.len() {
            let (from, count) = (header.from, header.count);
            return Err(format!(
                "expected {count} descriptors of rank {from}, got {}: are too many files open?",
                fds.len()
            ));
        }
        Ok((header, fds))
    }
}

impl Drop for FdSocket {
    fn drop(&mut self) {
        if self.owner.is_another() {
            // In a forked child: the parent goes on using it.
            return;
        }
        let _ = std::fs::remove_file(&self.path);
        // Also those of ranks that were killed.
        if self.peers.iter().any(|(path, _)| is_left_over(path))
            && let Ok(ended) = self.all_ended()
        {
            for ((path, _), _) in
                self.peers.iter().zip(ended).filter(|((path, _), how)| how.is_some() && is_left_over(path))
            {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Whether a rank's socket is at a path. Other ranks name the path, so nothing else is removed
/// there.
fn is_left_over(path: &Path) -> bool {
    let named = path.file_name().and_then(|name| name.to_str());
    let named = named.is_some_and(|name| name.starts_with("gpucomm-") && name.ends_with(".sock"));
    named && path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

fn failed(operation: &'static str, path: &Path, error: &io::Error) -> Error {
    Error::Exchange { operation, key: path.display().to_string(), reason: error.to_string() }
}

fn check_purpose(operation: &'static str, purpose: &str) -> Result<()> {
    if purpose.len() <= MAX_PURPOSE {
        return Ok(());
    }
    let expected = format!("at most {MAX_PURPOSE} bytes");
    Err(Error::argument(operation, "purpose", expected, format_args!("{} bytes", purpose.len())))
}

fn is(error: &io::Error, codes: &[Errno]) -> bool {
    Errno::from_io_error(error).is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_drops_its_copy_removes_no_socket() {
        let exchange = Exchange::join(crate::exchange::Threads::new(1).store(0).unwrap()).unwrap();
        let mut socket = Some(FdSocket::new(&exchange, std::env::temp_dir()).unwrap());
        let path = socket.as_ref().map(|socket| socket.path.clone()).unwrap();
        crate::exchange::store::tests::in_child(|| drop(socket.take()));
        assert!(path.exists());
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn headers_are_decoded_as_they_were_encoded() {
        let header = Header { token: 7, from: 1, count: 2, purpose: "memory".to_owned(), about: vec![1, 2] };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        for end in 0..bytes.len() {
            assert_eq!(Header::decode(&bytes[..end]), None);
        }
    }
}
