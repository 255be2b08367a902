//! Explains in errors what a rank waits for: the operation, and in a clique also the ranks that have not come to it, and the
//! messages of other ranks that have no other end.
//!
//! Takes no lock: it compares the records of the last operations of each rank with the counts of the signatures. So an explanation
//! may be slightly out of date, and never makes a thread wait.

use std::ops::RangeInclusive;

use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::{KEPT, NOWHERE, Record, kept};
use crate::nccl::validate::in_process::InProcess;
use crate::nccl::validate::operation;
use crate::nccl::validate::pair::End;
use crate::nccl::validate::validator::Validator;

/// The most items that an error lists.
const MOST: usize = 4;

/// Describes what `inner` waits for in its operations `done + 1..=last`, which are not known to be done.
pub(crate) fn waits(inner: &Inner, done: u64, last: u64) -> Option<String> {
    tell(inner, "waits for", (done + 1).max(*kept(last).start())..=last, &[])
}

/// Describes the meeting in which `inner` waits before it issues the operation that it recorded last. The ranks `absent` have not come.
pub(crate) fn meets(inner: &Inner, absent: &[usize]) -> String {
    let told = tell(inner, "waits for", launch(inner), absent);
    told.unwrap_or_else(|| format!("{} waits for the others", inner.in_words()))
}

/// What `inner` waits for whose visit to NCCL with this number does not end.
pub(crate) fn stays_inside(inner: &Inner, visit: u64) -> String {
    let launch = launch(inner);
    let known = inner.recent.get(*launch.end()).filter(|record| record.visit == visit as u16);
    known
        .and_then(|_| tell(inner, "waits inside NCCL, for a peer that does not come, in", launch, &[]))
        .unwrap_or_else(|| format!("{}, for a peer that does not come", is_inside(inner)))
}

/// That `inner` is inside NCCL, and in which method.
pub(crate) fn is_inside(inner: &Inner) -> String {
    let of = inner.visitor().map(|(operation, _)| format!(", in {operation}")).unwrap_or_default();
    format!("{} waits inside NCCL{of}", inner.in_words())
}

/// What `inner` was given last.
pub(crate) fn came_last(inner: &Inner) -> Option<String> {
    tell(inner, "was given last", launch(inner), &[])
}

/// The numbers of the operations that go together with the last one.
pub(crate) fn launch(inner: &Inner) -> RangeInclusive<u64> {
    let last = inner.recent.last();
    let mut first = last;
    while inner.recent.get(first).is_some_and(|record| record.joined) && last - first < KEPT {
        first -= 1;
    }
    first..=last
}

/// Items, of which no more are shown than [`MOST`].
pub(crate) fn list(items: impl IntoIterator<Item = String>, between: &str) -> String {
    let items: Vec<_> = items.into_iter().collect();
    let mut text = items[..items.len().min(MOST)].join(between);
    if items.len() > MOST {
        text.push_str(&format!("{between}and {} more", items.len() - MOST));
    }
    text
}

/// What `inner` waits for among its operations with these numbers; `absent` are ranks that have not come, as far as that is known
/// otherwise.
fn tell(inner: &Inner, waits: &str, numbers: RangeInclusive<u64>, absent: &[usize]) -> Option<String> {
    let records: Vec<_> = numbers.clone().filter_map(|number| inner.recent.get(number)).collect();
    records.first()?;
    let mut text = format!("{} {waits} ", inner.in_words());
    let range = || range(inner.rank, &records, numbers.clone());
    match inner.validation.explain(inner, &records, &range, absent) {
        Some(explained) => text.push_str(&explained),
        None => {
            text.push_str(&undone(inner.rank, &records, numbers.clone()));
            if inner.size > 1 {
                text.push_str("; what the other ranks do is not known here");
            }
        }
    }
    Some(text)
}

/// Explains to a rank of a clique which of these operations it waits for, and who has not come to it. See
/// [`Validator::explain`].
pub(crate) fn explain(
    in_process: &InProcess,
    inner: &Inner,
    records: &[Record],
    range: &dyn Fn() -> String,
    absent: &[usize],
) -> Option<String> {
    let mut text = String::new();
    let stuck = records.iter().find(|record| !missing(in_process, inner.rank, record).is_empty());
    let mut behind = stuck.map_or_else(Vec::new, |record| missing(in_process, inner.rank, record));
    match stuck {
        Some(record) => text.push_str(&unmatched(in_process, inner.rank, record)),
        None if absent.is_empty() && records.len() == 1 && operation::signaller(records[0].head).is_some() => {
            text.push_str(&range());
            text.push_str(", which have not all come");
        }
        None if absent.is_empty() => {
            text.push_str(&range());
            let all = if records.len() == 1 { "which" } else { "all of which" };
            text.push_str(&format!(", {all} every rank that takes part has issued"));
        }
        None => {
            text.push_str(&range());
            text.push_str(&format!(", before which it meets {}", ranks(absent)));
        }
    }
    behind.extend(absent.iter().filter(|rank| !behind.contains(rank)).copied().collect::<Vec<_>>());
    if !behind.is_empty() {
        text.push_str("; ");
        text.push_str(&list(behind.iter().map(|&rank| in_process.signatures.whereabouts(rank)), "; "));
    }
    let others = others(inner, in_process, stuck, &behind);
    if !others.is_empty() {
        text.push_str("; ");
        text.push_str(&list(others, "; "));
    }
    Some(text)
}

/// Ranks, as the subject or object of a sentence.
fn ranks(all: &[usize]) -> String {
    match all {
        [one] => format!("rank {one}"),
        all => format!("ranks {}", list(all.iter().map(usize::to_string), ", ")),
    }
}

/// The ranks that have not come to an operation of `rank`.
pub(crate) fn missing(in_process: &InProcess, rank: usize, record: &Record) -> Vec<usize> {
    let signatures = &in_process.signatures;
    match (record.agreed, message(record)) {
        (NOWHERE, _) => Vec::new(),
        (number, Some((end, peer))) if signatures.pair(rank, end, peer).passed(end.other()) > number => Vec::new(),
        (_, Some((_, peer))) => vec![peer],
        (entry, None) => signatures.collectives().missing(entry).collect(),
    }
}

/// The rank that `inner` waits for in its operations with these numbers, if it is known to be one.
pub(crate) fn awaited(inner: &Inner, numbers: RangeInclusive<u64>) -> Option<usize> {
    let numbers = (*numbers.start()).max(*kept(*numbers.end()).start())..=*numbers.end();
    let records: Vec<_> = numbers.filter_map(|number| inner.recent.get(number)).collect();
    if let [one] = &records[..]
        && let Some(signaller) = operation::signaller(one.head)
    {
        return signaller;
    }
    let mut records = records.into_iter();
    match inner.validation.in_process() {
        Some(in_process) => {
            let behind = records.map(|record| missing(in_process, inner.rank, &record)).find(|all| !all.is_empty())?;
            if let [one] = behind[..] { Some(one) } else { None }
        }
        // What other processes do is not known. Only a message waits for one rank.
        None => {
            let (_, peer) = message(&records.next()?)?;
            records.next().is_none().then_some(peer)
        }
    }
}

/// Of a message: which end of it the rank is, and who is the other.
fn message(record: &Record) -> Option<(End, usize)> {
    operation::peer(record.head).map(|(receives, peer)| (if receives { End::Receiver } else { End::Sender }, peer))
}

/// An operation of `rank`, and where it stands among others.
pub(crate) fn describe(rank: usize, record: &Record) -> String {
    let mut place = Vec::new();
    if !record.operation.is_empty() && record.operation != operation::name(record.head) {
        place.push(format!("part of {}", record.operation));
    }
    if !operation::is_point(record.head) {
        place.push(format!("its operation {}", record.number));
    }
    match (record.agreed, message(record)) {
        (NOWHERE, _) => {}
        (number, Some((End::Sender, peer))) => {
            place.push(format!("message {} from rank {rank} to rank {peer}", number + 1))
        }
        (number, Some((End::Receiver, peer))) => {
            place.push(format!("message {} from rank {peer} to rank {rank}", number + 1))
        }
        (entry, None) => place.push(format!("collective {}", entry + 1)),
    }
    let what = operation::describe(record.head, record.count);
    if place.is_empty() { what } else { format!("{what} ({})", place.join(", ")) }
}

/// One or several operations of `rank`: those that are known, of these numbers.
fn range(rank: usize, records: &[Record], numbers: RangeInclusive<u64>) -> String {
    match records {
        [] => String::new(),
        [one] => describe(rank, one),
        [first, ..] if first.number == *numbers.start() => {
            format!("its operations {} to {}, the first of them {}", first.number, numbers.end(), describe(rank, first))
        }
        [.., last] => {
            format!("its operations {} to {}, the last of them {}", numbers.start(), last.number, describe(rank, last))
        }
    }
}

/// The same where nobody knows how many of several are done, as all are behind one mark on a stream: the one that hangs may be
/// any of them, so only the last is named.
fn undone(rank: usize, records: &[Record], numbers: RangeInclusive<u64>) -> String {
    match records {
        [.., last] if numbers.start() < numbers.end() => {
            let (first, number) = (numbers.start(), last.number);
            let last = describe(rank, last);
            format!("one of its operations {first} to {number}, some of which may be done; the last is {last}")
        }
        _ => range(rank, records, numbers),
    }
}

/// What a timeout advises if the other ranks live in other processes: of what they do, nothing is known here.
pub(crate) fn advice(inner: &Inner) -> &'static str {
    if inner.size == 1 || inner.validation.in_process().is_some() {
        return "";
    }
    ". To find the rank that did not come, set GPUCOMM_DUMP=DIRECTORY and run `gpucomm diagnose DIRECTORY`"
}

/// An operation of `rank` that others have not come to, and who has not.
fn unmatched(in_process: &InProcess, rank: usize, record: &Record) -> String {
    let what = describe(rank, record);
    match message(record) {
        Some((End::Sender, peer)) => format!("{what}, for which rank {peer} has issued no recv"),
        Some((End::Receiver, peer)) => format!("{what}, for which rank {peer} has issued no send"),
        None => {
            let missing = missing(in_process, rank, record);
            let have = if missing.len() == 1 { "has" } else { "have" };
            format!("{what}, to which {} {have} not come", ranks(&missing))
        }
    }
}

/// Describes operations of other ranks that nobody else has issued: those of the ranks `behind`, and messages between these and `inner`,
/// or all if no rank is behind. Leaves out `known`.
fn others(inner: &Inner, in_process: &InProcess, known: Option<&Record>, behind: &[usize]) -> Vec<String> {
    let mut others: Vec<_> = inner.clique_ranks().into_iter().filter(|other| other.rank != inner.rank).collect();
    others.sort_by_key(|other| !behind.contains(&other.rank));
    let mut told = Vec::new();
    for other in others {
        // Of several after one another only the first counts.
        let mut ends = Vec::new();
        for record in other.recent.all() {
            let end = message(&record);
            let of_interest = behind.is_empty()
                || behind.contains(&other.rank)
                || end.is_some_and(|(_, peer)| peer == inner.rank || behind.contains(&peer));
            let same =
                known.is_some_and(|known| end.is_none() && message(known).is_none() && known.agreed == record.agreed);
            if !of_interest || same || ends.contains(&end) || missing(in_process, other.rank, &record).is_empty() {
                continue;
            }
            ends.push(end);
            told.push(format!("rank {} has issued {}", other.rank, unmatched(in_process, other.rank, &record)));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_bounded() {
        let numbers = |count: usize| (0..count).collect::<Vec<_>>();
        assert_eq!(ranks(&[7]), "rank 7");
        assert_eq!(ranks(&numbers(MOST)), "ranks 0, 1, 2, 3");
        assert_eq!(ranks(&numbers(64)), "ranks 0, 1, 2, 3, and 60 more");
        assert_eq!(list([], "; "), "");
    }
}
