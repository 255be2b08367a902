//! Ranks that use two communicators in opposite orders: each waits in one for what the other would do after its own wait.

use super::communicator::Communicator;
use super::dump::Dump;

/// Two communicators that are used so, by their numbers, and what is said of them.
pub struct Crossing {
    pub pair: [usize; 2],
    pub text: String,
}

/// All that there are.
pub fn find(all: &[Communicator]) -> Vec<Crossing> {
    let mut found = Vec::new();
    for (at, one) in all.iter().enumerate() {
        for (beside, other) in all.iter().enumerate().skip(at + 1) {
            found.extend(pair(one, other).map(|text| Crossing { pair: [at, beside], text }));
        }
    }
    found
}

fn pair(one: &Communicator, other: &Communicator) -> Option<String> {
    // Who waits in the one and is behind in the other; and the other way round.
    let issued = stuck(one, other).zip(stuck(other, one));
    let ((first, at), (second, other_at)) = issued.or_else(|| compared(one, other).zip(compared(other, one)))?;
    if first.place == second.place {
        return None;
    }
    Some(format!(
        "two communicators are used in opposite orders: rank {} of {} {at} there, before {}; rank {} of {} {other_at} there, before {}. \
         All ranks have to issue the operations of both in one order.",
        first.rank,
        one.name(),
        other.name(),
        second.rank,
        other.name(),
        one.name(),
    ))
}

/// A rank that is ahead in `here`, in an operation that is not done, and behind in `there`; and where it is. Of whom nothing is known since
/// then may have come.
fn stuck<'c>(here: &'c Communicator, there: &Communicator) -> Option<(&'c Dump, String)> {
    let (behind_here, behind_there) = (here.behind(), there.behind());
    here.dumps().filter(|dump| !behind_here.contains(&dump.rank)).find_map(|dump| {
        let (_, entry) = dump.collectives().next_back().filter(|(_, entry)| !entry.is_done())?;
        let is_known = |other: &Dump| !other.is_older(entry.time);
        let is_late = |other: &Dump| other.place == dump.place && behind_there.contains(&other.rank) && is_known(other);
        let waits = here.dumps().any(|other| behind_here.contains(&other.rank) && is_known(other));
        (waits && there.dumps().any(is_late)).then(|| (dump, format!("is at {}", entry.what)))
    })
}

/// A rank that waits in a comparison in `here`, before it issues anything, for ranks all of which do so in `there`, where it does not.
fn compared<'c>(here: &'c Communicator, there: &Communicator) -> Option<(&'c Dump, String)> {
    let waits_there = |dump: &Dump| {
        let of_place = there.dumps().find(|other| other.place == dump.place);
        of_place.map(|other| other.compares.is_some())
    };
    let (waiting, others): (Vec<_>, Vec<_>) = here.dumps().partition(|dump| dump.compares.is_some());
    if others.is_empty() || !others.iter().all(|dump| waits_there(dump) == Some(true)) {
        return None;
    }
    let since = waiting.iter().filter_map(|dump| Some(dump.entries.last()?.time)).max().unwrap_or(0);
    if others.iter().any(|dump| dump.is_older(since)) {
        return None;
    }
    let dump = waiting.into_iter().find(|dump| waits_there(dump) == Some(false))?;
    Some((dump, format!("waits in a comparison ({})", dump.compares.as_ref()?)))
}
