//! Where a rank is that others wait for.

use super::dump::Dump;
use super::words::{has, later, ranks};

/// Of whom there is no dump.
pub fn no_dump(absent: &[usize]) -> String {
    format!(
        "{} {} left no dump: it has died, or hangs outside of this crate (nccl::dump_on_signal makes it tell), or never came so far, or its dump is elsewhere",
        ranks(absent),
        has(absent)
    )
}

/// The same, where its dump may have been written before the others waited.
pub fn known(dump: &Dump, since: u64) -> String {
    if !dump.is_older(since) {
        return whereabouts(dump, since);
    }
    let (before, why) = (later(dump.time, since), &dump.occasion);
    format!("of rank {} nothing is known since {before} before that, when its dump was written ({why})", dump.rank)
}

/// What a rank that is waited for has done last.
pub fn whereabouts(dump: &Dump, since: u64) -> String {
    let rank = dump.rank;
    let now = match (dump.entries.iter().rev().find(|entry| entry.is_awaited()), &dump.compares) {
        (Some(entry), _) => format!(", and is in the call of {} now", entry.what),
        (None, Some(what)) => format!(", and compares what it is about to do now ({what})"),
        (None, None) => elsewhere(dump),
    };
    match dump.entries.iter().rev().find(|entry| !entry.is_awaited()) {
        Some(last) if last.time <= since => {
            format!("rank {rank} has issued {} last, {} before{now}", last.what, later(last.time, since))
        }
        Some(last) => format!("rank {rank} has issued {} since{now}", last.what),
        None => format!("rank {rank} has issued nothing{now}"),
    }
}

/// Where one is that is in none of what it has issued, nor about to issue.
fn elsewhere(dump: &Dump) -> String {
    match (&dump.inside, dump.state.as_str()) {
        (Some((operation, since)), _) => {
            format!(", and is inside NCCL in {operation} now, since {}", later(*since, dump.time))
        }
        (None, "starting") => ", and is not through with its start".to_owned(),
        (None, "closing") => ", and closes this communicator now".to_owned(),
        (None, "closed") => ", and has closed this communicator".to_owned(),
        (None, "aborted") => ", and has aborted this communicator".to_owned(),
        (None, "suspended") => ", and has suspended this communicator".to_owned(),
        (None, _) => ", and is in no call of this communicator now".to_owned(),
    }
}
