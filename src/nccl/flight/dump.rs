//! What the recorder of one rank says.

use std::fmt;
use std::sync::Arc;

use super::entries::{Seen, entries};
use super::entry::Entry;
use super::json::Object;
use crate::clock;
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::exchange::digest;
use crate::name::Name;
use crate::nccl::local_ranks::lineage::Lineage;
use crate::nccl::rank::held::Graph;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::issued::Wait;
use crate::nccl::rank::recent::Record;
use crate::nccl::rank::state::{AbortedBy, CommState};
use crate::nccl::validate::operation;
use crate::nccl::wait::explanation;
use crate::version;

/// The version of the schema.
const SCHEMA: &str = "gpucomm-dump/1";

/// What a rank of a communicator has issued last, and how far that is: [`Communicator::dump`](crate::Communicator::dump).
///
/// `Display` writes it as JSON, of which docs/flight-recorder.md has the schema; `gpucomm diagnose` reads that.
#[derive(Debug, Clone)]
pub struct Dump {
    key: u64,
    name: Name,
    rank: usize,
    size: usize,
    device: String,
    part: Option<String>,
    /// `None` while it starts.
    state: Option<CommState>,
    /// Why it has ended, and who has aborted it.
    cause: Option<Error>,
    aborted_by: Option<AbortedBy>,
    /// Why it was written.
    occasion: String,
    when: u64,
    waits: Option<String>,
    /// For which method a thread is inside NCCL, and since when.
    inside: Option<(&'static str, u64)>,
    /// What it waits for in a comparison with the others, or has waited for in vain.
    comparison: Option<Wait>,
    /// What NCCL's RAS service said then.
    ras: Option<Arc<str>>,
    collectives: u64,
    messages: Vec<[u64; 2]>,
    graphs: Vec<Graph>,
    entries: Vec<Entry>,
}

impl Dump {
    /// That of `inner`, written because of `occasion`. Waits for no lock, and calls neither CUDA nor NCCL.
    pub(crate) fn of(inner: &Inner, occasion: String) -> Self {
        let (totals, seen) = (inner.issued.totals(), Seen::of(inner));
        let (records, inside): (Vec<_>, _) = (inner.recent.all().collect(), inner.visitor());
        let waits = open(inner, &seen, &records);
        Self {
            key: key(&inner.local_ranks.lineage),
            name: inner.name.clone(),
            rank: inner.rank,
            size: inner.size,
            device: inner.device.to_string(),
            part: inner.local_ranks.part(),
            state: Some(inner.state()),
            cause: inner.cause().cloned(),
            aborted_by: inner.aborted_by(),
            occasion,
            when: clock::tick(),
            waits: waits.or_else(|| inside.map(|_| explanation::is_inside(inner))),
            inside,
            ras: None,
            comparison: inner.issued.comparison(),
            entries: entries(inner, &records, &seen),
            collectives: totals.collectives,
            messages: totals.messages,
            graphs: inner.issued.graphs(),
        }
    }

    /// Returns the dump of a rank that waits for the others to start, in a communicator of `size`
    /// ranks. `waits` describes the wait.
    pub(crate) fn starting(
        lineage: &Lineage,
        name: &Name,
        (rank, size): (usize, usize),
        device: Device,
        waits: String,
    ) -> Self {
        Self {
            key: key(lineage),
            name: name.clone(),
            rank,
            size,
            device: device.to_string(),
            waits: Some(waits.clone()),
            ..Self::empty(waits, clock::tick())
        }
    }

    /// Returns a dump of one rank that has done nothing.
    fn empty(occasion: String, when: u64) -> Self {
        Self {
            key: 0,
            name: Name::default(),
            rank: 0,
            size: 1,
            device: String::new(),
            part: None,
            state: None,
            cause: None,
            aborted_by: None,
            occasion,
            when,
            waits: None,
            inside: None,
            comparison: None,
            ras: None,
            collectives: 0,
            messages: Vec::new(),
            graphs: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// NCCL has let go of the rank.
    pub(super) fn end(&mut self) {
        self.state = self.state.map(CommState::ended);
    }

    /// What NCCL's RAS service has answered since.
    pub(super) fn tell_ras(&mut self, answer: Arc<str>) {
        self.ras = Some(answer);
    }

    /// When it was made, and whether it has such an answer: of two of one rank, the greater one is kept.
    pub(super) fn order(&self) -> (u64, bool) {
        (self.when, self.ras.is_some())
    }

    #[cfg(test)]
    pub(super) fn made(when: u64, occasion: &str) -> Self {
        Self::empty(occasion.to_owned(), when)
    }

    /// The communicator, rank and process that it is of, as a part of a file's name.
    pub(super) fn file_stem(&self) -> String {
        format!("{:016x}-rank{}-{}", self.key, self.rank, std::process::id())
    }
}

/// The name of a variant.
fn name(variant: impl fmt::Debug) -> String {
    format!("{variant:?}").to_lowercase()
}

/// The reason that somebody gave for an abort, if that is the cause.
fn reason(cause: &Error) -> Option<&str> {
    if let Error::Aborted { reason, .. } = cause { Some(reason) } else { None }
}

/// What all ranks know the communicator by, in whatever process they are.
fn key(lineage: &Lineage) -> u64 {
    let all = digest(lineage.bytes());
    (all >> 64 ^ all) as u64
}

/// Those of its operations that are not known to be done, and for whom it waits there.
fn open(inner: &Inner, seen: &Seen, records: &[Record]) -> Option<String> {
    seen.open(records).and_then(|(first, last)| explanation::waits(inner, first - 1, last))
}

/// What `inner` waits for now, in words, if that is known. Waits for no lock, and calls neither CUDA nor NCCL.
pub(crate) fn waits(inner: &Inner) -> Option<String> {
    let compares = inner.issued.comparison().filter(|wait| wait.end.is_none());
    compares
        .map(|wait| wait.what.to_string())
        .or_else(|| open(inner, &Seen::of(inner), &inner.recent.all().collect::<Vec<_>>()))
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
            communicator.text("name", self.name.as_str());
            communicator.text_if("part", self.part.as_ref());
            communicator.number("rank", self.rank as u64);
            communicator.number("size", self.size as u64);
            communicator.text("device", &self.device);
            communicator.text("state", self.state.map_or_else(|| "starting".to_owned(), name));
            communicator.text_if("cause", self.cause.as_ref());
            communicator.text_if("cause_kind", self.cause.as_ref().map(Error::kind));
            communicator.text_if("cause_reason", self.cause.as_ref().and_then(reason));
            communicator.text_if("aborted_by", self.aborted_by.map(name));
        });
        object.text_if("waits", self.waits.as_ref());
        object.text_if("inside", self.inside.map(|(operation, _)| operation));
        object.number_if("inside_since_ns", self.inside.map(|(_, since)| since));
        object.text_if("comparison", self.comparison.as_ref().map(|wait| &wait.what));
        object.number_if("comparison_end_ns", self.comparison.as_ref().and_then(|wait| wait.end));
        object.text_if("ras", self.ras.as_ref());
        object.number("collectives", self.collectives);
        let messages = self.messages.iter().enumerate().filter(|(_, [to, from])| to + from > 0);
        object.list("messages", messages, |(peer, [to, from]), object| {
            object.number("peer", *peer as u64);
            object.number("sent", *to);
            object.number("received", *from);
        });
        object.list("graphs", &self.graphs, |graph, object| {
            object.number("graph", graph.number);
            object.number("operations", graph.total);
            object.list("holds", &graph.operations, |(head, count), object| {
                object.text("what", operation::describe(*head, *count));
            });
            object.number("launches", graph.launches);
            object.number_if("last_launch", graph.last.map(|(number, _)| number));
            object.number_if("last_launch_ns", graph.last.map(|(_, when)| when));
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
