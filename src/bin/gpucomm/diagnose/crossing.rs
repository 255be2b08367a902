//! Ranks that use two communicators in opposite orders: each waits in one for what the other would do after its own wait.

use super::communicator::Communicator;
use super::dump::{Dump, Entry};

/// What is waited for, if there is such a pair.
pub fn find(all: &[Communicator]) -> Option<String> {
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            if let Some(told) = pair(one, other) {
                return Some(told);
            }
        }
    }
    None
}

fn pair(one: &Communicator, other: &Communicator) -> Option<String> {
    // Who waits in the one and is behind in the other; and the other way round.
    let (first, first_wait) = stuck(one, other)?;
    let (second, second_wait) = stuck(other, one)?;
    if first.place == second.place {
        return None;
    }
    Some(format!(
        "two communicators are used in opposite orders: rank {} of {} is at {} there, before {}; rank {} of {} is at {} there, before {}. \
         All ranks have to issue the operations of both in one order.",
        first.rank,
        one.name(),
        first_wait.what,
        other.name(),
        second.rank,
        other.name(),
        second_wait.what,
        one.name(),
    ))
}

/// A rank that is ahead in `here`, in an operation that is not done, and behind in `there`.
fn stuck<'c>(here: &'c Communicator, there: &Communicator) -> Option<(&'c Dump, &'c Entry)> {
    let (behind_here, behind_there) = (here.behind(), there.behind());
    let ahead = here.dumps().filter(|dump| !behind_here.contains(&dump.rank));
    let late =
        |dump: &&Dump| there.dumps().any(|other| other.place == dump.place && behind_there.contains(&other.rank));
    let dump = ahead.filter(|_| !behind_here.is_empty()).find(late)?;
    let (_, entry) = dump.collectives().next_back().filter(|(_, entry)| !entry.is_done())?;
    Some((dump, entry))
}
