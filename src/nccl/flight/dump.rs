//! What the recorder of one rank says.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::entry::{Entry, Stage};
use super::json::Object;
use crate::clock;
use crate::cuda::Device;
use crate::error::Result;
use crate::nccl::agree::recent::{KEPT, Record};
use crate::nccl::agree::signature;
use crate::nccl::state::household::Lineage;
use crate::nccl::state::inner::Inner;
use crate::nccl::wait::pending;
use crate::version;

/// The version of the schema.
const SCHEMA: &str = "gpucomm-dump/1";

/// What a rank of a communicator has issued last, and how far that is: [`Communicator::dump`](crate::Communicator::dump).
///
/// `Display` writes it as JSON, of which docs/flight-recorder.md has the schema; `gpucomm diagnose` reads that.
#[derive(Debug, Clone)]
pub struct Dump {
    key: u64,
    rank: usize,
    size: usize,
    device: String,
    part: Option<String>,
    state: String,
    /// Its kind, and what it says.
    cause: Option<(&'static str, String)>,
    /// Why it was written.
    occasion: String,
    when: u64,
    waits: Option<String>,
    collectives: u64,
    messages: Vec<[u64; 2]>,
    entries: Vec<Entry>,
}

impl Dump {
    /// That of `inner`, written because of `occasion`. Waits for no lock, and calls neither CUDA nor NCCL.
    pub(crate) fn of(inner: &Inner, occasion: String) -> Self {
        let (totals, seen) = (inner.issued.totals(), Seen::of(inner));
        let records = records(inner);
        Self {
            key: key(&inner.household.lineage),
            rank: inner.rank,
            size: inner.size,
            device: inner.device.to_string(),
            part: inner.household.part(),
            state: format!("{:?}", inner.state()).to_lowercase(),
            cause: inner.cause().map(|cause| (cause.variant(), cause.to_string())),
            occasion,
            when: clock::tick(),
            waits: seen.open(&records).and_then(|(first, last)| pending::waits(inner, first - 1, last)),
            entries: entries(inner, &records, &seen),
            collectives: totals.collectives,
            messages: totals.messages,
        }
    }

    /// That of a rank which waits for the others to start, in a communicator of `size` ranks; `waits` says so.
    pub(crate) fn starting(lineage: &Lineage, (rank, size): (usize, usize), device: Device, waits: String) -> Self {
        Self {
            key: key(lineage),
            rank,
            size,
            device: device.to_string(),
            part: None,
            state: "starting".to_owned(),
            cause: None,
            occasion: waits.clone(),
            when: clock::tick(),
            waits: Some(waits),
            collectives: 0,
            messages: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// The communicator, rank and process that it is of, as a part of a file's name.
    pub(super) fn name(&self) -> String {
        format!("{:016x}-rank{}-{}", self.key, self.rank, std::process::id())
    }
}

/// What all ranks know the communicator by, in whatever process they are.
fn key(lineage: &Lineage) -> u64 {
    let mut hasher = DefaultHasher::new();
    lineage.hash(&mut hasher);
    hasher.finish()
}

/// The last operation on each stream that somebody has seen to be done, by the serial number of the stream.
struct Seen(Option<Vec<(u64, u64)>>);

impl Seen {
    /// Nothing is known while somebody is inside.
    fn of(inner: &Inner) -> Self {
        Self(inner.try_lock().map(|guard| guard.works.seen()))
    }

    fn is_done(&self, record: &Record) -> bool {
        let all = self.0.iter().flatten();
        all.into_iter().any(|(stream, number)| *stream == record.stream && record.number <= *number)
    }

    /// The first operation that is not known to be done, and the last one, if there are any. Who comes to a point is inside as long as it
    /// waits there.
    fn open(&self, records: &[Record]) -> Option<(u64, u64)> {
        let known = self.0.is_some();
        let is_open =
            |record: &&Record| if known { !signature::is_point(record.head) && !self.is_done(record) } else { true };
        let mut open = records.iter().filter(is_open).map(|record| record.number);
        open.next().map(|first| (first, open.next_back().unwrap_or(first)))
    }
}

/// What is kept, the oldest first.
fn records(inner: &Inner) -> Vec<Record> {
    let last = inner.recent.last();
    let numbers = (last + 1).saturating_sub(KEPT).max(1)..=last;
    numbers.filter_map(|number| inner.recent.get(number)).collect()
}

/// Operations and points, the oldest first.
fn entries(inner: &Inner, records: &[Record], seen: &Seen) -> Vec<Entry> {
    // In this order: what is given to NCCL by now was inside before, if it was not given then.
    let (visit, given) = (inner.visit(), inner.issued.number());
    let stage = |record: &Record| {
        let inside = visit % 2 == 1 && visit as u16 == record.visit;
        match (record.number <= given, inside) {
            (true, _) if seen.is_done(record) => Stage::Done,
            (true, _) => Stage::Issued,
            (false, true) => Stage::Inside,
            (false, false) => Stage::Waits,
        }
    };
    let of = |record: &Record| Entry::of(record, Some(record.sequence).filter(|number| *number > 0), stage(record));
    let mut entries: Vec<_> = inner.issued.points().iter().map(Entry::point).collect();
    // A point is written down under the number of the operation that comes after it, too.
    entries.extend(records.iter().filter(|record| !signature::is_point(record.head)).map(of));
    entries.sort_by_key(Entry::when);
    entries
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut object = Object::begin(&mut text);
        object.text("schema", SCHEMA);
        object.text("occasion", &self.occasion);
        object.number("time_ns", self.when);
        object.object("process", process);
        object.object("versions", |versions| {
            versions.text("gpucomm", env!("CARGO_PKG_VERSION"));
            versions.text("nccl_built_for", version::built_nccl().version);
            versions.text_if("nccl_running", version::running_nccl().ok());
            versions.text("backend", crate::backend());
        });
        object.object("communicator", |communicator| {
            communicator.text("key", format_args!("{:016x}", self.key));
            communicator.text_if("part", self.part.as_ref());
            communicator.number("rank", self.rank as u64);
            communicator.number("size", self.size as u64);
            communicator.text("device", &self.device);
            communicator.text("state", &self.state);
            communicator.text_if("cause", self.cause.as_ref().map(|(_, cause)| cause));
            communicator.text_if("cause_kind", self.cause.as_ref().map(|(kind, _)| kind));
        });
        object.text_if("waits", self.waits.as_ref());
        object.number("collectives", self.collectives);
        let messages = self.messages.iter().enumerate().filter(|(_, [to, from])| to + from > 0);
        object.list("messages", messages, |(peer, [to, from]), object| {
            object.number("peer", *peer as u64);
            object.number("sent", *to);
            object.number("received", *from);
        });
        object.list("entries", &self.entries, |entry, object| entry.write(object));
        object.end();
        f.write_str(&text)
    }
}

/// What NCCL's RAS service has answered at an address: the name of a file, and its text.
pub(super) fn of_ras(address: &str, answer: &Result<String>) -> (String, String) {
    let mut text = String::new();
    let mut object = Object::begin(&mut text);
    object.text("schema", "gpucomm-ras/1");
    object.number("time_ns", clock::tick());
    object.object("process", process);
    object.text("address", address);
    object.text_if("answer", answer.as_ref().ok());
    object.text_if("error", answer.as_ref().err());
    object.end();
    text.push('\n');
    (format!("ras-{}-{}.json", host().unwrap_or_default(), std::process::id()), text)
}

fn process(process: &mut Object<'_>) {
    process.text_if("host", host());
    process.number("pid", std::process::id().into());
    process.text_if("program", std::env::current_exe().ok().map(|path| path.display().to_string()));
}

fn host() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned())
}
