//! Threads that do something for a while, and rest then until the next one asks.

use crate::lock::Mutex;
use crate::report;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// What is to be done.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Those that rest.
static RESTING: Mutex<Vec<Hand>> = Mutex::new(Vec::new());

/// How long one rests before it ends.
const REST: Duration = Duration::from_secs(2);

/// A thread that has nothing to do.
#[derive(Debug, Clone)]
pub(super) struct Hand {
    number: u64,
    jobs: Sender<Job>,
}

impl Hand {
    /// So many threads; none, where there are not so many to be had.
    pub(super) fn several(count: usize) -> Option<Vec<Self>> {
        let mut resting = RESTING.lock();
        let left = resting.len().saturating_sub(count);
        let mut hands = resting.split_off(left);
        drop(resting);
        while hands.len() < count {
            let Some(hand) = Self::start() else {
                RESTING.lock().append(&mut hands);
                return None;
            };
            hands.push(hand);
        }
        Some(hands)
    }

    fn start() -> Option<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let (jobs, receiver) = channel();
        let hand = Self { number: NUMBERS.fetch_add(1, Ordering::Relaxed), jobs };
        let again = hand.clone();
        let started = std::thread::Builder::new().name("gpucomm-graph".to_owned()).spawn(move || again.work(&receiver));
        if let Err(error) = &started {
            report::line(format!("cannot start a thread for a graph: {error}"));
        }
        started.is_ok().then_some(hand)
    }

    /// Has it do `job`.
    pub(super) fn give(self, job: Job) {
        // It does not end before it has taken itself out of those that rest.
        let _ = self.jobs.send(job);
    }

    fn work(&self, jobs: &Receiver<Job>) {
        loop {
            match jobs.recv_timeout(REST) {
                Ok(job) => {
                    job();
                    RESTING.lock().push(self.clone());
                }
                // Who has taken it meanwhile gives it something.
                Err(RecvTimeoutError::Timeout) if !self.withdraw() => {}
                Err(_) => return,
            }
        }
    }

    /// Rests no more. Whether it did.
    fn withdraw(&self) -> bool {
        let mut resting = RESTING.lock();
        let at = resting.iter().position(|other| other.number == self.number);
        at.map(|at| drop(resting.swap_remove(at))).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_work_at_once_as_were_asked_for() {
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(7));
        let (done, ended) = channel();
        for _ in 0..3 {
            for hand in Hand::several(6).expect("threads") {
                let (barrier, done) = (barrier.clone(), done.clone());
                hand.give(Box::new(move || {
                    barrier.wait();
                    done.send(()).expect("somebody waits");
                }));
            }
            barrier.wait();
            (0..6).for_each(|_| ended.recv_timeout(Duration::from_secs(20)).expect("all came to their end"));
        }
    }
}
