//! One connection as the server has it.

use std::net::TcpStream;
use std::time::Instant;

use super::dialect::{Dialect, HELLO};
use super::scan::{Scan, Whole};
use crate::exchange::net::line::Line;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) line: Line,
    /// What it speaks, once it has said anything.
    pub(super) dialect: Option<Dialect>,
    /// When it ends if nothing more comes of what it has begun to say, or nothing is taken of what it is told.
    pub(super) stale: Option<Instant>,
    /// The other end says no more.
    pub(super) over: bool,
    scan: Scan,
    /// How much of what has come is answered.
    done: usize,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { line: Line::new(stream), dialect: None, stale: None, over: false, scan: Scan::default(), done: 0 }
    }

    /// The next query, once it has come whole, and where it begins; an error if it is none.
    pub(super) fn next(&mut self) -> Result<Option<(usize, Whole)>, ()> {
        let dialect = match self.dialect {
            Some(dialect) => dialect,
            None => {
                let Some(dialect) = Dialect::of(&self.line.input)? else { return Ok(None) };
                if dialect == Dialect::Today {
                    self.done = HELLO.len();
                }
                *self.dialect.insert(dialect)
            }
        };
        let start = self.done;
        let whole = self.scan.go_on(dialect, &self.line.input[start..]).map_err(drop)?;
        self.done += whole.as_ref().map_or(0, |whole| whole.len);
        Ok(whole.map(|whole| (start, whole)))
    }

    /// How many bytes have come and are not forgotten.
    pub(super) fn held(&self) -> usize {
        self.line.input.len()
    }

    /// Forgets what is answered; whether anything is left, which is no whole query or was not looked at.
    pub(super) fn begun(&mut self) -> bool {
        self.line.input.drain(..self.done);
        self.done = 0;
        // Whoever sent something large once may be silent for long.
        if self.line.input.is_empty() {
            self.line.input = Vec::new();
        }
        !self.line.input.is_empty()
    }
}
