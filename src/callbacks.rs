//! Threads that run user code: wakers, and destructors of what users hand over.
//!
//! User code may block or panic. No thread that an answer or a deadline depends on runs it: such a thread hands it over to
//! this one pool of the process, in which a call that blocks delays the next by [`PATIENCE`] at most.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::task::{RawWakerVTable, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::lock::{Condvar, Mutex, MutexGuard, is_forked};
use crate::panicked;

/// How long a call waits for a busy thread before it gets another one.
const PATIENCE: Duration = Duration::from_millis(10);

/// How long a thread waits for a call before it ends.
const IDLE: Duration = Duration::from_secs(10);

type Call = Box<dyn FnOnce() + Send>;

struct Pool {
    /// The calls that no thread has begun, and since when they wait.
    calls: VecDeque<(Instant, Call)>,
    /// How many threads there are, and how many of them wait for a call.
    threads: usize,
    idle: usize,
    /// Whether the thread runs that starts the others.
    supervised: bool,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { calls: VecDeque::new(), threads: 0, idle: 0, supervised: false });
/// There is a call for an idle thread.
static CALL: Condvar = Condvar::new();
/// There are more calls than idle threads.
static BUSY: Condvar = Condvar::new();

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock()
}

impl Pool {
    fn has_idle_threads(&self) -> bool {
        self.calls.len() <= self.idle
    }
}

/// Has another thread run user code. Returns at once, and runs none itself unless no thread can be started. A forked child runs
/// nothing: the objects that the call is about belong to the parent.
pub(crate) fn run(call: impl FnOnce() + Send + 'static) {
    if is_forked() {
        // Threads of the parent may use the values that the call owns, so they are not dropped either.
        std::mem::forget(call);
        return;
    }
    let mut pool = pool();
    if !pool.supervised {
        if thread::Builder::new().name("gpucomm-callbacks".into()).spawn(supervise).is_err() {
            drop(pool);
            let _ = panicked::caught(call);
            return;
        }
        pool.supervised = true;
    }
    pool.calls.push_back((Instant::now(), Box::new(call)));
    let wakes = if pool.has_idle_threads() { &CALL } else { &BUSY };
    drop(pool);
    wakes.notify_one();
}

/// Drops a value, whose destructor may be the user's, on another thread. Waits until it is dropped, but no longer than `within`.
#[cfg(feature = "nvshmem")]
pub(crate) fn drop_within(value: impl Send + 'static, within: Duration) {
    let (running, ended) = std::sync::mpsc::channel::<()>();
    run(move || {
        // Closes the channel, also if the destructor panics.
        let _running = running;
        drop(value);
    });
    // A forked child drops nothing.
    if !is_forked() {
        let _ = ended.recv_timeout(within);
    }
}

/// Wakes a task, by another thread unless the waker is one of [`this_thread`].
pub(crate) fn wake(waker: Waker) {
    if unparks(&waker) {
        waker.wake();
    } else {
        run(move || waker.wake());
    }
}

/// Starts threads while calls wait too long. Runs no user code.
fn supervise() {
    let mut pool = pool();
    loop {
        let oldest = pool.calls.front().map(|(since, _)| *since).filter(|_| !pool.has_idle_threads());
        let Some(since) = oldest else {
            pool = BUSY.wait(pool);
            continue;
        };
        let waits = if pool.threads == 0 { Duration::ZERO } else { PATIENCE.saturating_sub(since.elapsed()) };
        if waits.is_zero() && thread::Builder::new().name("gpucomm-callback".into()).spawn(serve).is_ok() {
            // It takes a call as soon as it runs.
            pool.threads += 1;
            pool.idle += 1;
            continue;
        }
        let pause = if waits.is_zero() { PATIENCE } else { waits };
        pool = BUSY.wait_timeout(pool, pause);
    }
}

/// Runs calls, one after the other, as one of the idle threads between them.
fn serve() {
    let mut pool = pool();
    loop {
        if let Some((_, call)) = pool.calls.pop_front() {
            pool.idle -= 1;
            drop(pool);
            let _ = panicked::caught(call);
            pool = self::pool();
            pool.idle += 1;
            continue;
        }
        let since = Instant::now();
        pool = CALL.wait_timeout(pool, IDLE);
        if since.elapsed() >= IDLE && pool.calls.is_empty() {
            pool.idle -= 1;
            pool.threads -= 1;
            return;
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker that unparks this thread, which never blocks.
pub(crate) fn this_thread() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

/// Whether the waker is one of [`this_thread`].
fn unparks(waker: &Waker) -> bool {
    static OWN: OnceLock<&'static RawWakerVTable> = OnceLock::new();
    waker.vtable() == *OWN.get_or_init(|| this_thread().vtable())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    struct Other;

    impl Wake for Other {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn own_wakers_are_known() {
        let own = this_thread();
        assert!(unparks(&own) && unparks(&own.clone()));
        assert!(!unparks(&Waker::from(Arc::new(Other))) && !unparks(Waker::noop()));
    }

    /// Calls that block or panic delay no other.
    #[test]
    fn blocked_calls() {
        let (let_go, waits) = channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        for _ in 0..5 {
            let waits = Arc::clone(&waits);
            run(move || {
                let _ = waits.lock().recv();
            });
            run(|| panic!("a call of a test"));
            let (told, tells) = channel();
            run(move || told.send(()).unwrap());
            tells.recv_timeout(Duration::from_secs(60)).expect("the last call runs");
        }
        drop(let_go);
    }
}
