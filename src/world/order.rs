//! The order of lanes, on all ranks: the sequencer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::lane::{LONGEST, Lane, key_of, takes_part};
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
                    // All have come: nothing is to be known of it until somebody comes again.
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

/// The key of an entry of the log.
fn entry(number: i64) -> String {
    format!("world/turn/{number}")
}

/// Follows the log of the store for one rank, and adds to it, on two threads that end when `goes_on` says no.
///
/// # Errors
/// [`Error::InvalidUsage`] where no thread can be started.
pub(super) fn follow(
    exchange: &Exchange,
    rank: usize,
    queue: &Arc<Queue>,
    goes_on: impl Fn() -> bool + Clone + Send + 'static,
    fails: impl Fn(&Error) + Clone + Send + 'static,
) -> Result<Order> {
    let (sender, receiver) = mpsc::channel();
    let (own, still, failed) = (exchange.within(Duration::from_secs(10)), goes_on.clone(), fails.clone());
    spawn("gpucomm-turns", move || {
        if let Err(error) = append(&own, &receiver, &still) {
            failed(&error);
        }
    })?;
    let (own, queue) = (exchange.within(LOOK), Arc::clone(queue));
    spawn("gpucomm-order", move || {
        if let Err(error) = read(&own, rank, &queue, &goes_on) {
            fails(&error);
        }
    })?;
    Ok(Order::Far(sender))
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
        let number = exchange.add("world/turns", 1)?;
        exchange.set(&entry(number), all.as_bytes())?;
    }
    Ok(())
}

/// How many entries stay in the store behind the one that is read: who is so far behind has other troubles.
const KEPT: i64 = 4096;

fn read(exchange: &Exchange, rank: usize, queue: &Queue, goes_on: &impl Fn() -> bool) -> Result<()> {
    let mut number = 1;
    while goes_on() {
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
        if rank == 0 && number > KEPT {
            exchange.delete(&entry(number - KEPT))?;
        }
        number += 1;
    }
    Ok(())
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
