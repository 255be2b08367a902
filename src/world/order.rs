//! The order of lanes, on all ranks: the sequencer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use super::lane::{LONGEST, Lane, key_of, takes_part};
use super::note::Note;
use super::queue::Queue;
use super::threads::spawn;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::lock::Mutex;

/// Whose turn it is. What has no lane is of one of its own, in which all take part.
#[derive(Debug)]
pub(super) enum Order {
    /// As requests come to each rank.
    None,
    /// All ranks are here.
    Here(Mutex<HashMap<Arc<str>, Known>>),
    /// Others are in other processes: one log in the store, to which the first rank of each lane adds.
    Far(Sender<Arc<str>>),
}

/// How far a lane is.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// How many turns it has had.
    turns: u64,
    /// How many requests each rank has for it.
    submitted: HashMap<usize, u64>,
}

impl Order {
    pub(super) fn here() -> Self {
        Self::Here(Mutex::default())
    }

    /// A request of `rank` was put into its queue. Whether somebody has the turn now, who perhaps waits for room.
    pub(super) fn announce(&self, lane: Option<&Lane>, rank: usize, queues: &[(usize, Arc<Queue>)]) -> bool {
        match self {
            Self::None => false,
            Self::Here(lanes) => {
                let key = key_of(lane);
                let mut lanes = lanes.lock();
                let known = lanes.entry(Arc::clone(&key)).or_default();
                let submitted = known.submitted.entry(rank).or_default();
                *submitted += 1;
                // Whoever comes first takes the turn for all, under one lock: one order.
                let first = *submitted > known.turns;
                let members = || queues.iter().filter(|(rank, _)| lane.is_none_or(|lane| lane.has(*rank)));
                if first {
                    known.turns += 1;
                    members().for_each(|(_, queue)| queue.turn(Arc::clone(&key)));
                }
                if members().all(|(rank, _)| known.submitted.get(rank) == Some(&known.turns)) {
                    // All members have submitted theirs: the entry can go.
                    lanes.remove(&key);
                }
                first
            }
            Self::Far(sender) => {
                // One rank alone says so: each turn in the log is a request of all that take part.
                if lane.map_or(0, Lane::first) == rank {
                    let _ = sender.send(key_of(lane));
                }
                false
            }
        }
    }
}

/// How long a look into the store takes.
const LOOK: Duration = Duration::from_millis(200);

/// The key with the number of the last entry of the log.
const TURNS: &str = "world/turns";

/// The key of an entry of the log.
fn entry(number: i64) -> String {
    format!("world/turn/{number}")
}

/// Follows the log of the store for one rank, and adds to it, on three threads that end when `goes_on` says no. `left` gives
/// the ranks that leave in good order. Returns the threads too.
///
/// # Errors
/// [`Error::InvalidUsage`] where no thread can be started.
pub(super) fn follow(
    exchange: &Exchange,
    queue: &Arc<Queue>,
    left: Receiver<usize>,
    goes_on: impl Fn() -> bool + Clone + Send + 'static,
    fails: impl Fn(&Error) + Clone + Send + 'static,
) -> Result<(Order, [JoinHandle<()>; 3])> {
    let (sender, receiver) = mpsc::channel();
    let (own, still, failed) = (exchange.with_timeout(Duration::from_secs(10)), goes_on.clone(), fails.clone());
    let appends = spawn("gpucomm-turns", move || {
        if let Err(error) = append(&own, &receiver, &still) {
            failed(&error);
        }
    })?;
    let (own, queue) = (exchange.with_timeout(LOOK), Arc::clone(queue));
    let (mut log, positions) = (Log::new(exchange.with_timeout(LOOK)), mpsc::channel());
    let still = goes_on.clone();
    let reads = spawn("gpucomm-order", move || {
        if let Err(error) = read(&own, &queue, &left, &positions.0, &goes_on) {
            fails(&error);
        }
    })?;
    let cleans = spawn("gpucomm-turns-read", move || log.clean(&positions.1, &still))?;
    Ok((Order::Far(sender), [appends, reads, cleans]))
}

/// Adds turns to the log: all that have come meanwhile in one entry.
fn append(exchange: &Exchange, turns: &Receiver<Arc<str>>, goes_on: &impl Fn() -> bool) -> Result<()> {
    while goes_on() {
        let first = match turns.recv_timeout(LOOK) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let mut all = first.to_string();
        while all.len() < LONGEST
            && let Ok(next) = turns.try_recv()
        {
            all.push('\n');
            all.push_str(&next);
        }
        let number = exchange.add(TURNS, 1)?;
        exchange.set(&entry(number), all.as_bytes())?;
    }
    Ok(())
}

/// After how many entries a rank publishes how far it has read.
const PUBLISH: i64 = 256;

/// Gives the queue its turns, as they stand in the log, and sends the number of each entry after which
/// it is to be published.
fn read(
    exchange: &Exchange,
    queue: &Queue,
    left: &Receiver<usize>,
    positions: &Sender<i64>,
    goes_on: &impl Fn() -> bool,
) -> Result<()> {
    let (mut number, mut leaving, rank) = (1, Vec::new(), exchange.rank());
    while goes_on() {
        leaving.extend(left.try_iter());
        // A rank that leaves has added all its turns before. They end where the log ends now.
        if !leaving.is_empty() && last_entry(exchange).is_some_and(|last| last < number) {
            leaving.drain(..).for_each(|rank| queue.leaves(rank));
        }
        let text = match exchange.get(&entry(number)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(Error::Timeout { .. }) => continue,
            Err(error) => return Err(error),
        };
        for turn in text.split('\n') {
            if takes_part(turn, rank) {
                queue.turn(turn.into());
            }
        }
        queue.ask_again();
        if number % PUBLISH == 0 {
            let _ = positions.send(number);
        }
        number += 1;
    }
    Ok(())
}

/// The number of the last entry of the log. `None` if the store does not tell it now.
fn last_entry(exchange: &Exchange) -> Option<i64> {
    match exchange.try_get(TURNS).ok()? {
        Some(bytes) => std::str::from_utf8(&bytes).ok()?.parse().ok(),
        None => Some(0),
    }
}

/// The entries of the log that are in the store, as one rank knows them.
struct Log {
    exchange: Exchange,
    /// The last entry that this rank has read.
    read: i64,
    /// The first entry that may be in the store.
    first: i64,
}

/// The note with the first entry that may be in the store.
const FIRST: &str = "world/turns/first";

impl Log {
    fn new(exchange: Exchange) -> Self {
        Self { exchange, read: 0, first: 1 }
    }

    /// Publishes how far this rank has read, and removes the entries that all ranks have read. On a thread
    /// of its own: a slow store delays no turn.
    fn clean(&mut self, positions: &Receiver<i64>, goes_on: &impl Fn() -> bool) {
        while goes_on() {
            match positions.recv_timeout(LOOK) {
                Ok(position) => self.read = positions.try_iter().last().unwrap_or(position),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // An entry that cannot be removed now is removed after the next position.
            let _ = self.clean_now(goes_on);
        }
    }

    fn clean_now(&mut self, goes_on: &impl Fn() -> bool) -> Result<()> {
        let position = |rank: usize| format!("world/turns/read/{rank}");
        let (rank, size) = (self.exchange.rank(), self.exchange.size());
        self.exchange.leave_note(&position(rank), self.read.to_string().as_bytes(), LOOK)?;
        let keys: Vec<_> = (0..size).map(Note::key).chain((0..size).map(position)).chain([FIRST.to_owned()]).collect();
        let notes = self.exchange.notes_now(&keys)?;
        let number = |note: &Option<Vec<u8>>| std::str::from_utf8(note.as_deref()?).ok()?.parse::<i64>().ok();
        // A rank that has ended reads no more entries. The first of the others removes them.
        let mut others = (0..size).filter(|rank| notes[*rank].is_none()).peekable();
        if others.peek() != Some(&rank) {
            return Ok(());
        }
        let passed = others.map(|rank| number(&notes[size + rank]).unwrap_or(0)).min().unwrap_or(0);
        self.first = self.first.max(number(&notes[2 * size]).unwrap_or(1));
        while self.first <= passed && goes_on() {
            self.exchange.delete(&entry(self.first))?;
            self.first += 1;
        }
        self.exchange.leave_note(FIRST, self.first.to_string().as_bytes(), LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_of_a_lane_of_one() {
        let (order, queues) = (Order::here(), [(0, Queue::new(4, true))]);
        assert!(order.announce(Some(&Lane::new("a")), 0, &queues));
        let Order::Here(lanes) = &order else { panic!("all are here") };
        assert!(lanes.lock().is_empty());
    }
}
