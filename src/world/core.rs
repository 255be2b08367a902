//! What all handles of a world have in common: its generations.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use super::completion::Poller;
use super::counters::{Counters, count};
use super::failure_reason::{Reason, SUBMIT};
use super::forked;
use super::health::{HealthState, Phase};
use super::listen;
use super::note::Note;
use super::options::{WhileDown, WorldOptions};
use super::order::{self, Order};
use super::queue::{Left, Queue};
use super::rank_thread::{Generation, RankThread};
use super::threads::spawn;
use super::traced;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::exchange::farewell::Telling;
use crate::lock::{Mutex, MutexGuard};
use crate::name::Name;
use crate::nccl::{Communicator, abort_all_within};

/// Where the ranks come from.
#[derive(Debug)]
pub(super) enum Source {
    /// All are here.
    Here,
    /// Others are in other processes, and meet here.
    Far(Exchange),
    /// Somebody has given the communicator, and nothing to meet at.
    Given,
}

/// What all handles of a world have in common.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) name: Name,
    pub(super) options: WorldOptions,
    pub(super) health_state: Arc<HealthState>,
    pub(super) counters: Arc<Counters>,
    pub(super) source: Mutex<Source>,
    /// Held by who rebuilds it, or ends it.
    pub(super) turn: Mutex<()>,
    /// Whether an attempt to rebuild it by itself is under way.
    pub(super) rebuilding: AtomicBool,
    /// The threads that may use the store: those of all generations, and those that end or rebuild them.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Whether it was closed, and its queues take no more requests.
    settled: AtomicBool,
    /// Held while requests are put into several queues.
    pub(super) together: Mutex<()>,
    now: Mutex<Option<Arc<Generation>>>,
    /// The queues of the next generation, where there are any.
    next: Mutex<Next>,
    me: Weak<Core>,
}

/// The queues of ranks that will be.
type Next = HashMap<usize, Arc<Queue>>;

/// Where a request goes.
pub(super) enum Way<'a> {
    /// To a rank.
    RankThread(Arc<Generation>, Arc<RankThread>),
    /// To a rank that will be, which does not begin as long as the guard is held.
    Queue(MutexGuard<'a, Next>, Arc<Queue>),
}

/// How long what the device has may take to end, after an abort.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The same after a missed deadline.
const PATIENCE_WHEN_LATE: Duration = Duration::from_secs(2);

/// How long the end of a generation that has failed for `cause` may take.
pub(super) fn patience(cause: &Error) -> Duration {
    if cause.waited().is_zero() { PATIENCE } else { PATIENCE_WHEN_LATE }
}

/// How long a thread that is inside code of the user's may take to return, after an abort, until what it was at is answered if that is too late.
const SOON: Duration = Duration::from_millis(500);

impl Core {
    pub(super) fn new(name: Name, options: WorldOptions, source: Source) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            health_state: Arc::new(HealthState::new(name.clone())),
            name,
            options,
            counters: Arc::default(),
            source: Mutex::new(source),
            turn: Mutex::default(),
            rebuilding: AtomicBool::new(false),
            threads: Mutex::default(),
            settled: AtomicBool::new(false),
            together: Mutex::default(),
            now: Mutex::default(),
            next: Mutex::default(),
            me: Weak::clone(me),
        })
    }

    pub(super) fn now(&self) -> Option<Arc<Generation>> {
        forked::lock(&self.now)?.clone()
    }

    /// What tells this that a generation has failed.
    fn alarm(&self, number: u64) -> impl Fn(&Error) + Clone + Send + Sync + use<> {
        let me = Weak::clone(&self.me);
        move |error: &Error| {
            if let Some(core) = me.upgrade() {
                core.alarmed(number, error);
            }
        }
    }

    /// A request has failed, in a way that perhaps ends the communicator.
    fn alarmed(&self, number: u64, error: &Error) {
        // Waits until a `begin` that is under way has published its generation.
        drop(self.next.lock());
        let Some(generation) = self.now().filter(|generation| generation.number == number) else { return };
        let alone = matches!(error, Error::InvalidUsage { .. } | Error::InvalidArgument { .. });
        if !alone || generation.failure().is_some() {
            self.fail(&generation, error);
        }
    }

    /// The generation has failed: nothing more comes to it, and what waits is told at once.
    pub(super) fn fail(&self, generation: &Generation, cause: &Error) {
        let first = generation.cause.set(cause.clone()).is_ok();
        if self.health_state.down(generation.number, cause) {
            count(&self.counters.lost);
        }
        if first {
            Self::refuse_queued(generation, Reason::Down, cause);
        }
    }

    fn refuse_queued(generation: &Generation, reason: Reason, cause: &Error) {
        for (_, queue) in &generation.queues {
            refuse(queue, reason, cause);
        }
    }

    /// Stops a generation that has failed: when this returns, all that it had is answered. What the
    /// device has may take `patience` to end.
    pub(super) fn end(&self, generation: &Generation, cause: &Error, patience: Duration) {
        let telling = self.tell_others(&Note::Failed(cause.to_string()));
        Self::refuse_queued(generation, Reason::Down, cause);
        let communicators: Vec<_> =
            generation.rank_threads.iter().filter_map(|rank_thread| rank_thread.communicator()).collect();
        let abort = |deadline: &Deadline| {
            drop(abort_all_within(communicators.iter().map(|comm| &**comm), cause, deadline));
        };
        let deadline = Deadline::after(patience);
        // Without a wait: a thread that is inside NCCL may hold that up for seconds.
        abort(&Deadline::after(Duration::ZERO));
        let wait = |deadline: &Deadline, goes_on: &dyn Fn() -> bool| {
            while goes_on() && !deadline.expired() {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let soon = Deadline::after(patience.min(SOON));
        wait(&deadline, &|| {
            if soon.expired() {
                // An abort wakes no code of the user's.
                generation.rank_threads.iter().for_each(|rank_thread| rank_thread.give_up_late());
            }
            generation.left() > 0
        });
        if generation.left() > 0 {
            // What the device still has is freed when it is done with it; what a completion keeps is answered without it.
            generation.rank_threads.iter().for_each(|rank_thread| rank_thread.poller.give_up(&cause.later("World")));
            let soon = Deadline::after(patience.min(SOON));
            wait(&soon, &|| generation.rank_threads.iter().any(|rank_thread| rank_thread.is_busy()));
        }
        for rank_thread in &generation.rank_threads {
            rank_thread.give_up(&cause.later("World"));
        }
        abort(&deadline);
        telling.wait(listen::TELL.min(patience));
    }

    /// The right to rebuild it, or to end it, if it can be had in time.
    pub(super) fn turn_until(&self, deadline: &Deadline) -> Option<MutexGuard<'_, ()>> {
        loop {
            match self.turn.try_lock() {
                Some(turn) => return Some(turn),
                None if deadline.expired() => return None,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Begins a generation of these ranks.
    pub(super) fn begin(&self, communicators: Vec<Communicator>) -> Result<()> {
        let before = self.health_state.health().size;
        let number = self.health_state.now().0 + 1;
        let size = communicators.first().map_or(0, Communicator::size);
        let elsewhere = size > communicators.len();
        // Who submits meanwhile waits for this.
        let mut next = self.next.lock();
        let mut waiting = std::mem::take(&mut *next);
        // Requests were submitted to a certain number of ranks. If that changes, the ranks of all processes refuse them.
        let same = number == 1 || before == size;
        let kept = |rank: usize, waiting: &mut Next| if same { waiting.remove(&rank) } else { None };
        let mut queue_of = |rank: usize| kept(rank, &mut waiting).unwrap_or_else(|| self.new_queue());
        let queues: Vec<_> = communicators.iter().map(|comm| (comm.rank(), queue_of(comm.rank()))).collect();
        let missed = queues.iter().find_map(|(_, queue)| queue.missed()).filter(|_| elsewhere);
        let close = |error: &Error| -> Vec<Left> {
            queues.iter().map(|(_, queue)| queue.close(Reason::Down, error, false)).collect()
        };
        let missing = missed.map(|error| (close(&error), error));
        // Of this attempt: there may be another one with the same number.
        let alive = Arc::new(AtomicBool::new(true));
        let made = self.make(number, communicators, &queues, &alive).map(|generation| {
            *self.now.lock() = Some(Arc::clone(&generation));
            (self.health_state.up(number, size), generation)
        });
        drop(next);
        for (rank, queue) in waiting {
            let reason = format!("rank {rank} was one of {before}: generation {number} has {size} ranks");
            refuse(&queue, Reason::Stale, &Error::InvalidUsage { operation: "World", reason });
        }
        let (is_up, generation) = match made {
            Ok(made) => made,
            Err(error) => {
                alive.store(false, Ordering::Release);
                self.tell_others(&Note::Failed(error.to_string())).wait(listen::TELL);
                close(&error).into_iter().for_each(|left| left.refuse(Reason::Down, &error));
                return Err(error);
            }
        };
        if !is_up {
            let error = refused("the world was closed".to_owned());
            self.end(&generation, &error, patience(&error));
            generation.rank_threads.iter().for_each(|rank_thread| drop(rank_thread.take_communicator()));
            return Err(error);
        }
        traced::up(&self.name, number, size);
        if number > 1 {
            count(&self.counters.rebuilt);
        }
        generation.queues.iter().for_each(|(_, queue)| queue.ask_again());
        if let Some((left, error)) = missing {
            self.fail(&generation, &error);
            left.into_iter().for_each(|left| left.refuse(Reason::Down, &error));
        }
        // Somebody may have brought it down before it was up.
        if let Some(cause) = generation.cause.get() {
            self.fail(&generation, cause);
        }
        Ok(())
    }

    /// Tells ranks elsewhere how this one has ended.
    pub(super) fn tell_others(&self, note: &Note) -> Telling {
        match &*self.source.lock() {
            Source::Far(exchange) => listen::tell(exchange, note),
            Source::Here | Source::Given => Telling::default(),
        }
    }

    /// Tells ranks elsewhere that this one takes no part in the next generation.
    pub(super) fn withdraw(&self) -> Telling {
        match &*self.source.lock() {
            Source::Far(exchange) => listen::withdraw(exchange),
            Source::Here | Source::Given => Telling::default(),
        }
    }

    /// Starts a thread that works on a world that is down. Returns false, and starts none, if the world
    /// is not down, or not any more.
    pub(super) fn start_worker(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<bool> {
        // `take_threads` comes after the world was closed, and takes this lock.
        let mut threads = self.threads.lock();
        // A thread that is not joined keeps its stack.
        threads.retain(|thread| !thread.is_finished());
        let is_down = self.health_state.now().1 == Phase::Down;
        if is_down {
            threads.push(spawn(name, run)?);
        }
        Ok(is_down)
    }

    /// Keeps the threads that use the store for a generation.
    fn keep(&self, started: impl IntoIterator<Item = JoinHandle<()>>) {
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.extend(started);
    }

    /// Takes the threads that may use the store.
    pub(super) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.threads.lock())
    }

    fn make(
        &self,
        number: u64,
        communicators: Vec<Communicator>,
        queues: &[(usize, Arc<Queue>)],
        alive: &Arc<AtomicBool>,
    ) -> Result<Arc<Generation>> {
        let mut rank_threads = Vec::with_capacity(communicators.len());
        for (communicator, (_, queue)) in communicators.into_iter().zip(queues) {
            let poller = Poller::new(communicator.aborter(), Box::new(self.alarm(number)));
            rank_threads.push(Arc::new(RankThread::new(number, communicator, Arc::clone(queue), poller)?));
        }
        let order = self.order(number, &rank_threads, alive)?;
        for (rank, queue) in queues {
            for lane in queue.waiting() {
                // Who waits for room asks again when this is over.
                let _ = order.announce(lane.as_ref(), *rank, queues);
            }
        }
        let queues = queues.to_vec();
        let generation = Arc::new(Generation { number, rank_threads, queues, order, cause: OnceLock::new() });
        for rank_thread in &generation.rank_threads {
            rank_thread.start(self.options.spin, self.alarm(number))?;
        }
        Ok(generation)
    }

    fn new_queue(&self) -> Arc<Queue> {
        Queue::new(self.options.queue, self.options.sequenced)
    }

    /// The order of the requests. Starts the threads that use the store for this generation.
    fn order(&self, number: u64, rank_threads: &[Arc<RankThread>], alive: &Arc<AtomicBool>) -> Result<Order> {
        let (me, alive) = (Weak::clone(&self.me), Arc::clone(alive));
        let goes_on = move || alive.load(Ordering::Acquire) && me.upgrade().is_some_and(|core| core.is_up(number));
        match (&*self.source.lock(), rank_threads) {
            (Source::Far(exchange), [rank_thread, ..]) => {
                let (leaves, left) = mpsc::channel();
                let (stays, alarm) = (Arc::clone(rank_thread), self.alarm(number));
                let leaves = move |rank, issued| {
                    leaves.send(rank).unwrap_or_default();
                    if let Some(error) = stays.leaves(rank, issued) {
                        alarm(&error);
                    }
                };
                self.keep([listen::others(exchange, goes_on.clone(), leaves, self.alarm(number))?]);
                if !self.options.sequenced {
                    return Ok(Order::None);
                }
                let (order, follow) = order::follow(exchange, &rank_thread.queue, left, goes_on, self.alarm(number))?;
                self.keep(follow);
                Ok(order)
            }
            _ if self.options.sequenced => Ok(Order::here()),
            _ => Ok(Order::None),
        }
    }

    /// Records that the world was closed, and that its queues take no more requests.
    pub(super) fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Whether that generation goes on, or has yet to begin.
    fn is_up(&self, number: u64) -> bool {
        match self.health_state.now() {
            (now, Phase::Up) => now == number,
            (now, Phase::Down) => now < number,
            // What is drained still needs its order, and is told of ranks that end.
            (now, _) => {
                let has_work = || self.now().is_some_and(|generation| generation.left() > 0 || !generation.is_idle());
                now == number && (!self.is_settled() || has_work())
            }
        }
    }

    /// Where a request for a rank of a generation goes, if not refused.
    pub(super) fn way(&self, number: u64, rank: usize) -> Result<Way<'_>, (Reason, Error)> {
        let mut next = self.next.lock();
        match self.health_state.now() {
            (_, Phase::Closed) => Err((Reason::Closed, refused("the world was closed".to_owned()))),
            (now, Phase::Up) if now == number => {
                drop(next);
                let generation = self.now().filter(|generation| generation.number == number);
                let found = generation.and_then(|generation| {
                    let rank_thread = Arc::clone(generation.rank_thread(rank)?);
                    Some(Way::RankThread(generation, rank_thread))
                });
                found.ok_or_else(|| (Reason::Stale, stale(number, rank, now)))
            }
            (now, Phase::Down) if number > now => {
                if self.options.while_down == WhileDown::Refuse {
                    return Err((Reason::Down, self.down()));
                }
                let queue = Arc::clone(next.entry(rank).or_insert_with(|| self.new_queue()));
                Ok(Way::Queue(next, queue))
            }
            (now, Phase::Down) if number == now => Err((Reason::Down, self.down())),
            (now, _) => Err((Reason::Stale, stale(number, rank, now))),
        }
    }

    fn down(&self) -> Error {
        let cause = self.health_state.health().cause;
        cause.map_or_else(|| refused("the world is down".to_owned()), |cause| cause.later("World"))
    }

    /// The requests that wait for the next generation.
    pub(super) fn next(&self) -> Vec<Arc<Queue>> {
        self.next.lock().values().cloned().collect()
    }

    /// Nothing more comes.
    pub(super) fn close_next(&self) {
        let queues = std::mem::take(&mut *self.next.lock());
        for queue in queues.values() {
            refuse(queue, Reason::Closed, &refused("the world was closed".to_owned()));
        }
    }

    /// How many requests were submitted that have no answer yet.
    pub(super) fn pending(&self) -> u64 {
        self.counters.read().pending
    }
}

fn refused(reason: String) -> Error {
    Error::InvalidUsage { operation: SUBMIT, reason }
}

fn stale(number: u64, rank: usize, now: u64) -> Error {
    refused(format!(
        "rank {rank} of generation {number}: the world is in generation {now}, whose ranks World::rank gives"
    ))
}

/// Closes a queue, and answers what waits there.
pub(super) fn refuse(queue: &Queue, reason: Reason, cause: &Error) {
    queue.close(reason, cause, false).refuse(reason, cause);
}
