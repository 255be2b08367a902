//! `gpucomm diagnose`: which rank did not come, or did something else, by the dumps of all.

mod cause;
mod clocks;
mod communicator;
mod crossing;
mod dump;
mod file;
mod holds;
mod inside;
mod late;
mod ras;
mod start;
mod trouble;
mod well;
mod whereabouts;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use communicator::Communicator;
use crossing::Crossing;
use dump::Dump;
use holds::{Holds, View};
use words::{Paragraph, Told};

use crate::failure::{Failure, Result};
use crate::options::DiagnoseArgs;
use crate::output;

/// The exit status where no culprit was found.
const NO_CULPRIT: u8 = 3;

/// Prints what the dumps come to, and returns the exit status.
pub fn run(options: &DiagnoseArgs) -> Result<ExitCode> {
    // Without the sign between, what follows the option is a dump.
    let none = || options.dumps.iter().find(|path| !path.exists());
    if options.ras.as_deref() == Some("")
        && let Some(path) = none()
    {
        let path = path.display();
        return Err(Failure::usage(format!("{path}: there is no such dump; an address is given as --ras={path}")));
    }
    let (ras, mut dumps) = read(&options.dumps)?;
    if dumps.is_empty() && ras.is_empty() && options.ras.is_none() {
        return Err(Failure::usage("there are no dumps (gpucomm-*.json) in what was named"));
    }
    let clocks = clocks::align(&mut dumps);
    let told = of_dumps(&by_communicator(dumps));
    told.iter().try_for_each(|one| output::line(&one.layout()))?;
    clocks.iter().try_for_each(|text| output::line(text))?;
    let written = ras::written(&options.dumps, &ras)?;
    written.iter().try_for_each(|one| output::line(&one.layout()))?;
    let asked = options.ras.as_deref().map(ras::ask).transpose()?.unwrap_or_default();
    asked.iter().try_for_each(|one| output::line(&one.layout()))?;
    let is_found = told.iter().chain(&written).chain(&asked).any(|one| one.is_culprit);
    Ok(if is_found { ExitCode::SUCCESS } else { ExitCode::from(NO_CULPRIT) })
}

/// How long after the newest dump those of other ranks may be on their way.
const ON_THEIR_WAY: Duration = Duration::from_secs(2);

/// What NCCL's RAS service has said, and the dumps; where some are missing that may be on their way, they are waited for.
fn read(named: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<Dump>)> {
    let begin = Instant::now();
    loop {
        let (ras, files): (Vec<_>, Vec<_>) = files(named)?.into_iter().partition(|path| is_of_ras(path));
        let dumps = readable(named, &files)?;
        let newest = dumps.iter().map(|dump| dump.time).max().unwrap_or(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_recent =
            now.saturating_sub(Duration::from_nanos(newest)) < ON_THEIR_WAY && begin.elapsed() < ON_THEIR_WAY;
        let is_missing = || by_communicator(dumps.clone()).iter().any(|one| !one.absent().is_empty());
        if !is_recent || !named.iter().any(|path| path.is_dir()) || !is_missing() {
            return Ok((ras, dumps));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Those that can be read: one that was cut off, or is something else, says nothing of the others of its directory, and is told of by itself.
fn readable(named: &[PathBuf], files: &[PathBuf]) -> Result<Vec<Dump>> {
    let (mut dumps, mut failures) = (Vec::new(), Vec::new());
    for path in files {
        match Dump::read(path) {
            Ok(dump) => dumps.push(dump),
            Err(failure) if named.contains(path) => return Err(failure),
            Err(failure) => failures.push(failure),
        }
    }
    match failures.pop() {
        Some(failure) if dumps.is_empty() => Err(failure),
        last => {
            last.iter().chain(&failures).for_each(|failure| output::note(&failure.one_line()));
            Ok(dumps)
        }
    }
}

fn by_communicator(dumps: Vec<Dump>) -> Vec<Communicator> {
    let mut all: BTreeMap<String, Vec<Dump>> = BTreeMap::new();
    for dump in dumps {
        all.entry(dump.key.clone()).or_default().push(dump);
    }
    all.into_values().map(Communicator::of).collect()
}

/// What the dumps come to.
fn of_dumps(all: &[Communicator]) -> Vec<Paragraph> {
    let newest = all.iter().map(Communicator::newest).max().unwrap_or(0);
    let holds = Holds::of(all);
    let crossings = crossing::find(all);
    // What is wrong comes first; where nothing is, that is all there is to say.
    let mut told: Vec<Paragraph> = Vec::new();
    // Of those that are used in opposite orders no more is said.
    let is_crossed = |at: usize| crossings.iter().any(|one| one.pair.contains(&at));
    // A part ends with what it was split off from, of which more is known perhaps.
    let troubles: Vec<_> =
        all.iter().enumerate().map(|(at, one)| one.trouble(View::of(&holds, at)).filter(|_| !is_crossed(at))).collect();
    let has_trouble = !crossings.is_empty() || troubles.iter().any(Option::is_some);
    let is_told = |(at, one, trouble): &(usize, &Communicator, &Option<Told>)| {
        trouble.is_none() && !is_crossed(*at) && (!has_trouble || !one.is_part())
    };
    let each = all.iter().zip(&troubles).enumerate().map(|(at, (one, trouble))| (at, one, trouble));
    let ended: Vec<_> = each.filter(is_told).filter_map(|(_, one, _)| Some((one.ended()?, one.age(newest)))).collect();
    // First those who keep the others waiting, of this run.
    let aged = |(one, told): (&Communicator, Option<Told>)| {
        let (age, told) = (one.age(newest), told?);
        Some((!age.is_empty(), one.head(), Told { text: told.text + &age, ..told }))
    };
    let crossed = crossings.iter().map(|Crossing { pair, text }| {
        let [one, other] = pair.map(|at| all[at].age(newest));
        let age = if one.is_empty() { other } else { one };
        (!age.is_empty(), String::new(), Told::new(format!("{text}{age}"), true))
    });
    let mut troubles: Vec<_> = crossed.chain(all.iter().zip(troubles).filter_map(aged)).collect();
    troubles.sort_by_key(|(is_old, _, told)| (*is_old, !told.is_root));
    let troubles = troubles
        .into_iter()
        .map(|(_, head, Told { text, says_why, .. })| Paragraph { says_why, ..Paragraph::new(head, text, true) });
    let ended = ended.into_iter().map(|(one, age)| Paragraph { text: one.text + &age, ..one });
    for one in troubles.chain(ended) {
        // What ends a communicator ends what was split off from it: once is enough.
        if !one.says_why || !told.iter().any(|known| known.text == one.text) {
            told.push(one);
        }
    }
    if told.is_empty() {
        // What was closed is of interest where there is nothing else.
        let is_open = |one: &&Communicator| !one.is_closed() || all.iter().all(Communicator::is_closed);
        told.extend(
            all.iter().filter(is_open).map(|one| Paragraph::new(one.head(), one.well() + &one.age(newest), false)),
        );
    }
    told
}

/// Whether a file is what NCCL's RAS service has said.
fn is_of_ras(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ras-"))
}

/// The files that were named, and the dumps in the directories that were.
fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let failed = |error| Failure::run(format!("{}: {error}", path.display()));
        for entry in fs::read_dir(path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if (name.starts_with("gpucomm-") || is_of_ras(&path)) && name.ends_with(".json") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
