//! The dumps of one communicator.

use std::collections::{BTreeMap, BTreeSet};

use super::cause::Cause;
use super::dump::{Dump, Entry};
use super::late;
use super::words::{Paragraph, later};

/// So many nanoseconds before others, dumps are of another run, or of what has ended long ago.
const EARLIER: u64 = 120_000_000_000;

/// One communicator, by the dumps of its ranks; the newest of each rank.
#[derive(Debug)]
pub struct Communicator {
    dumps: BTreeMap<usize, Dump>,
    size: usize,
    absent: Vec<usize>,
}

/// What a rank waits in, and for whom.
pub struct Awaited {
    pub what: String,
    pub others: Vec<usize>,
    pub in_message: bool,
    /// Whether they have come to it as well. It may be done then, and nobody has looked.
    pub has_met: bool,
}

impl Communicator {
    pub fn of(mut all: Vec<Dump>) -> Self {
        all.sort_by_key(|dump| dump.time);
        // One of them may be broken.
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        all.iter().for_each(|dump| *sizes.entry(dump.size).or_default() += 1);
        let most = sizes.values().max().copied();
        let size = sizes.into_iter().find(|(_, count)| Some(*count) == most).map_or(0, |(size, _)| size);
        let dumps: BTreeMap<_, _> =
            all.into_iter().filter(|dump| dump.rank < size).map(|dump| (dump.rank, dump)).collect();
        let absent = (0..size).filter(|rank| !dumps.contains_key(rank)).collect();
        Self { dumps, size, absent }
    }

    pub fn dumps(&self) -> impl Iterator<Item = &Dump> {
        self.dumps.values()
    }

    pub fn dump(&self, rank: usize) -> Option<&Dump> {
        self.dumps.get(&rank)
    }

    /// That of who is driven by this process on this device.
    pub fn dump_at(&self, place: &(String, u64, String)) -> Option<&Dump> {
        self.dumps().find(|dump| dump.place == *place)
    }

    /// What a rank waits in, if that is what it does last here.
    pub fn awaited(&self, dump: &Dump) -> Option<Awaited> {
        if let Some(what) = &dump.compares {
            let others = self.dumps().filter(|other| other.compares.is_none()).map(|other| other.rank);
            let others: Vec<_> = others.chain(self.absent.iter().copied()).collect();
            let what = format!("a comparison ({what})");
            return (!others.is_empty()).then_some(Awaited { what, others, in_message: false, has_met: false });
        }
        // The oldest first.
        let open: Vec<_> = dump.entries.iter().rev().take_while(|entry| !entry.is_done()).collect();
        let mut open = open.into_iter().rev();
        let found = |others: Vec<usize>, entry: &Entry, has_met| {
            let (what, in_message) = (entry.what.clone(), entry.peer.is_some());
            (!others.is_empty()).then_some(Awaited { what, others, in_message, has_met })
        };
        let awaited = open.clone().find_map(|entry| found(self.not_come(dump.rank, entry)?, entry, false));
        // Who has come to the other end of a message may be inside NCCL with another one of the same group.
        awaited.or_else(|| open.find_map(|entry| found(self.not_done(dump.rank, entry)?, entry, true)))
    }

    /// Who has not come to what a rank has issued.
    fn not_come(&self, rank: usize, entry: &Entry) -> Option<Vec<usize>> {
        let number = entry.sequence?;
        Some(match entry.peer {
            Some((peer, _)) if peer == rank => return None,
            Some((peer, receives)) => {
                let end = (rank, !receives);
                let made = self.dump(peer).is_some_and(|other| other.message_progress(end) >= number);
                (!made).then_some(peer).into_iter().collect()
            }
            None => {
                let behind = self.dumps().filter(|other| other.progress() < number).map(|other| other.rank);
                behind.chain(self.absent.iter().copied()).collect()
            }
        })
    }

    /// Who has come to the other end of a message, and is not done with it.
    fn not_done(&self, rank: usize, entry: &Entry) -> Option<Vec<usize>> {
        let (number, (peer, receives)) = (entry.sequence?, entry.peer?);
        let mut theirs = self.dump(peer).filter(|_| peer != rank)?.messages((rank, !receives));
        let is_open = theirs.any(|(theirs, entry)| theirs == number && !entry.is_done());
        Some(is_open.then_some(peer).into_iter().collect())
    }

    /// Describes the communicator: the names that its ranks give it, the beginning of its key, and
    /// the part that it is of another one.
    pub fn name(&self) -> String {
        let part = self.dumps().find_map(|dump| dump.part.clone()).map(|part| format!("the part {part}"));
        let key: String = self.dumps().next().map_or(String::new(), |dump| dump.key.chars().take(6).collect());
        let names: BTreeSet<_> = self.dumps().filter_map(|dump| dump.name.as_deref()).collect();
        let names: Vec<_> = names.into_iter().map(|name| format!("{name:?}")).collect();
        match (names.is_empty(), part) {
            (true, Some(part)) => format!("communicator {key} ({part})"),
            (true, None) => format!("communicator {key}"),
            (false, Some(part)) => format!("communicator {} ({key}, {part})", names.join(" or ")),
            (false, None) => format!("communicator {} ({key})", names.join(" or ")),
        }
    }

    /// The ranks that have left no dump.
    pub fn absent(&self) -> &[usize] {
        &self.absent
    }

    /// How many ranks it has.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How far the first of all ranks is in the sequence of collectives.
    pub fn front(&self) -> u64 {
        self.dumps().map(Dump::progress).max().unwrap_or(0)
    }

    /// The ranks that have not come to a collective to which others have.
    pub fn behind(&self) -> Vec<usize> {
        let front = self.front();
        self.dumps().filter(|dump| dump.progress() < front).map(|dump| dump.rank).collect()
    }

    /// When the last of its dumps was written.
    pub fn newest(&self) -> u64 {
        self.dumps().map(|dump| dump.time).max().unwrap_or(0)
    }

    /// What is said behind all that, where it is so much older than the `newest` of all dumps that it may be of an earlier run.
    pub fn age(&self, newest: u64) -> String {
        let own = self.newest();
        if newest.saturating_sub(own) < EARLIER {
            return String::new();
        }
        format!(
            " All of its dumps were written {} or more before the newest here: of an earlier run, perhaps.",
            later(own, newest)
        )
    }

    /// What stands before all that is said of it.
    pub fn head(&self) -> String {
        format!("{}, {} ranks: ", self.name(), self.size)
    }

    /// Whether it was split off from another one, with which it ends.
    pub fn is_part(&self) -> bool {
        self.dumps().any(|dump| dump.part.is_some())
    }

    /// Why it has ended, where nothing else tells: what a rank waits for before it is issued is not written down. A rank
    /// that was late is the culprit then.
    pub fn ended(&self) -> Option<Paragraph> {
        let cause = self.cause();
        let cause = cause.text()?;
        let late = late::find(self.dumps.values(), self.size);
        let is_culprit = late.is_some();
        let told = late.unwrap_or_else(|| "nothing differs in what its ranks have issued".to_owned());
        let text = format!("{told}. It has ended: {cause}.");
        Some(Paragraph { says_why: true, ..Paragraph::new(self.head(), text, is_culprit) })
    }

    pub fn cause(&self) -> Cause<'_> {
        Cause::of(self.dumps.values())
    }
}
