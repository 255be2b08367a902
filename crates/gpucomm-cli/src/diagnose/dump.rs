//! One dump, as it was read.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::file;
use crate::failure::{Failure, Result};

/// Within so many nanoseconds of the end of a wait its dump is made; other ranks have theirs to compare with it. Where clocks of hosts differ by more, that is seen, and taken off.
const JUST_NOW: u64 = 1_000_000_000;

/// No communicator has so many ranks: a number beyond is none.
const MOST_RANKS: usize = 1 << 20;

/// What one rank of a communicator has written down.
#[derive(Debug, Clone)]
pub struct Dump {
    /// What all ranks know the communicator by.
    pub key: String,
    /// What its process calls the communicator. Dumps of older versions have none.
    pub name: Option<String>,
    pub part: Option<String>,
    pub rank: usize,
    pub size: usize,
    /// Host, process and device: who drives it.
    pub place: (String, u64, String),
    /// Why the communicator has ended, if it has.
    pub cause: Option<String>,
    /// Which variant of `gpucomm::Error` that is.
    pub kind: Option<String>,
    /// The reason that somebody gave for an abort, if that is the cause.
    pub reason: Option<String>,
    /// Whether a drop has aborted it, as its work was not done.
    pub is_dropped: bool,
    /// How it stands.
    pub state: String,
    pub waits: Option<String>,
    /// What it waits for in a comparison with the others, before it issues anything. Not what it has waited for in vain long before.
    pub compares: Option<String>,
    /// For which method a thread is inside NCCL, and since when.
    pub inside: Option<(String, u64)>,
    /// When it was written, and why.
    pub time: u64,
    pub occasion: String,
    pub entries: Vec<Entry>,
    /// How many collectives it has come to, and to how many messages with each rank, to it and from it: those too that are no longer entries.
    collectives: u64,
    messages: BTreeMap<usize, [u64; 2]>,
}

/// An operation, or a point that ranks come to.
#[derive(Debug, Clone)]
pub struct Entry {
    pub sequence: Option<u64>,
    /// The other rank of a message, and whether it is received.
    pub peer: Option<(usize, bool)>,
    pub what: String,
    /// Elements and their type, which both ends of a message have in common.
    pub size: (u64, String),
    pub state: String,
    pub time: u64,
}

impl Entry {
    /// Whether NCCL was not given it yet, or does not come back with it.
    pub fn is_awaited(&self) -> bool {
        matches!(self.state.as_str(), "waits" | "inside")
    }

    pub fn is_inside(&self) -> bool {
        self.state == "inside"
    }

    pub fn is_done(&self) -> bool {
        self.state == "done"
    }
}

impl Dump {
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |what: String| Failure::run(format!("{}: {what}", path.display()));
        let value = file::read_json(path)?;
        let schema = value["schema"].as_str().unwrap_or_default();
        if schema != "gpucomm-dump/1" {
            return Err(failed(format!("expected a dump of schema gpucomm-dump/1, got {schema:?}")));
        }
        Self::of(&value).ok_or_else(|| failed("a dump in which something is missing".to_owned()))
    }

    fn of(value: &Value) -> Option<Self> {
        let (communicator, process) = (&value["communicator"], &value["process"]);
        let (rank, size) = (number(&communicator["rank"])?, number(&communicator["size"])?);
        if rank >= size || size > MOST_RANKS {
            return None;
        }
        Some(
            Self {
                key: text(&communicator["key"])?,
                name: text(&communicator["name"]),
                part: text(&communicator["part"]),
                rank,
                size,
                place: (
                    text(&process["host"]).unwrap_or_default(),
                    process["pid"].as_u64()?,
                    text(&communicator["device"])?,
                ),
                cause: text(&communicator["cause"]),
                kind: text(&communicator["cause_kind"]),
                reason: text(&communicator["cause_reason"]).filter(|reason| !reason.is_empty()),
                is_dropped: communicator["aborted_by"] == "drop",
                state: text(&communicator["state"])?,
                waits: text(&value["waits"]),
                compares: text(&value["comparison"]).filter(|_| is_present(value)),
                inside: text(&value["inside"]).zip(value["inside_since_ns"].as_u64()),
                time: value["time_ns"].as_u64()?,
                occasion: text(&value["occasion"]).unwrap_or_default(),
                entries: value["entries"].as_array()?.iter().map(entry).collect::<Option<_>>()?,
                collectives: value["collectives"].as_u64()?,
                messages: value["messages"].as_array()?.iter().map(counts).collect::<Option<_>>()?,
            }
            .count_entries(),
        )
    }

    /// Whether it was written before others did something, by clocks that may differ a little: it may have done the same since, if it has
    /// not ended.
    pub fn is_older(&self, than: u64) -> bool {
        !self.is_over() && self.time.saturating_add(JUST_NOW) < than
    }

    /// Whether NCCL has let go of it: nothing comes after that.
    pub fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "closed" | "aborted")
    }

    /// Whether it was closed, when all that it had issued was done.
    pub fn is_closed(&self) -> bool {
        self.state == "closed"
    }

    /// Takes so many nanoseconds off all times, by which the clock of its host is ahead.
    pub fn set_back(&mut self, ahead: i64) {
        let inside = self.inside.iter_mut().map(|(_, since)| since);
        let times = self.entries.iter_mut().map(|entry| &mut entry.time).chain(inside).chain([&mut self.time]);
        times.for_each(|time| *time = time.saturating_add_signed(ahead.saturating_neg()));
    }

    /// Whether it has ended because of such an error.
    pub fn ended_by(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }

    /// Whether it waits for the others to start.
    pub fn starts(&self) -> bool {
        self.state == "starting"
    }

    /// The collectives, and points among them, with their numbers.
    pub fn collectives(&self) -> impl DoubleEndedIterator<Item = (u64, &Entry)> {
        let numbered = |entry: &'_ Entry| entry.sequence.filter(|_| entry.peer.is_none());
        self.entries.iter().filter_map(move |entry| Some((numbered(entry)?, entry)))
    }

    /// How many collectives it has come to, that which waits included.
    pub fn progress(&self) -> u64 {
        self.collectives
    }

    /// The last collective that NCCL was given, or has taken.
    pub fn issued(&self) -> u64 {
        self.collectives().filter(|(_, entry)| !entry.is_awaited()).map(|(number, _)| number).max().unwrap_or(0)
    }

    /// How many messages to, or from, a rank it has come to, that which waits included.
    pub fn message_progress(&self, with: (usize, bool)) -> u64 {
        self.messages.get(&with.0).map_or(0, |counts| counts[usize::from(with.1)])
    }

    /// Counts what stands among the entries, and was not counted as it waits.
    fn count_entries(mut self) -> Self {
        for entry in &self.entries {
            let Some(number) = entry.sequence else { continue };
            let count = match entry.peer {
                Some((peer, receives)) => &mut self.messages.entry(peer).or_default()[usize::from(receives)],
                None => &mut self.collectives,
            };
            *count = number.max(*count);
        }
        self
    }

    /// The messages to, or from, a rank, with their numbers.
    pub fn messages(&self, with: (usize, bool)) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries
            .iter()
            .filter(move |entry| entry.peer == Some(with))
            .filter_map(|entry| Some((entry.sequence?, entry)))
    }
}

/// Whether the wait in a comparison goes on, or its end is what the dump was written for.
fn is_present(value: &Value) -> bool {
    let end = value["comparison_end_ns"].as_u64();
    end.is_none_or(|end| value["time_ns"].as_u64().is_some_and(|now| now.saturating_sub(end) < JUST_NOW))
}

/// Of one peer: how many messages were sent to it, and received from it.
fn counts(value: &Value) -> Option<(usize, [u64; 2])> {
    Some((number(&value["peer"])?, [value["sent"].as_u64()?, value["received"].as_u64()?]))
}

fn entry(value: &Value) -> Option<Entry> {
    let receives = value["kind"].as_str()? == "recv";
    Some(Entry {
        sequence: value["sequence"].as_u64(),
        peer: number(&value["peer"]).map(|peer| (peer, receives)),
        what: text(&value["what"])?,
        size: (value["count"].as_u64()?, text(&value["element"])?),
        state: text(&value["state"])?,
        time: value["time_ns"].as_u64()?,
    })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn number(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| usize::try_from(number).ok())
}
