//! One connection as a client has it.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Duration;

use super::dialect::{Dialect, HELLO, Query, STOP_WAITING, WAIT_CANCELED};
use super::scan::{MAX_BYTES, MAX_TEXT};
use crate::deadline::Deadline;
use crate::exchange::net::dial::{Failure, connect};
use crate::exchange::net::stream::{closed, fill, take, timed_out, write};
use crate::exchange::store::nonce;

/// How many bytes of queries are sent before their answers are taken, at most, or one query: a server that sends an answer that nobody
/// takes may not read on.
const BATCH: usize = 16 << 10;

/// How long a server of the old protocol may take for its first answer. One of today's may never answer what is asked in that way.
const OLD_HELLO: Duration = Duration::from_secs(2);

/// The most keys that a server may list.
const MAX_LIST: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Talk {
    pub(super) stream: TcpStream,
    pub(super) dialect: Dialect,
}

/// A query in the making.
struct Asked(Vec<u8>);

impl Asked {
    fn count(mut self, count: usize) -> Self {
        self.0.extend(u64::try_from(count).unwrap_or(u64::MAX).to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self = self.count(bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }

    fn plain(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

fn unexpected(what: &str, came: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("expected {what}, got {came}"))
}

impl Talk {
    /// Finds out what the server at the other end speaks, unless it is known.
    pub(super) fn begin(stream: TcpStream, known: Option<Dialect>, deadline: &Deadline) -> Result<Self, Failure> {
        let peer = stream.peer_addr()?;
        let mut talk = Self { stream, dialect: known.unwrap_or(Dialect::Today) };
        let told = match known {
            None => talk.find_out(deadline),
            Some(_) => talk.greet(deadline),
        };
        match told {
            Ok(()) => Ok(talk),
            // It is no server of today's, or about to end.
            Err(error) if closed(&error) && known.is_none() => {
                let deadline = Deadline::after(deadline.remaining().min(OLD_HELLO));
                let mut talk = Self { stream: connect(&peer, &deadline)?, dialect: Dialect::Old };
                talk.greet(&deadline).map_err(|error| {
                    let why = format!(
                        "it closes the connection when it hears today's protocol, and speaks no older one: {error}"
                    );
                    Failure::Later(why)
                })?;
                Ok(talk)
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(Failure::Never(format!("expected a TCPStore of PyTorch, got something else: {error}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Says the hello, where there is one, and sees whether it is answered.
    pub(super) fn greet(&mut self, deadline: &Deadline) -> io::Result<()> {
        let hello: &[u8] = if self.dialect == Dialect::Today { &HELLO } else { &[] };
        let asked = Asked(hello.to_vec()).plain(&[self.dialect.number(Query::CountKeys)]);
        self.send(&asked.0, deadline)?;
        self.count(deadline).map(drop)
    }

    /// As [`greet`](Self::greet), with queries that an old server takes for the length of a key that no server has room for, so that it
    /// closes the connection. None of them changes anything.
    pub(super) fn find_out(&mut self, deadline: &Deadline) -> io::Result<()> {
        let number = |query| self.dialect.number(query);
        let counts = [number(Query::CountKeys); 2];
        let mark = nonce().to_le_bytes();
        // The eighth byte behind the 0 of the hello is the first of a length: above 127, it makes the old length one above 2⁶³.
        let key = [b'?'; 255];
        let asked = Asked(HELLO.to_vec()).plain(&counts).plain(&[number(Query::CompareSet)]);
        let asked = asked.bytes(&key).bytes(&mark).bytes(&mark);
        self.send(&asked.0, deadline)?;
        self.count(deadline)?;
        self.count(deadline)?;
        match self.bytes(deadline)? {
            answer if answer == mark => Ok(()),
            answer => Err(unexpected("an answer of 8 bytes", format_args!("{} bytes", answer.len()))),
        }
    }

    fn ask(&self, query: Query) -> Asked {
        Asked(vec![self.dialect.number(query)])
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

    /// Sends queries, some at a time, and takes the answer of each.
    fn each<T>(
        &mut self,
        queries: impl IntoIterator<Item = Asked>,
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

    /// What lies at each of the keys, as it lies there. The server may close the connection where a key goes while it is asked for.
    pub(super) fn look(&mut self, keys: &[Vec<u8>], deadline: &Deadline) -> io::Result<Vec<Option<Vec<u8>>>> {
        let dialect = self.dialect;
        let ask = |query| Asked(vec![dialect.number(query)]);
        let checks = keys.iter().map(|key| ask(Query::Check).count(1).bytes(key));
        let here = self.each(checks, deadline, |talk| talk.byte(deadline))?;
        let gets = keys.iter().zip(&here).filter(|(_, here)| **here == 0).map(|(key, _)| ask(Query::Get).bytes(key));
        let mut values = self.each(gets, deadline, |talk| talk.bytes(deadline))?.into_iter();
        Ok(here.iter().map(|here| if *here == 0 { values.next() } else { None }).collect())
    }

    /// Sets a key, and waits until that is done.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], deadline: &Deadline) -> io::Result<()> {
        // A set has no answer; what is asked behind it has one.
        let count = [self.dialect.number(Query::CountKeys)];
        let asked = self.ask(Query::Set).bytes(key).bytes(value).plain(&count);
        self.send(&asked.0, deadline)?;
        self.count(deadline).map(drop)
    }

    /// What is there afterwards.
    pub(super) fn compare_and_set(
        &mut self,
        key: &[u8],
        expected: &[u8],
        new: &[u8],
        deadline: &Deadline,
    ) -> io::Result<Vec<u8>> {
        let asked = self.ask(Query::CompareSet).bytes(key).bytes(expected).bytes(new);
        self.send(&asked.0, deadline)?;
        self.bytes(deadline)
    }

    pub(super) fn add(&mut self, key: &[u8], by: i64, deadline: &Deadline) -> io::Result<i64> {
        let asked = self.ask(Query::Add).bytes(key).plain(&by.to_le_bytes());
        self.send(&asked.0, deadline)?;
        self.number(deadline)
    }

    /// Removes keys, and counts those that were there.
    pub(super) fn delete(&mut self, keys: &[Vec<u8>], deadline: &Deadline) -> io::Result<usize> {
        let dialect = self.dialect;
        let queries = keys.iter().map(|key| Asked(vec![dialect.number(Query::Delete)]).bytes(key));
        let answers = self.each(queries, deadline, |talk| talk.number(deadline))?;
        Ok(answers.iter().filter(|answer| **answer > 0).count())
    }

    /// All keys; of the newest servers alone, others close the connection.
    pub(super) fn list(&mut self, deadline: &Deadline) -> io::Result<Vec<Vec<u8>>> {
        let asked = self.ask(Query::ListKeys);
        self.send(&asked.0, deadline)?;
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

    /// Waits until all of these keys are there, or for `within`: whether it can go on as before. `early` says whether they came.
    pub(super) fn wait(
        &mut self,
        keys: &[Vec<u8>],
        within: Duration,
        deadline: &Deadline,
    ) -> io::Result<(bool, Reuse)> {
        let asked = keys.iter().fold(self.ask(Query::Wait).count(keys.len()), |asked, key| asked.bytes(key));
        self.send(&asked.0, deadline)?;
        match self.byte(&Deadline::after(within)) {
            Ok(STOP_WAITING) => return Ok((true, Reuse::Yes)),
            Ok(other) => return Err(unexpected("the end of a wait", other)),
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
        // In the old protocol there is no end of a wait but that of the connection.
        if self.dialect == Dialect::Old {
            return Ok((false, Reuse::No));
        }
        let asked = self.ask(Query::CancelWait);
        self.send(&asked.0, deadline)?;
        let mut came = false;
        loop {
            match self.byte(deadline)? {
                WAIT_CANCELED => return Ok((came, Reuse::Yes)),
                // Said while we said that we do not wait any more.
                STOP_WAITING if !came => came = true,
                other => return Err(unexpected("the end of a wait", other)),
            }
        }
    }
}

/// Whether a connection can be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    Yes,
    No,
}
