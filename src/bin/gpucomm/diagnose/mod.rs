//! `gpucomm diagnose`: which rank did not come, or did something else, by the dumps of all.

mod communicator;
mod crossing;
mod dump;
mod ras;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use communicator::Communicator;
use dump::Dump;

use crate::failure::{Failure, Result};
use crate::options::DiagnoseArgs;
use crate::output;

pub fn run(options: &DiagnoseArgs) -> Result<()> {
    let (ras, files): (Vec<_>, Vec<_>) = files(&options.dumps)?.into_iter().partition(|path| is_of_ras(path));
    let dumps = files.iter().map(Dump::read).collect::<Result<Vec<_>>>()?;
    if dumps.is_empty() && ras.is_empty() && options.ras.is_none() {
        return Err(Failure::usage("there are no dumps (gpucomm-*.json) in what was named"));
    }
    of_dumps(dumps)?;
    ras::written(&ras)?.iter().try_for_each(|text| output::line(text))?;
    let asked = options.ras.as_deref().map(ras::ask).transpose()?;
    asked.iter().flatten().try_for_each(|text| output::line(text))
}

/// What the dumps come to.
fn of_dumps(dumps: Vec<Dump>) -> Result<()> {
    let mut all: BTreeMap<String, Vec<Dump>> = BTreeMap::new();
    for dump in dumps {
        all.entry(dump.key.clone()).or_default().push(dump);
    }
    let all: Vec<_> = all.into_values().map(Communicator::of).collect();
    if let Some(found) = crossing::find(&all) {
        return output::line(&found);
    }
    // What is wrong comes first; where nothing is, that is all there is to say.
    let mut told: Vec<String> = Vec::new();
    for text in all.iter().filter_map(Communicator::trouble) {
        // What ends a communicator ends what was split off from it: once is enough.
        let what = |text: &str| text.split_once(" ranks: ").map(|(_, what)| what.to_owned());
        if !told.iter().any(|known| what(known) == what(&text)) {
            told.push(text);
        }
    }
    if told.is_empty() {
        told.extend(all.iter().map(Communicator::well));
    }
    told.iter().try_for_each(|text| output::line(text))
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
