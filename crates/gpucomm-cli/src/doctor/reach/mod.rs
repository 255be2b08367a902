//! Whether ranks reach each other: each listens at its addresses, and tries those of the others.
//!
//! They meet at a store, of which rank 0 may be the server. Each says where it listens; once all have, or time is up, rank 0 says who is
//! there. Then each tries the addresses of all others, or of its neighbours where there are many ranks, and tells rank 0 what is closed,
//! with the report of its own checks. Nobody stops listening before rank 0 has heard all.

mod hello;
mod judge;
mod listen;
mod meet;
mod meeting;

pub use self::judge::ranks;
pub use self::meeting::Meeting;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use gpucomm::exchange::Store;
use serde_json::Value;

use self::hello::Hello;
use self::judge::Reach;
use self::listen::Listening;
use self::meet::{Met, Told, finish, meet};
use super::checks::network::picked;
use super::finding::{Finding, Verdict, is_well};
use super::machine::Machine;

const CHECK: &str = "reach";

/// What the exchange comes to.
#[derive(Debug)]
pub enum Outcome {
    /// On rank 0: what all ranks have found, and the table.
    All { findings: Vec<Finding>, table: Vec<String>, json: Value },
    /// On the others: rank 0 reports, and says whether all is well.
    Elsewhere(bool),
    /// The exchange has failed; each rank reports for itself.
    Failed(Finding),
}

/// Meets the other ranks. `own` is what this rank has found.
pub fn run(meeting: &Meeting, timeout: Duration, machine: &Machine, own: &[Finding]) -> Outcome {
    let (rank, size) = meeting.rank_and_size();
    let failed = |error: gpucomm::Error| {
        let found = format!("rank {rank} of {size} does not meet the others at {}: {error}", meeting.place());
        let advice = match rank {
            0 => "see that the address is of this host, and that no other program listens there",
            _ => "see that rank 0 runs, and that this host reaches it",
        };
        Outcome::Failed(Finding::problem(CHECK, found, advice))
    };
    let store = match meeting.store(timeout) {
        Ok(store) => store,
        Err(error) => return failed(error),
    };
    let nonce = RandomState::new().hash_one(store.id());
    let listening = Listening::start(&machine.interfaces, &picked(machine), nonce);
    let host = machine.files.read("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let hello = Hello { host, id: store.id(), nonce, places: listening.places.clone() };
    let report: Vec<_> = own.iter().filter(|finding| finding.verdict != Verdict::Ok).map(Finding::json).collect();
    match meet(&store, &hello, &report.into(), timeout) {
        Ok(Met::First(told)) => {
            let (findings, table, json) = all(size, told, own, timeout.as_secs());
            // Who does not hear it ends by itself.
            let _ = finish(&store, is_well(&findings));
            Outcome::All { findings, table, json }
        }
        Ok(Met::Other(is_well)) => Outcome::Elsewhere(is_well),
        Ok(Met::Late) => {
            let found = format!("rank {rank} of {size} came too late: rank 0 has gone on without it");
            Outcome::Failed(Finding::problem(CHECK, found, "start all ranks together, or wait longer with --timeout"))
        }
        Err(error) => failed(error),
    }
}

fn all(size: usize, told: Told, own: &[Finding], timeout: u64) -> (Vec<Finding>, Vec<String>, Value) {
    let (mut closed, mut reports) = (BTreeMap::new(), BTreeMap::new());
    for (rank, (ways, report)) in told.results {
        closed.insert(rank, ways);
        let report = report.as_array().into_iter().flatten().filter_map(Finding::read).collect();
        reports.insert(rank, report);
    }
    let reach = Reach::of(size, &told.hellos, &closed);
    let mut findings = merged(own, &reports);
    findings.extend(reach.findings(timeout));
    (findings, reach.table(), reach.json())
}

/// What rank 0 has found, and what the others have besides: the same of several ranks once, with all of their numbers.
fn merged(own: &[Finding], reports: &BTreeMap<usize, Vec<Finding>>) -> Vec<Finding> {
    let mut all = own.to_vec();
    for finding in all.iter_mut().filter(|finding| finding.verdict != Verdict::Ok) {
        finding.ranks.push(0);
    }
    for (&rank, findings) in reports.iter().filter(|(rank, _)| **rank != 0) {
        for finding in findings {
            match all.iter_mut().find(|known| (&known.check, &known.found) == (&finding.check, &finding.found)) {
                Some(known) => known.ranks.push(rank),
                None => all.push(Finding { ranks: vec![rank], ..finding.clone() }),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_have_found_is_told_once() {
        let (a, b, c) = (Finding::note("a", "x", "y"), Finding::problem("b", "x", "y"), Finding::ok("c", "fine"));
        let reports = BTreeMap::from([(0, vec![a.clone()]), (1, vec![a.clone(), b.clone()]), (2, vec![b])]);
        let all = merged(&[a, c], &reports);
        let ranks: Vec<_> = all.iter().map(|finding| (finding.check.as_str(), &finding.ranks[..])).collect();
        assert_eq!(ranks, [("a", &[0, 1][..]), ("c", &[]), ("b", &[1, 2])]);
    }
}
