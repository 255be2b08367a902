//! What a server holds of its jobs: their keys, their ranks, and which of these have departed.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::greeting::{Hello, Purpose};
use crate::exchange::table::{Departures, MAX_DEPARTURES, Table};

/// How long a job without ranks keeps its keys: its launcher may be starting its ranks again.
const EMPTY: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(60) };

/// The most jobs. When another one comes, the one that has been empty longest goes.
const MAX_JOBS: usize = if cfg!(test) { 8 } else { 4096 };

/// The jobs of a server.
#[derive(Debug)]
pub(super) struct Jobs {
    /// The keys of all jobs: each begins with the number of its job.
    pub(super) table: Table,
    jobs: HashMap<u64, Job>,
    numbers: HashMap<Arc<str>, u64>,
    next: u64,
    /// The jobs without ranks, by the time since when.
    empty: BTreeSet<(Instant, u64)>,
    /// Whether jobs end. The server of rank 0 has one, which lasts as long as the server.
    end: bool,
    /// How many departures are remembered, of all jobs.
    departed: usize,
    /// How many ranks are connected, of all jobs: for the thread that holds the server.
    connected: Arc<AtomicUsize>,
}

/// One job.
#[derive(Debug)]
struct Job {
    name: Arc<str>,
    size: usize,
    /// The ranks that are connected, by the numbers of their starts.
    present: HashMap<u64, Present>,
    departures: Departures,
    /// Since when no rank has been connected.
    empty_since: Option<Instant>,
}

/// A start of a rank that is connected.
#[derive(Debug)]
struct Present {
    rank: usize,
    /// How many connections say so: one, from a client that keeps to the protocol.
    connections: usize,
}

impl Jobs {
    pub(super) fn new(end: bool, connected: Arc<AtomicUsize>) -> Self {
        let (table, jobs, numbers, empty) = Default::default();
        Self { table, jobs, numbers, next: 0, empty, end, departed: 0, connected }
    }

    /// The number of the job of a client, which is one of its ranks now if it has come to stay.
    pub(super) fn enter(&mut self, hello: &Hello) -> Result<u64, String> {
        let stays = hello.purpose == Purpose::Presence;
        let known = self.numbers.get(&*hello.job).and_then(|number| Some((*number, self.jobs.get(number)?)));
        let number = match known {
            Some((number, job)) if job.size == hello.size => number,
            // The job is started again, with another number of ranks.
            Some((number, job)) if stays && self.end && job.present.is_empty() => {
                self.remove(number);
                self.begin(hello)?
            }
            Some((_, job)) => return Err(format!("expected one of {} ranks, got one of {}", job.size, hello.size)),
            None if stays || !self.end => self.begin(hello)?,
            None => return Err(format!("no rank of the job {:?} is connected to this server any more", hello.job)),
        };
        if stays && let Some(job) = self.jobs.get_mut(&number) {
            let present = job.present.entry(hello.id).or_insert(Present { rank: hello.rank, connections: 0 });
            present.connections += 1;
            if let Some(since) = job.empty_since.take() {
                self.empty.remove(&(since, number));
            }
            self.connected.fetch_add(1, Ordering::Relaxed);
        }
        Ok(number)
    }

    fn begin(&mut self, hello: &Hello) -> Result<u64, String> {
        if self.jobs.len() >= MAX_JOBS {
            let Some((_, number)) = self.empty.first() else {
                return Err(format!("the server is full: it has ranks of {MAX_JOBS} jobs"));
            };
            self.remove(*number);
        }
        let (name, number) = (Arc::<str>::from(&*hello.job), self.next);
        self.next += 1;
        let now = Instant::now();
        let job = Job {
            name: Arc::clone(&name),
            size: hello.size,
            present: HashMap::new(),
            departures: Departures::default(),
            empty_since: Some(now),
        };
        self.empty.insert((now, number));
        self.jobs.insert(number, job);
        self.numbers.insert(name, number);
        Ok(number)
    }

    fn remove(&mut self, number: u64) {
        let Some(job) = self.jobs.remove(&number) else { return };
        self.numbers.remove(&job.name);
        if let Some(since) = job.empty_since {
            self.empty.remove(&(since, number));
        }
        self.departed -= job.departures.len();
        self.table.clear(&number.to_be_bytes());
    }

    /// Whether this job is there. A client may stay longer than its job.
    pub(super) fn has(&self, number: u64) -> bool {
        self.jobs.contains_key(&number)
    }

    /// Notes how a start of a rank has departed, unless that is known. If too many departures are
    /// remembered, the job with the most forgets its oldest one.
    pub(super) fn depart(&mut self, number: u64, id: u64, how: &str) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let before = job.departures.len();
        job.departures.record(id, how);
        self.departed += job.departures.len() - before;
        if self.departed > MAX_DEPARTURES
            && let Some(job) = self.jobs.values_mut().max_by_key(|job| job.departures.len())
        {
            job.departures.forget_oldest();
            self.departed -= 1;
        }
    }

    /// How a start of a rank has departed, if it has.
    pub(super) fn departure(&self, number: u64, id: u64) -> Option<&str> {
        self.jobs.get(&number)?.departures.get(id)
    }

    /// A connection of a start of a rank has been closed.
    pub(super) fn leave(&mut self, number: u64, id: u64) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let Entry::Occupied(mut present) = job.present.entry(id) else { return };
        self.connected.fetch_sub(1, Ordering::Relaxed);
        present.get_mut().connections -= 1;
        if present.get().connections > 0 {
            return;
        }
        present.remove();
        if job.present.is_empty() {
            let now = Instant::now();
            job.empty_since = Some(now);
            self.empty.insert((now, number));
        }
    }

    /// The starts of this rank that are connected, and the number of their job.
    pub(super) fn starts(&self, name: &str, rank: usize) -> Option<(u64, Vec<u64>)> {
        let number = *self.numbers.get(name)?;
        let present = self.jobs.get(&number)?.present.iter();
        Some((number, present.filter(|(_, present)| present.rank == rank).map(|(id, _)| *id).collect()))
    }

    /// When the next job ends, of those that are empty.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let (since, _) = self.empty.first().filter(|_| self.end)?;
        Some(*since + EMPTY)
    }

    /// Ends the jobs that have been empty for long.
    pub(super) fn end_empty(&mut self, now: Instant) {
        while self.next_end().is_some_and(|end| end <= now)
            && let Some((_, number)) = self.empty.first().copied()
        {
            self.remove(number);
        }
    }

    /// Panics where the parts contradict each other.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) {
        assert!(self.table.is_consistent() && self.jobs.len() == self.numbers.len() && self.jobs.len() <= MAX_JOBS);
        let connections = |job: &Job| job.present.values().map(|present| present.connections).sum::<usize>();
        assert_eq!(self.jobs.values().map(connections).sum::<usize>(), self.connected.load(Ordering::Relaxed));
        assert_eq!(self.jobs.values().map(|job| job.departures.len()).sum::<usize>(), self.departed);
        for (number, job) in &self.jobs {
            assert_eq!(self.numbers.get(&job.name), Some(number));
            assert!(job.departures.is_consistent() && job.present.is_empty() == job.empty_since.is_some());
            assert!(job.empty_since.is_none_or(|since| self.empty.contains(&(since, *number))));
        }
        assert_eq!(self.jobs.values().filter(|job| job.present.is_empty()).count(), self.empty.len());
        let is_of_a_job = |key: &[u8]| key.first_chunk().is_some_and(|number| self.has(u64::from_be_bytes(*number)));
        assert!(self.table.keys().all(|key| is_of_a_job(&key)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(job: &str, purpose: Purpose, (rank, size): (usize, usize), id: u64) -> Hello {
        Hello { purpose, rank, size, id, job: job.to_owned(), server: 0, nonce: None }
    }

    fn jobs() -> Jobs {
        Jobs::new(true, Arc::default())
    }

    fn comes(jobs: &mut Jobs, job: &str, ranks: (usize, usize), id: u64) -> Result<u64, String> {
        let number = jobs.enter(&hello(job, Purpose::Presence, ranks, id));
        jobs.check();
        number
    }

    #[test]
    fn jobs_are_apart_and_their_ranks_agree_on_the_size() {
        let mut jobs = jobs();
        let first = comes(&mut jobs, "a", (0, 2), 1).unwrap();
        let second = comes(&mut jobs, "b", (0, 3), 2).unwrap();
        assert_ne!(first, second);
        assert_eq!(comes(&mut jobs, "a", (1, 2), 3), Ok(first));
        let why = comes(&mut jobs, "a", (1, 3), 4).unwrap_err();
        assert!(why.contains("expected one of 2 ranks, got one of 3"), "{why}");
        jobs.depart(first, 3, "has died");
        assert_eq!((jobs.departure(first, 3), jobs.departure(second, 3)), (Some("has died"), None));
        assert_eq!(jobs.starts("a", 1), Some((first, vec![3])));
        assert_eq!(jobs.connected.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_job_ends_a_while_after_its_last_rank_and_leaves_nothing() {
        let mut jobs = jobs();
        let number = comes(&mut jobs, "a", (0, 1), 1).unwrap();
        jobs.table.set(&[&number.to_be_bytes()[..], b"key"].concat(), b"value").unwrap();
        assert_eq!(jobs.next_end(), None);
        jobs.depart(number, 1, "has died");
        jobs.leave(number, 1);
        // Started again in place: the keys are there.
        assert_eq!(comes(&mut jobs, "a", (0, 1), 2), Ok(number));
        assert_eq!((jobs.next_end(), jobs.table.len()), (None, 1));
        jobs.leave(number, 2);
        let end = jobs.next_end().unwrap();
        jobs.end_empty(end.checked_sub(Duration::from_millis(1)).unwrap());
        assert!(jobs.has(number));
        // A connection for requests does not make a job.
        jobs.end_empty(end);
        jobs.check();
        assert!(!jobs.has(number) && jobs.table.len() == 0 && jobs.departed == 0 && jobs.next_end().is_none());
        let why = jobs.enter(&hello("a", Purpose::Requests, (0, 1), 2)).unwrap_err();
        assert!(why.contains("no rank of the job \"a\""), "{why}");
    }

    #[test]
    fn a_job_that_is_started_again_may_have_another_size() {
        let mut jobs = jobs();
        let number = comes(&mut jobs, "a", (0, 4), 1).unwrap();
        jobs.table.set(&[&number.to_be_bytes()[..], b"key"].concat(), b"value").unwrap();
        jobs.leave(number, 1);
        let again = comes(&mut jobs, "a", (0, 3), 2).unwrap();
        assert!(again != number && !jobs.has(number) && jobs.table.len() == 0);
    }

    #[test]
    fn empty_jobs_make_room_and_departures_are_bounded() {
        let mut jobs = jobs();
        let numbers: Vec<u64> =
            (0..MAX_JOBS as u64).map(|id| comes(&mut jobs, &id.to_string(), (0, 1), id).unwrap()).collect();
        let why = comes(&mut jobs, "more", (0, 1), 99).unwrap_err();
        assert!(why.contains("the server is full"), "{why}");
        jobs.leave(numbers[2], 2);
        comes(&mut jobs, "more", (0, 1), 99).unwrap();
        assert!(!jobs.has(numbers[2]));
        for id in 0..MAX_DEPARTURES as u64 + 5 {
            jobs.depart(numbers[0], id, "has died");
            jobs.depart(numbers[1], id % 4, "has left");
        }
        jobs.check();
        assert_eq!(jobs.departed, MAX_DEPARTURES);
        assert_eq!((jobs.departure(numbers[0], 0), jobs.departure(numbers[1], 0)), (None, Some("has left")));
    }
}
