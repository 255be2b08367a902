//! A run in one process: threads that each drive one GPU or more.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};

use gpucomm::Device;
use gpucomm::nccl::{Clique, Communicator};
use serde_json::Value;

use super::measure;
use super::progress::Progress;
use super::row::{RankInfo, Setup};
use super::team::{Meeting, Team};
use super::{Outcome, init_options, libraries};
use crate::failure::{Failure, Result};
use crate::options::{PerfOptions, Way};

/// Measures what `options` ask for, a table after the other.
pub fn run(options: &PerfOptions) -> Result<Outcome> {
    let (mut good, mut reports) = (true, Vec::new());
    for way in options.ways() {
        let (fine, report) = table(options, way)?;
        good &= fine;
        reports.extend(report);
    }
    Ok((good, reports))
}

/// One table, with communicators of its own, as if it were the only one.
fn table(options: &PerfOptions, way: Way) -> Result<(bool, Option<Value>)> {
    let mut devices = Device::all()?;
    devices.truncate(options.ranks());
    let clique = Clique::init_all_with(&devices, &init_options(way))?;
    let ranks = devices.iter().enumerate().map(|(rank, &device)| RankInfo::new(rank, device)).collect::<Result<_>>()?;
    let setup = Setup { options, way, libraries: libraries()?, ranks };

    let comms: Vec<&Communicator> = clique.ranks().iter().collect();
    let aborters: Vec<_> = comms.iter().map(|comm| comm.aborter()).collect();
    let meeting = Meeting::new(options.threads);
    let report = Mutex::new(None);
    let drive = |member: usize, comms: &[&Communicator]| {
        let team = Member { member, meeting: &meeting, progress: Progress::new(), report: &report };
        let result = catch_unwind(AssertUnwindSafe(|| measure::run(options, &setup, comms, &team)));
        if !matches!(result, Ok(Ok(_))) {
            // The others may be waiting for this member, here or within NCCL.
            meeting.give_up();
            for aborter in &aborters {
                // Whichever way it ends, there is nothing more to do: the failure itself is reported below.
                let _ = aborter.abort("a rank of this perf run failed");
            }
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = comms
            .chunks(options.gpus)
            .enumerate()
            .map(|(member, comms)| {
                scope.spawn({
                    let drive = &drive;
                    move || drive(member, comms)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });

    let mut good = true;
    let mut failure = None;
    for result in results {
        match result.unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(fine) => good &= fine,
            Err(Failure::Elsewhere) => {}
            // A rank that was aborted says less than the one that made us abort.
            Err(later) => {
                failure = Some(failure.filter(|first| !matches!(first, Failure::Aborted(_))).unwrap_or(later));
            }
        }
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    clique.close()?;
    Ok((good, report.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

struct Member<'a> {
    member: usize,
    meeting: &'a Meeting,
    progress: Progress,
    report: &'a Mutex<Option<Value>>,
}

impl Team for Member<'_> {
    fn member(&self) -> usize {
        self.member
    }

    fn gather(&self, value: f64) -> Result<Vec<f64>> {
        self.meeting.gather(self.member, value)
    }

    fn start(&self) -> Result<()> {
        self.meeting.start()
    }

    fn line(&self, text: &str) -> Result<()> {
        crate::output::line(text)
    }

    fn progress(&self, text: &str) -> Result<()> {
        self.progress.show(text);
        Ok(())
    }

    fn report(&self, report: Value) -> Result<()> {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        Ok(())
    }
}
