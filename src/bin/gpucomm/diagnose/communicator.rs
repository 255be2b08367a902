//! The dumps of one communicator, and what they come to.

use std::collections::BTreeMap;

use super::dump::{Dump, Entry};
use super::words::{has, later, ranks};

/// One communicator, by the dumps of its ranks; the newest of each rank.
#[derive(Debug)]
pub struct Communicator {
    dumps: BTreeMap<usize, Dump>,
    size: usize,
}

impl Communicator {
    pub fn of(mut all: Vec<Dump>) -> Self {
        all.sort_by_key(|dump| dump.time);
        let size = all.iter().map(|dump| dump.size).max().unwrap_or(0);
        Self { dumps: all.into_iter().map(|dump| (dump.rank, dump)).collect(), size }
    }

    pub fn dumps(&self) -> impl Iterator<Item = &Dump> {
        self.dumps.values()
    }

    /// What it is called.
    pub fn name(&self) -> String {
        let part = self.dumps().find_map(|dump| dump.part.clone());
        let key = self.dumps().next().map_or("", |dump| &dump.key[..dump.key.len().min(6)]);
        match part {
            Some(part) => format!("communicator {key} (the part {part})"),
            None => format!("communicator {key}"),
        }
    }

    /// The ranks that have left no dump.
    fn absent(&self) -> Vec<usize> {
        (0..self.size).filter(|rank| !self.dumps.contains_key(rank)).collect()
    }

    /// How far the first of all ranks is in the sequence of collectives.
    fn front(&self) -> u64 {
        self.dumps().map(Dump::progress).max().unwrap_or(0)
    }

    /// The ranks that have not come to a collective to which others have.
    pub fn behind(&self) -> Vec<usize> {
        let front = self.front();
        self.dumps().filter(|dump| dump.progress() < front).map(|dump| dump.rank).collect()
    }

    /// What is wrong, if something is.
    pub fn trouble(&self) -> Option<String> {
        let told = self
            .unstarted()
            .or_else(|| self.heard())
            .or_else(|| self.differences())
            .or_else(|| self.blocked())
            .or_else(|| self.missing());
        let told = told.or_else(|| self.messages()).or_else(|| self.lost()).or_else(|| self.ended())?;
        Some(format!("{}, {} ranks: {told}", self.name(), self.size))
    }

    /// That nothing is.
    pub fn well(&self) -> String {
        let waits = self.dumps().filter(|dump| dump.waits.is_some()).count();
        format!(
            "{}, {} ranks: all have come to the same {} collectives and to each other's messages; {waits} wait for the device.",
            self.name(),
            self.size,
            self.front()
        )
    }

    /// Who has not come to the start.
    fn unstarted(&self) -> Option<String> {
        let waiting: Vec<_> = self.dumps().filter(|dump| dump.starts).map(|dump| dump.rank).collect();
        let absent = self.absent();
        if waiting.is_empty() || absent.is_empty() {
            return None;
        }
        Some(format!(
            "{} {} not started, for which {} {} waited.",
            ranks(&absent),
            has(&absent),
            ranks(&waiting),
            has(&waiting)
        ))
    }

    /// What the ranks of a clique have found themselves.
    fn heard(&self) -> Option<String> {
        let cause = self.dumps().filter(|dump| dump.differs).find_map(|dump| dump.cause.clone());
        cause.map(|cause| format!("its ranks compare what they do, and have found: {cause}."))
    }

    /// Why it has ended, where nothing else tells: what a rank waits for before it is issued is not written down.
    fn ended(&self) -> Option<String> {
        let cause = self.dumps().find_map(|dump| dump.cause.clone())?;
        Some(format!("nothing differs in what its ranks have issued. It has ended: {cause}."))
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
    fn blocked(&self) -> Option<String> {
        let behind = self.behind();
        // What it has done last, whether it is in that call still or was woken.
        let in_message = |rank: &usize| {
            let last = self.dumps[rank].entries.last();
            last.is_some_and(|entry| !entry.is_done() && entry.peer.is_some())
        };
        if behind.iter().any(in_message) { self.messages() } else { None }
    }

    /// Who has not come to the collective in which the others wait.
    fn missing(&self) -> Option<String> {
        // Points count as done as soon as a rank has come to them: what is waited for may lie before one.
        let open =
            |dump: &Dump| dump.collectives().filter(|(_, entry)| !entry.is_done()).map(|(number, _)| number).max();
        let (front, absent) = (self.dumps().filter_map(open).max()?, self.absent());
        let mut behind: Vec<_> = self.dumps().filter(|dump| dump.progress() < front).map(|dump| dump.rank).collect();
        let at = |dump: &Dump| dump.collectives().find(|(number, _)| *number == front).map(|(_, entry)| entry.clone());
        let here: Vec<_> = self.dumps().filter_map(|dump| Some((dump.rank, at(dump)?))).collect();
        let (_, entry) = here.iter().find(|(_, entry)| !entry.is_done())?;
        if behind.is_empty() && absent.is_empty() {
            return None;
        }
        let mut told = Vec::new();
        // Who is furthest behind is waited for by those between.
        let least = behind.iter().map(|rank| self.dumps[rank].progress()).min();
        behind.retain(|rank| Some(self.dumps[rank].progress()) == least);
        if !behind.is_empty() {
            let next = least.unwrap_or(0) + 1;
            let first = self.dumps().find_map(|dump| dump.collectives().find(|(number, _)| *number == next));
            let (what, since) = first.map_or((&entry.what, entry.time), |(_, entry)| (&entry.what, entry.time));
            told.push(format!("{} {} not come to collective {next}, {what}", ranks(&behind), has(&behind)));
            told.extend(behind.iter().take(4).map(|rank| whereabouts(&self.dumps[rank], since)));
        }
        if !absent.is_empty() {
            told.push(format!(
                "{} {} left no dump: it has died, or hangs outside of this crate (nccl::dump_on_signal makes it tell), or never came so far, or its dump is elsewhere",
                ranks(&absent),
                has(&absent)
            ));
        }
        let waiting: Vec<_> = here.iter().map(|(rank, _)| *rank).collect();
        Some(format!(
            "{}; {} {} come to collective {front}, {}.",
            told.join("; "),
            ranks(&waiting),
            has(&waiting),
            entry.what
        ))
    }

    /// A message of which only one end was made, or both in different ways.
    fn messages(&self) -> Option<String> {
        for (&from, sender) in &self.dumps {
            for (&to, receiver) in self.dumps.iter().filter(|(to, _)| **to != from) {
                let (sent, got) = (sender.messages((to, false)), receiver.messages((from, true)));
                let (sent, got): (BTreeMap<_, _>, BTreeMap<_, _>) = (sent.collect(), got.collect());
                for number in sent.keys().filter(|number| got.contains_key(number)) {
                    let (one, other) = (sent[number], got[number]);
                    if one.size != other.size {
                        return Some(format!(
                            "message {number} from rank {from} to rank {to} has two sizes: rank {from} called {}, rank {to} called {}.",
                            one.what, other.what
                        ));
                    }
                }
                let last = |all: &BTreeMap<u64, &Entry>| all.keys().next_back().copied().unwrap_or(0);
                let (more, less, what) = match (last(&sent), last(&got)) {
                    (sends, receives) if sends > receives => (sender, receiver, sent.get(&(receives + 1))),
                    (sends, receives) if sends < receives => (receiver, sender, got.get(&(sends + 1))),
                    _ => continue,
                };
                let Some(what) = what.filter(|entry| !entry.is_done()) else { continue };
                return Some(format!(
                    "rank {} has called {}, and rank {} has not made the other end; {}.",
                    more.rank,
                    what.what,
                    less.rank,
                    whereabouts(less, what.time)
                ));
            }
        }
        None
    }

    /// Ranks that are gone, where nobody waits in a collective.
    fn lost(&self) -> Option<String> {
        let absent = self.absent();
        let waits = self.dumps().find(|dump| dump.entries.iter().any(|entry| !entry.is_done()));
        let waits = waits.filter(|_| !absent.is_empty())?;
        let what = waits.waits.clone().unwrap_or_else(|| format!("rank {} has work under way", waits.rank));
        Some(format!("{} {} left no dump, and {what}.", ranks(&absent), has(&absent)))
    }
}

/// What a rank that is waited for has done last.
fn whereabouts(dump: &Dump, since: u64) -> String {
    let rank = dump.rank;
    let now = match dump.entries.iter().rev().find(|entry| entry.is_awaited()) {
        Some(entry) => format!(", and is in the call of {} now", entry.what),
        None => ", and is in no call now".to_owned(),
    };
    match dump.entries.iter().rev().find(|entry| !entry.is_awaited()) {
        Some(last) if last.time <= since => {
            format!("rank {rank} has issued {} last, {} before{now}", last.what, later(last.time, since))
        }
        Some(last) => format!("rank {rank} has issued {} since{now}", last.what),
        None => format!("rank {rank} has issued nothing{now}"),
    }
}
