//! `gpucomm doctor`: what will go wrong, before NCCL starts.
//!
//! Checks are functions of a [`machine::Machine`], which is this one or one that a test has made up. What they find is printed as text, or
//! as JSON, whose form the help of the command tells.

mod checks;
#[cfg(test)]
mod fake;
mod files;
mod finding;
mod here;
mod interfaces;
mod machine;
mod reach;
mod report;
mod settings;

use gpucomm::{Backend, backend};
use serde_json::Value;

use self::checks::launcher;
use self::finding::is_well;
use self::machine::Ranks;
use self::reach::{Meeting, Outcome};
use crate::failure::Result;
use crate::options::doctor::DoctorOptions;
use crate::output;

/// Prints what is found, and says whether nothing of it is a problem. Of several ranks, rank 0 prints for all.
pub fn run(options: &DoctorOptions) -> Result<bool> {
    let machine = here::look();
    let (launched, of_launcher) = launcher::check(&machine);
    let mut ranks = launcher::ranks(&machine, launched.as_ref());
    let meeting = Meeting::of(options, launched)?;
    if let Some(size) = meeting.as_ref().map(|meeting| meeting.rank_and_size().1) {
        ranks = Ranks { size, local: ranks.local.min(size), ..ranks };
    }
    let mut findings = checks::all(&machine, ranks);
    findings.extend(of_launcher);
    let (mut table, mut reach) = (Vec::new(), Value::Null);
    if let Some(meeting) = meeting {
        match reach::run(&meeting, options.timeout, &machine, &findings) {
            Outcome::All { findings: all, table: rows, json } => (findings, table, reach) = (all, rows, json),
            Outcome::Elsewhere(is_well) => return Ok(is_well),
            Outcome::Failed(finding) => findings.push(finding),
        }
    }
    if options.json {
        let backend = match backend() {
            Backend::Emulator => "emulator",
            _ => "nvidia",
        };
        output::line(&format!("{:#}", report::json(backend, &findings, &reach)))?;
    } else {
        for line in report::lines(&findings, &table) {
            output::line(&line)?;
        }
    }
    Ok(is_well(&findings))
}
