//! What is said of a communicator in which nothing is wrong.

use super::communicator::Communicator;
use super::dump::Dump;
use super::whereabouts::{no_dump, whereabouts};
use super::words::{has, ranks};

/// So many of what may be many are told.
const MOST: usize = 4;

impl Communicator {
    /// Whether it was closed, by all of whom there are dumps.
    pub fn is_closed(&self) -> bool {
        self.dumps().all(Dump::is_closed)
    }

    /// Who has come how far, and what is waited for.
    pub fn well(&self) -> String {
        let front = self.front();
        let (behind, ahead): (Vec<_>, Vec<_>) = self.dumps().partition(|dump| dump.progress() < front);
        let who = |all: &[&Dump]| all.iter().map(|dump| dump.rank).collect::<Vec<_>>();
        let mut told = Vec::new();
        if behind.is_empty() {
            let all = if self.absent().is_empty() { "all" } else { "all that have left a dump" };
            let apart = self.unmatched();
            let messages = if apart.is_empty() { " and to each other's messages" } else { "" };
            told.push(format!("{all} have come to the same {front} collectives{messages}"));
            told.extend(apart.into_iter().take(MOST));
        } else {
            let at =
                |dump: &&Dump| dump.collectives().find(|(number, _)| *number == front).map(|(_, entry)| entry.clone());
            let entry = ahead.iter().find_map(at);
            let what = entry.as_ref().map_or(String::new(), |entry| format!(", {}", entry.what));
            let (first, others) = (who(&ahead), who(&behind));
            told.push(format!("{} {} come to collective {front}{what}", ranks(&first), has(&first)));
            told.push(format!("{} {} not", ranks(&others), has(&others)));
            let since = entry.map_or(0, |entry| entry.time);
            told.extend(behind.iter().take(MOST).map(|dump| whereabouts(dump, since)));
        }
        if !self.absent().is_empty() {
            told.push(no_dump(self.absent()));
        }
        if self.is_closed() {
            told.push("it was closed".to_owned());
        }
        let waits: Vec<_> = self.dumps().filter_map(|dump| dump.waits.clone()).collect();
        let more = waits.len().saturating_sub(MOST);
        told.extend(waits.into_iter().take(MOST));
        if more > 0 {
            told.push(format!("{more} more wait"));
        }
        format!("{}.", told.join("; "))
    }

    /// Ranks of which one has come to more messages than the other, in words.
    fn unmatched(&self) -> Vec<String> {
        let mut told = Vec::new();
        for from in self.dumps() {
            for to in self.dumps().filter(|to| to.rank != from.rank) {
                let sent = from.message_progress((to.rank, false));
                let received = to.message_progress((from.rank, true));
                if sent != received {
                    let (from, to) = (from.rank, to.rank);
                    told.push(format!(
                        "rank {from} has sent {sent} messages to rank {to}, which has received {received}"
                    ));
                }
            }
        }
        told
    }
}
