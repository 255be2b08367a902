//! The thread that looks after a world: what is too late, what has failed, and what comes after that.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::core::{Core, patience};
use super::guarded::{dropped, guarded};
use super::health::Phase;
use super::options::Rebuild;
use super::queue::Queue;
use super::rank_thread::Generation;
use super::rebuild::rebuild;
use super::task::Task;
use super::threads::spawn;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// Starts it.
pub(super) fn start(core: &Arc<Core>) -> Result<()> {
    let core = Arc::downgrade(core);
    spawn("gpucomm-world", move || run(&core)).map(drop)
}

/// When a world that is down is to be rebuilt.
struct Plan {
    generation: u64,
    attempt: u32,
    pause: Duration,
    /// `None` where that is never.
    at: Option<Instant>,
    under_way: bool,
}

fn run(core: &Weak<Core>) {
    let (mut seen, mut ended, mut plan) = (0, 0, None::<Plan>);
    while let Some(core) = core.upgrade() {
        // What panics in it is code of users, which must not end this thread.
        if guarded(|| round(&core, &mut ended, &mut plan)) == Some(false) {
            return;
        }
        let health_state = Arc::clone(&core.health_state);
        // Nobody else may have it: then it is dropped here.
        dropped(core);
        health_state.sleep(&mut seen, INTERVAL);
    }
}

/// Looks after a world once; whether there is more to look after. `ended` is the last generation that was ended.
fn round(core: &Arc<Core>, ended: &mut u64, plan: &mut Option<Plan>) -> bool {
    match core.health_state.now() {
        // What is drained keeps its deadlines.
        (_, Phase::Closed) => match core.now() {
            Some(generation) if core.pending() > 0 || !core.is_settled() => {
                if let Some(error) = generation.waits_in_vain() {
                    core.fail(&generation, &error);
                }
                look_for_late(core, &generation);
            }
            _ => return false,
        },
        (_, Phase::Up) => look(core),
        (number, Phase::Down) => {
            if number > *ended {
                *ended = number;
                begin_end(core);
            }
            core.next().iter().for_each(|queue| miss_late(queue));
            try_again(core, number, plan);
        }
    }
    true
}

/// Looks at a generation that goes on.
fn look(core: &Core) {
    let Some(generation) = core.now() else { return };
    // Where nothing is under way, nobody else sees that a device is lost.
    if let Some(error) = generation.failure().or_else(|| generation.lost()).or_else(|| generation.waits_in_vain()) {
        core.fail(&generation, &error);
        return;
    }
    look_for_late(core, &generation);
}

/// What is said of a request whose deadline has passed in a queue.
fn not_begun(task: &Arc<dyn Task>) -> Error {
    task.meta().late("it has not begun")
}

/// Where something has not begun in time.
fn look_for_late(core: &Core, generation: &Generation) {
    let late: Vec<_> = generation.queues.iter().flat_map(|(_, queue)| queue.late()).collect();
    if let Some(first) = late.iter().find(|task| task.waits())
        && generation.size() > 1
    {
        // The other ranks may have it, and what comes after it here is not what comes after it there: nothing more begins.
        core.fail(generation, &not_begun(first));
    }
    late.iter().for_each(|task| task.expire(not_begun(task)));
    late.into_iter().for_each(dropped);
    // What its thread is at, or a completion keeps, nobody else looks after.
    if let Some(error) = generation.rank_threads.iter().find_map(|rank_thread| rank_thread.late()) {
        core.fail(generation, &error);
    }
}

/// The same in the queue of a rank that will be.
fn miss_late(queue: &Queue) {
    for task in queue.late() {
        let error = not_begun(&task);
        if task.waits() {
            queue.miss(error.clone());
        }
        task.expire(error);
        dropped(task);
    }
}

/// Ends a generation that has failed, on a thread of its own: that may take seconds, and this one looks after deadlines meanwhile.
fn begin_end(core: &Arc<Core>) {
    let own = Arc::clone(core);
    if core.start_worker("gpucomm-end", move || end(&own)).is_err() {
        end(core);
    }
}

fn end(core: &Core) {
    if let (Some(generation), Some(cause)) = (core.now(), core.health_state.health().cause) {
        core.end(&generation, &cause, patience(&cause));
    }
    core.health_state.ended();
}

/// On a thread of its own: this one looks after deadlines meanwhile.
fn try_again(core: &Arc<Core>, number: u64, plan: &mut Option<Plan>) {
    let Rebuild::Automatic { members, first, longest, attempts } = core.options.rebuild else { return };
    if number == 0 || core.rebuilding.load(Ordering::Acquire) {
        return;
    }
    if plan.as_ref().is_none_or(|plan| plan.generation != number) {
        *plan = Some(Plan { generation: number, attempt: 0, pause: first, at: Some(Instant::now()), under_way: false });
    }
    let Some(plan) = plan else { return };
    if std::mem::take(&mut plan.under_way) {
        plan.at = Instant::now().checked_add(plan.pause);
        plan.pause = plan.pause.saturating_mul(2).min(longest);
    }
    if plan.attempt >= attempts || plan.at.is_none_or(|at| Instant::now() < at) {
        return;
    }
    plan.attempt += 1;
    plan.under_way = true;
    core.rebuilding.store(true, Ordering::Release);
    let (own, attempt) = (Arc::clone(core), plan.attempt);
    let started = core.start_worker("gpucomm-rebuild", move || {
        let deadline = Deadline::after(own.options.init.timeout);
        if let Some(Err(error)) = guarded(|| rebuild(&own, members, &deadline)) {
            own.health_state.attempted(&error, attempt);
        }
        own.rebuilding.store(false, Ordering::Release);
    });
    if !matches!(started, Ok(true)) {
        core.rebuilding.store(false, Ordering::Release);
    }
    if let Err(error) = started {
        core.health_state.attempted(&error, attempt);
    }
}
