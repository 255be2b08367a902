//! Who is inside NCCL, and who is not.

use super::communicator::Communicator;
use super::dump::{Dump, Entry};
use super::whereabouts::{no_dump, whereabouts};
use super::words::{is, later, ranks};

/// Who is inside for less than so many nanoseconds comes out by itself.
const LONG: u64 = 100_000_000;

impl Communicator {
    /// Who is inside NCCL still, where all have come to the same.
    pub fn inside(&self) -> Option<String> {
        let front = self.front();
        let at = |dump: &Dump| dump.collectives().find(|(number, _)| *number == front).map(|(_, entry)| entry.clone());
        let here: Vec<_> = self.dumps().filter_map(|dump| Some((dump.rank, at(dump)?))).collect();
        let (inside, out): (Vec<_>, Vec<_>) = here.iter().partition(|(_, entry)| entry.is_inside());
        let (_, entry) = inside.first()?;
        if !self.absent().is_empty() {
            return None;
        }
        let names = |all: &[&(usize, Entry)]| all.iter().map(|(rank, _)| *rank).collect::<Vec<_>>();
        let (inside, out) = (names(&inside), names(&out));
        let all = format!("all have come to collective {front}, {}", entry.what);
        Some(if inside.len() == self.size() {
            format!("{all}, and all are inside NCCL with it still.")
        } else if out.is_empty() {
            format!("{all}; {} {} inside NCCL with it still.", ranks(&inside), is(&inside))
        } else {
            let (who, others) = (ranks(&inside), ranks(&out));
            format!("{all}; {who} {} inside NCCL with it still, and {others} {} not.", is(&inside), is(&out))
        })
    }

    /// Who is inside NCCL for a method that is none of the entries, such as a shrink, and who is not.
    pub fn visiting(&self) -> Option<String> {
        let long =
            |dump: &&Dump| dump.inside.as_ref().is_some_and(|(_, since)| dump.time.saturating_sub(*since) >= LONG);
        let (inside, out): (Vec<_>, Vec<_>) = self.dumps().partition(long);
        let since = inside.iter().filter_map(|dump| Some(dump.inside.as_ref()?.1)).min()?;
        let mut methods: Vec<(&str, u64, Vec<usize>)> = Vec::new();
        for dump in &inside {
            let Some((method, since)) = &dump.inside else { continue };
            let time = dump.time.saturating_sub(*since);
            match methods.iter_mut().find(|(known, ..)| known == method) {
                Some((_, longest, who)) => {
                    *longest = time.max(*longest);
                    who.push(dump.rank);
                }
                None => methods.push((method, time, vec![dump.rank])),
            }
        }
        let mut told: Vec<_> = methods
            .iter()
            .map(|(method, time, who)| {
                format!("{} {} inside NCCL in {method}, since {}", ranks(who), is(who), later(0, *time))
            })
            .collect();
        if !out.is_empty() {
            let who: Vec<_> = out.iter().map(|dump| dump.rank).collect();
            let of: Vec<_> = out.iter().take(4).map(|dump| whereabouts(dump, since)).collect();
            // Which those are NCCL alone is told. The name of the method is all that a dump has of it.
            let left_out = methods.iter().any(|(method, ..)| method.starts_with("shrink"));
            let left_out = if left_out { ", as need not be who is left out" } else { "" };
            told.push(format!("{} {} not{left_out}: {}", ranks(&who), is(&who), of.join("; ")));
        }
        if !self.absent().is_empty() {
            told.push(no_dump(self.absent()));
        }
        Some(format!("{}.", told.join("; ")))
    }
}
