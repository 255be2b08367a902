//! What is wrong in a communicator, and who is to blame.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::communicator::Communicator;
use super::dump::{Dump, Entry};
use super::holds::View;
use super::whereabouts::{known, no_dump, whereabouts};
use super::words::{Told, has, is, ranks};

/// A message of which one end was made only: who has made it, who has not, and what it is.
type Unmatched<'d> = (&'d Dump, &'d Dump, &'d Entry);

impl Communicator {
    /// What is wrong, if something is.
    pub fn trouble(&self, view: View<'_>) -> Option<Told> {
        let heard = || self.heard().map(|text| Told { says_why: true, ..Told::root(text) });
        let told = self.unstarted().map(Told::root).or_else(heard);
        told.or_else(|| self.amiss(view).map(|told| self.cause().beside(told)))
    }

    /// What is wrong with what its ranks have issued.
    fn amiss(&self, view: View<'_>) -> Option<Told> {
        let told = self.differences().or_else(|| self.blocked(view)).map(Told::root);
        let told = told.or_else(|| self.missing(view)).or_else(|| self.messages(view));
        told.or_else(|| {
            let inside = || self.inside().or_else(|| self.visiting());
            self.compared().or_else(inside).or_else(|| self.lost()).map(Told::root)
        })
    }

    /// What ranks that compare have found themselves.
    fn heard(&self) -> Option<String> {
        let cause = self.dumps().filter(|dump| dump.ended_by("Disagreement")).find_map(|dump| dump.cause.clone())?;
        // What differs was not issued.
        let agreed = self.dumps().map(Dump::issued).min().filter(|number| *number > 0 && self.absent().is_empty());
        let agreed = agreed.map_or_else(String::new, |number| format!("; up to collective {number} they agree"));
        Some(format!("its ranks compare what they do, and have found: {cause}{agreed}."))
    }

    /// The first collective in which ranks do different things.
    fn differences(&self) -> Option<String> {
        let mut known: BTreeMap<u64, BTreeMap<&str, Vec<usize>>> = BTreeMap::new();
        for dump in self.dumps() {
            for (number, entry) in dump.collectives() {
                known.entry(number).or_default().entry(&entry.what).or_default().push(dump.rank);
            }
        }
        let (number, what) = known.into_iter().find(|(_, what)| what.len() > 1)?;
        let mut what: Vec<_> = what.into_iter().collect();
        what.sort_by_key(|(_, who)| (who.len(), who.clone()));
        let (most, others) = what.split_last()?;
        let others: Vec<_> = others.iter().map(|(what, who)| format!("{} called {what}", ranks(who))).collect();
        Some(format!("in collective {number} {}, where {} called {}.", others.join(", "), ranks(&most.1), most.0))
    }

    /// A message without its other end, where that is what keeps those who are behind.
    fn blocked(&self, view: View<'_>) -> Option<String> {
        let behind = self.behind();
        // What it has done last, whether it is in that call still or was woken.
        let in_message = |rank: &usize| {
            let last = self.dump(*rank).and_then(|dump| dump.entries.last());
            last.is_some_and(|entry| !entry.is_done() && entry.peer.is_some())
        };
        if behind.iter().any(in_message) {
            self.messages(view).filter(|told| told.is_root).map(|told| told.text)
        } else {
            None
        }
    }

    /// Who has not come to the collective in which the others wait.
    fn missing(&self, view: View<'_>) -> Option<Told> {
        // Points count as done as soon as a rank has come to them: what is waited for may lie before one.
        let open =
            |dump: &Dump| dump.collectives().filter(|(_, entry)| !entry.is_done()).map(|(number, _)| number).max();
        let (front, absent) = (self.dumps().filter_map(open).max()?, self.absent());
        let behind = self.dumps().filter(|dump| dump.progress() < front);
        let at = |dump: &Dump| dump.collectives().find(|(number, _)| *number == front).map(|(_, entry)| entry.clone());
        let here: Vec<_> = self.dumps().filter_map(|dump| Some((dump.rank, at(dump)?))).collect();
        let (_, entry) = here.iter().find(|(_, entry)| !entry.is_done())?;
        // Since when others wait in what comes after so many.
        let first = |done: u64| {
            self.dumps().find_map(|dump| dump.collectives().find(|(number, _)| *number == done.saturating_add(1)))
        };
        let since = |dump: &Dump| first(dump.progress()).map_or(entry.time, |(_, entry)| entry.time);
        let (old, mut behind): (Vec<_>, Vec<_>) = behind.partition(|dump| dump.is_older(since(dump)));
        if behind.is_empty() && absent.is_empty() && old.is_empty() {
            return None;
        }
        // Who is furthest behind is waited for by those between.
        let least = behind.iter().map(|dump| dump.progress()).min();
        behind.retain(|dump| Some(dump.progress()) == least);
        let next = least.unwrap_or(0).saturating_add(1);
        let what = first(next - 1).map_or(&entry.what, |(_, entry)| &entry.what);
        let (held, free): (Vec<_>, Vec<_>) = behind.iter().partition(|dump| view.is_held(dump.rank));
        let names = |all: &[&Dump]| all.iter().map(|dump| dump.rank).collect::<Vec<_>>();
        let not_come = |all: &[usize]| format!("{} {} not come to collective {next}, {what}", ranks(all), has(all));
        let mut told = Vec::new();
        if !free.is_empty() {
            told.push(not_come(&names(&free)));
            told.extend(free.iter().take(4).map(|dump| whereabouts(dump, since(dump))));
            // All wait for each other, in several communicators perhaps.
            told.extend(free.iter().take(4).filter_map(|dump| view.reason(dump.rank)));
        }
        if !absent.is_empty() {
            told.push(no_dump(absent));
        }
        told.extend(old.iter().take(4).map(|dump| known(dump, since(dump))));
        let is_root = !told.is_empty();
        if !held.is_empty() {
            let who = names(&held);
            told.push(format!("{}, but {} held up", not_come(&who), is(&who)));
            told.extend(held.iter().take(4).filter_map(|dump| view.reason(dump.rank)));
        }
        let waiting: Vec<_> = here.iter().map(|(rank, _)| *rank).collect();
        let text = format!(
            "{}; {} {} come to collective {front}, {}.",
            told.join("; "),
            ranks(&waiting),
            has(&waiting),
            entry.what
        );
        Some(Told::new(text, is_root))
    }

    /// Who waits in a comparison, for those that do not.
    fn compared(&self) -> Option<String> {
        let (waiting, others): (Vec<_>, Vec<_>) = self.dumps().partition(|dump| dump.compares.is_some());
        let what = waiting.first()?.compares.clone()?;
        let who: Vec<_> = waiting.iter().map(|dump| dump.rank).collect();
        // Who has issued nothing yet waits at the time of its dump.
        let last = waiting.iter().filter_map(|dump| Some(dump.entries.last()?.time)).max();
        let since = last.or_else(|| waiting.iter().map(|dump| dump.time).max())?;
        let mut told =
            vec![format!("{} {} in a comparison: {what}", ranks(&who), if who.len() == 1 { "waits" } else { "wait" })];
        told.extend(others.iter().take(4).map(|dump| whereabouts(dump, since)));
        let absent = self.absent();
        if !absent.is_empty() {
            told.push(format!("{} {} left no dump", ranks(absent), has(absent)));
        }
        Some(format!("{}.", told.join("; ")))
    }

    /// A message of which only one end was made, or both in different ways.
    fn messages(&self, view: View<'_>) -> Option<Told> {
        let mut unmatched = Vec::new();
        for sender in self.dumps() {
            for receiver in self.dumps().filter(|receiver| receiver.rank != sender.rank) {
                match message(sender, receiver) {
                    Some(Err(text)) => return Some(Told::root(text)),
                    Some(Ok(one)) => unmatched.push(one),
                    None => {}
                }
            }
        }
        // Who waits itself has a reason; of whom nothing is known may have made it.
        let is_free = |(_, less, what): &&Unmatched<'_>| !view.is_held(less.rank) && !less.is_older(what.time);
        let free = unmatched.iter().find(is_free);
        let &(more, less, what) = free.or(unmatched.first())?;
        if let Some(circle) = free.and_then(|_| view.circle(less.rank)) {
            let reasons: Vec<_> = circle.iter().take(8).filter_map(|rank| view.reason(*rank)).collect();
            return Some(Told::root(format!("{} wait for each other: {}.", ranks(&circle), reasons.join("; "))));
        }
        let verb = if less.is_older(what.time) { "had" } else { "has" };
        let end = match (view.reason(less.rank), free.is_some()) {
            (Some(reason), false) => format!("but is held up: {reason}"),
            (Some(reason), true) => format!("{}; {reason}", known(less, what.time)),
            (None, _) => known(less, what.time),
        };
        // Where it is held up by one that is gone.
        let gone = Some(self.absent()).filter(|absent| free.is_none() && !absent.is_empty());
        let gone = gone.map_or(String::new(), |absent| format!("; {}", no_dump(absent)));
        let text = format!(
            "rank {} has called {}, and rank {} {verb} not made the other end; {end}{gone}.",
            more.rank, what.what, less.rank
        );
        Some(Told::new(text, free.is_some()))
    }

    /// Ranks that are gone, where nobody waits in a collective.
    fn lost(&self) -> Option<String> {
        let absent = self.absent();
        let waits = self.dumps().find(|dump| dump.entries.iter().any(|entry| !entry.is_done()));
        let waits = waits.filter(|_| !absent.is_empty())?;
        let what = waits.waits.clone().unwrap_or_else(|| format!("rank {} has work under way", waits.rank));
        Some(format!("{} {} left no dump, and {what}.", ranks(absent), has(absent)))
    }
}

/// What is wrong with the messages from a rank to another: one without its other end, or one of two sizes, in words.
fn message<'d>(sender: &'d Dump, receiver: &'d Dump) -> Option<Result<Unmatched<'d>, String>> {
    let (from, to) = (sender.rank, receiver.rank);
    let (sent, got) = (sender.messages((to, false)), receiver.messages((from, true)));
    let (sent, got): (BTreeMap<_, _>, BTreeMap<_, _>) = (sent.collect(), got.collect());
    for number in sent.keys().filter(|number| got.contains_key(number)) {
        let (one, other) = (sent[number], got[number]);
        if one.size != other.size {
            return Some(Err(format!(
                "message {number} from rank {from} to rank {to} has two sizes: rank {from} called {}, rank {to} called {}.",
                one.what, other.what
            )));
        }
    }
    // Older ones than there are entries of have been made as well.
    let (sends, receives) = (sender.message_progress((to, false)), receiver.message_progress((from, true)));
    let (more, less, what) = match sends.cmp(&receives) {
        Ordering::Greater => (sender, receiver, sent.get(&receives.saturating_add(1))),
        Ordering::Less => (receiver, sender, got.get(&sends.saturating_add(1))),
        Ordering::Equal => return None,
    };
    what.filter(|entry| !entry.is_done()).map(|what| Ok((more, less, *what)))
}
