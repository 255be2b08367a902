//! What NCCL's RAS service says, in words.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpucomm::nccl;
use serde_json::Value;

use super::file;
use super::words::{Paragraph, has, ranks};
use crate::failure::{Failure, Result};
use crate::output;

/// It waits for processes that do not answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Asks it at an address; an empty one is where NCCL has it.
pub fn ask(address: &str) -> Result<Vec<Paragraph>> {
    let answer = nccl::ras_status_timeout(Some(address).filter(|address| !address.is_empty()), PATIENCE)?;
    let answer = serde_json::from_str(&answer).map_err(|error| Failure::run(format!("NCCL's RAS service: {error}")))?;
    Ok(words(&answer))
}

/// What it said when dumps were written: that which was asked first, of these files. One that cannot be read says nothing of the others, and is
/// told of by itself; it is an error where it was `named`.
pub fn written(named: &[PathBuf], files: &[PathBuf]) -> Result<Vec<Paragraph>> {
    let mut first: Option<(u64, Value)> = None;
    for path in files {
        match read(path) {
            Ok(Some((time, answer))) => {
                if first.as_ref().is_none_or(|(known, _)| time < *known) {
                    first = Some((time, answer));
                }
            }
            Ok(None) => {}
            Err(failure) if named.contains(path) => return Err(failure),
            Err(failure) => output::note(&failure.one_line()),
        }
    }
    Ok(first.map(|(_, answer)| words(&answer)).unwrap_or_default())
}

/// When it was asked, and what it said, if it did.
fn read(path: &Path) -> Result<Option<(u64, Value)>> {
    let failed = |what: String| Failure::run(format!("{}: {what}", path.display()));
    let value = file::read_json(path)?;
    let (Some(time), Some(answer)) = (value["time_ns"].as_u64(), value["answer"].as_str()) else { return Ok(None) };
    let answer =
        serde_json::from_str(answer).map_err(|error| failed(format!("the answer is not valid JSON: {error}")))?;
    Ok(Some((time, answer)))
}

fn words(answer: &Value) -> Vec<Paragraph> {
    match answer["communicators"].as_array().map(Vec::as_slice) {
        None | Some([]) => {
            vec![Paragraph::new(String::new(), "NCCL's RAS service knows of no communicator.".to_owned(), false)]
        }
        Some(all) => all.iter().map(communicator).collect(),
    }
}

fn communicator(communicator: &Value) -> Paragraph {
    let list = |name: &str| communicator[name].as_array().cloned().unwrap_or_default();
    let (here, missing) = (list("ranks"), list("missing_ranks"));
    let mut told: Vec<String> = missing.iter().map(absent).collect();
    for rank in &here {
        let status = &rank["status"];
        if let Some(code) = status["async_error"].as_i64().filter(|code| *code != 0) {
            told.push(format!("{} has the asynchronous error {code}", who(rank)));
        }
        if status["abort_flag"] == true {
            told.push(format!("{} is being aborted", who(rank)));
        }
    }
    told.extend(counts(&here));
    let is_culprit = !told.is_empty();
    if !is_culprit {
        told.push("all ranks answer, and have issued as many collectives of each kind".to_owned());
    }
    let (hash, size) = (communicator["hash"].as_str().unwrap_or("?"), number(&communicator["size"]));
    let head = format!("NCCL's RAS service, communicator {hash}, {size} ranks: ");
    Paragraph::new(head, format!("{}.", told.join("; ")), is_culprit)
}

fn absent(rank: &Value) -> String {
    let status = &rank["status"];
    let what = match (status["considered_dead"] == true, status["unresponsive"] == true) {
        (true, _) => "counts as dead",
        (_, true) => "does not answer",
        _ => "answers, and has no such communicator any more",
    };
    format!("{} {what}", who(rank))
}

/// Where ranks have issued different numbers of one kind of collective.
fn counts(here: &[Value]) -> Vec<String> {
    let kinds = here.first().and_then(|rank| rank["collective_counts"].as_object());
    let mut told = Vec::new();
    for kind in kinds.into_iter().flat_map(|counts| counts.keys()) {
        let mut by: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for rank in here {
            let count = rank["collective_counts"][kind].as_u64().unwrap_or_default();
            by.entry(count).or_default().push(number(&rank["rank"]) as usize);
        }
        if by.len() > 1 {
            let each = by.iter().map(|(count, who)| format!("{} {} issued {count}", ranks(who), has(who)));
            told.push(format!("of {kind} {}", each.collect::<Vec<_>>().join(", ")));
        }
    }
    told
}

fn who(rank: &Value) -> String {
    let host = rank["host"].as_str().unwrap_or("unknown");
    format!("rank {} (process {} on {host})", number(&rank["rank"]), rank["pid"])
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}
