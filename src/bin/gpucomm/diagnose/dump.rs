//! One dump, as it was read.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::failure::{Failure, Result};

/// What one rank of a communicator has written down.
#[derive(Debug, Clone)]
pub struct Dump {
    /// What all ranks know the communicator by.
    pub key: String,
    pub part: Option<String>,
    pub rank: usize,
    pub size: usize,
    /// Host, process and device: who drives it.
    pub place: (String, u64, String),
    /// Why the communicator has ended, if it has.
    pub cause: Option<String>,
    /// Whether that is because ranks of a clique have compared what they do.
    pub differs: bool,
    /// Whether it waits for the others to start.
    pub starts: bool,
    pub waits: Option<String>,
    pub time: u64,
    pub entries: Vec<Entry>,
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

    pub fn is_done(&self) -> bool {
        self.state == "done"
    }
}

impl Dump {
    pub fn read(path: &PathBuf) -> Result<Self> {
        let failed = |what: String| Failure::run(format!("{}: {what}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| failed(format!("no JSON: {error}")))?;
        let schema = value["schema"].as_str().unwrap_or_default();
        if schema != "gpucomm-dump/1" {
            return Err(failed(format!("expected a dump of schema gpucomm-dump/1, got {schema:?}")));
        }
        Self::of(&value).ok_or_else(|| failed("a dump in which something is missing".to_owned()))
    }

    fn of(value: &Value) -> Option<Self> {
        let (communicator, process) = (&value["communicator"], &value["process"]);
        Some(Self {
            key: text(&communicator["key"])?,
            part: text(&communicator["part"]),
            rank: number(&communicator["rank"])?,
            size: number(&communicator["size"])?,
            place: (
                text(&process["host"]).unwrap_or_default(),
                process["pid"].as_u64()?,
                text(&communicator["device"])?,
            ),
            cause: text(&communicator["cause"]),
            differs: communicator["cause_kind"] == "Disagreement",
            starts: communicator["state"] == "starting",
            waits: text(&value["waits"]),
            time: value["time_ns"].as_u64()?,
            entries: value["entries"].as_array()?.iter().map(entry).collect::<Option<_>>()?,
        })
    }

    /// The collectives, and points among them, with their numbers.
    pub fn collectives(&self) -> impl DoubleEndedIterator<Item = (u64, &Entry)> {
        let numbered = |entry: &'_ Entry| entry.sequence.filter(|_| entry.peer.is_none());
        self.entries.iter().filter_map(move |entry| Some((numbered(entry)?, entry)))
    }

    /// How many collectives it has come to.
    pub fn progress(&self) -> u64 {
        self.collectives().map(|(number, _)| number).max().unwrap_or(0)
    }

    /// The messages to, or from, a rank, with their numbers.
    pub fn messages(&self, with: (usize, bool)) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries
            .iter()
            .filter(move |entry| entry.peer == Some(with))
            .filter_map(|entry| Some((entry.sequence?, entry)))
    }
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
