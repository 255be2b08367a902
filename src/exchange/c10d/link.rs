//! One connection of a client: a method for each query.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Duration;

use super::codec::{Dialect, Encoder, HELLO, MAX_BYTES, MAX_TEXT, Query, STOP_WAITING, WAIT_CANCELED};
use crate::deadline::Deadline;
use crate::exchange::net::client::{Failure, Reuse, connect, fill, is_closed, take, timed_out, write};
use crate::exchange::store::nonce;

/// The most bytes of queries, or one query, that are sent before their answers are read. A server
/// whose answers are not read may stop reading.
const BATCH: usize = 16 << 10;

/// How long a server of the old version may take for its first answer. One of the current version
/// may never answer.
const OLD_HELLO: Duration = Duration::from_secs(2);

/// The most keys that a server may list.
const MAX_LIST: usize = 4 << 20;

/// A connection to a server of a known version.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: TcpStream,
    pub(super) dialect: Dialect,
}

fn unexpected(what: &str, came: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("expected {what}, got {came}"))
}

impl AsRef<TcpStream> for Link {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Link {
    /// Finds out the version of the server at the other end, unless it is known.
    pub(super) fn open(stream: TcpStream, known: Option<Dialect>, deadline: &Deadline) -> Result<Self, Failure> {
        let peer = stream.peer_addr()?;
        let mut link = Self { stream, dialect: known.unwrap_or(Dialect::Current) };
        let greeted = match known {
            None => link.find_out(deadline),
            Some(_) => link.greet(deadline),
        };
        match greeted {
            Ok(()) => Ok(link),
            // It is a server of the old version, or about to end.
            Err(error) if is_closed(&error) && known.is_none() => {
                let deadline = Deadline::after(deadline.remaining().min(OLD_HELLO));
                let mut link = Self { stream: connect(&peer, &deadline)?, dialect: Dialect::Old };
                link.greet(&deadline).map_err(|error| {
                    let why = format!(
                        "it closes the connection when it gets the current protocol, and does not speak the old one: {error}"
                    );
                    Failure::Later(why)
                })?;
                Ok(link)
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(Failure::Never(format!("expected a TCPStore of PyTorch, got something else: {error}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends the hello, if the version has one, and waits for the answer to a query.
    pub(super) fn greet(&mut self, deadline: &Deadline) -> io::Result<()> {
        let hello: &[u8] = if self.dialect == Dialect::Current { &HELLO } else { &[] };
        let query = Encoder(hello.to_vec()).plain(&[self.dialect.number(Query::CountKeys)]);
        self.send(&query.0, deadline)?;
        self.count(deadline).map(drop)
    }

    /// As [`greet`](Self::greet), with queries that a server of the old version takes for the
    /// length of an impossibly long key, so that it closes the connection. None of them changes
    /// anything.
    pub(super) fn find_out(&mut self, deadline: &Deadline) -> io::Result<()> {
        let number = |query| self.dialect.number(query);
        let counts = [number(Query::CountKeys); 2];
        let mark = nonce().to_le_bytes();
        // The old version reads the first byte of this length as the last byte of a key's length,
        // which is then above 2⁶³.
        let key = [b'?'; 255];
        let query = Encoder(HELLO.to_vec()).plain(&counts).plain(&[number(Query::CompareSet)]);
        let query = query.bytes(&key).bytes(&mark).bytes(&mark);
        self.send(&query.0, deadline)?;
        self.count(deadline)?;
        self.count(deadline)?;
        match self.bytes(deadline)? {
            answer if answer == mark => Ok(()),
            answer => Err(unexpected("an answer of 8 bytes", format_args!("{} bytes", answer.len()))),
        }
    }

    fn ask(&self, query: Query) -> Encoder {
        Encoder(vec![self.dialect.number(query)])
    }

    fn send(&mut self, bytes: &[u8], deadline: &Deadline) -> io::Result<()> {
        write(&mut self.stream, bytes, deadline)
    }

    fn byte(&mut self, deadline: &Deadline) -> io::Result<u8> {
        let mut byte = [0];
        fill(&mut self.stream, &mut byte, deadline)?;
        Ok(byte[0])
    }

    fn number(&mut self, deadline: &Deadline) -> io::Result<i64> {
        let mut number = [0; 8];
        fill(&mut self.stream, &mut number, deadline)?;
        Ok(i64::from_le_bytes(number))
    }

    /// A number of keys.
    fn count(&mut self, deadline: &Deadline) -> io::Result<usize> {
        let count = self.number(deadline)?;
        match usize::try_from(count) {
            Ok(count) if count < 1 << 40 => Ok(count),
            _ => Err(unexpected("a number of keys", count)),
        }
    }

    fn bytes(&mut self, deadline: &Deadline) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.number(deadline)?).unwrap_or(usize::MAX);
        take(&mut self.stream, len, MAX_BYTES, deadline)
    }

    /// Sends queries in batches, and reads the answer to each.
    fn each<T>(
        &mut self,
        queries: impl IntoIterator<Item = Encoder>,
        deadline: &Deadline,
        mut answer: impl FnMut(&mut Self) -> io::Result<T>,
    ) -> io::Result<Vec<T>> {
        let (mut batch, mut open, mut answers) = (Vec::new(), 0, Vec::new());
        let mut queries = queries.into_iter().peekable();
        while let Some(query) = queries.next() {
            batch.extend(query.0);
            open += 1;
            let full = queries.peek().is_none_or(|next| batch.len() + next.0.len() > BATCH);
            if full {
                self.send(&batch, deadline)?;
                batch.clear();
                for _ in 0..std::mem::take(&mut open) {
                    answers.push(answer(self)?);
                }
            }
        }
        Ok(answers)
    }

    /// The values of keys, as the server holds them. A server may close the connection if a key is
    /// deleted meanwhile.
    pub(super) fn look(&mut self, keys: &[Vec<u8>], deadline: &Deadline) -> io::Result<Vec<Option<Vec<u8>>>> {
        let dialect = self.dialect;
        let ask = |query| Encoder(vec![dialect.number(query)]);
        let checks = keys.iter().map(|key| ask(Query::Check).count(1).bytes(key));
        let here = self.each(checks, deadline, |link| link.byte(deadline))?;
        let gets = keys.iter().zip(&here).filter(|(_, here)| **here == 0).map(|(key, _)| ask(Query::Get).bytes(key));
        let mut values = self.each(gets, deadline, |link| link.bytes(deadline))?.into_iter();
        Ok(here.iter().map(|here| if *here == 0 { values.next() } else { None }).collect())
    }

    /// Sets a key, and waits until it is set.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], deadline: &Deadline) -> io::Result<()> {
        // A set has no answer. The query behind it has one.
        let count = [self.dialect.number(Query::CountKeys)];
        let query = self.ask(Query::Set).bytes(key).bytes(value).plain(&count);
        self.send(&query.0, deadline)?;
        self.count(deadline).map(drop)
    }

    /// Returns the value afterwards.
    pub(super) fn compare_and_set(
        &mut self,
        key: &[u8],
        expected: &[u8],
        new: &[u8],
        deadline: &Deadline,
    ) -> io::Result<Vec<u8>> {
        let query = self.ask(Query::CompareSet).bytes(key).bytes(expected).bytes(new);
        self.send(&query.0, deadline)?;
        self.bytes(deadline)
    }

    pub(super) fn add(&mut self, key: &[u8], by: i64, deadline: &Deadline) -> io::Result<i64> {
        let query = self.ask(Query::Add).bytes(key).plain(&by.to_le_bytes());
        self.send(&query.0, deadline)?;
        self.number(deadline)
    }

    /// Deletes keys, and counts those that were set.
    pub(super) fn delete(&mut self, keys: &[Vec<u8>], deadline: &Deadline) -> io::Result<usize> {
        let dialect = self.dialect;
        let queries = keys.iter().map(|key| Encoder(vec![dialect.number(Query::Delete)]).bytes(key));
        let answers = self.each(queries, deadline, |link| link.number(deadline))?;
        Ok(answers.iter().filter(|answer| **answer > 0).count())
    }

    /// All keys. Only the newest servers list them, and others close the connection.
    pub(super) fn list(&mut self, deadline: &Deadline) -> io::Result<Vec<Vec<u8>>> {
        let query = self.ask(Query::ListKeys);
        self.send(&query.0, deadline)?;
        let count = self.count(deadline)?;
        if count > MAX_LIST {
            return Err(unexpected("a list of keys", format_args!("one of {count}")));
        }
        let mut keys = Vec::new();
        for _ in 0..count {
            let len = usize::try_from(self.number(deadline)?).unwrap_or(usize::MAX);
            keys.push(take(&mut self.stream, len, MAX_TEXT, deadline)?);
        }
        Ok(keys)
    }

    /// Waits until all of these keys are set, at most for `within`. Returns whether they are.
    pub(super) fn wait(
        &mut self,
        keys: &[Vec<u8>],
        within: Duration,
        deadline: &Deadline,
    ) -> io::Result<(bool, Reuse)> {
        let query = keys.iter().fold(self.ask(Query::Wait).count(keys.len()), |query, key| query.bytes(key));
        self.send(&query.0, deadline)?;
        match self.byte(&Deadline::after(within)) {
            Ok(STOP_WAITING) => return Ok((true, Reuse::Yes)),
            Ok(other) => return Err(unexpected("the end of a wait", other)),
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
        // In the old version a wait ends only with its connection.
        if self.dialect == Dialect::Old {
            return Ok((false, Reuse::No));
        }
        let query = self.ask(Query::CancelWait);
        self.send(&query.0, deadline)?;
        let mut came = false;
        loop {
            match self.byte(deadline)? {
                WAIT_CANCELED => return Ok((came, Reuse::Yes)),
                // The keys were set while the wait was canceled.
                STOP_WAITING if !came => came = true,
                other => return Err(unexpected("the end of a wait", other)),
            }
        }
    }
}
