//! Streams: work that runs in order, on a thread of its own.
//!
//! The thread of a stream starts with its first work and sleeps when there is none. Streams made without
//! `cudaStreamNonBlocking` and the null stream of their device keep the order of CUDA's legacy default stream: work for the
//! null stream first waits for all that was enqueued on those streams, and work for those streams waits for all that was
//! enqueued on the null stream.

use super::channel::Channel;
use super::device::{self, Device};
use super::handle::Registry;
use super::{capture, driver_lock};
use crate::emulator::cuda::lock;
use crate::emulator::cuda::work::memory;
use crate::emulator::memory::allocator::Block;
use crate::emulator::report;
use crate::sys::{cudaError, cudaStream_t, cudaStreamNonBlocking};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(crate) static STREAMS: Registry<Stream> = Registry::new(0x51);

/// What the null handle and `cudaStreamLegacy` stand for.
const LEGACY: [usize; 2] = [0, 1];
/// `cudaStreamPerThread`.
const PER_THREAD: usize = 2;

/// The name of work that runs on the host.
pub(crate) const HOST_FUNCTION: &str = "cudaLaunchHostFunc";

/// The longest sleep of who waits for something that a failure may end.
const SLICE: Duration = Duration::from_millis(50);

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub device: &'static Device,
    pub flags: u32,
    pub priority: i32,
    legacy: bool,
    channel: &'static Channel,
    /// How many tasks were ever enqueued; changes under the lock of the queue.
    submitted: AtomicU64,
    /// How many are done; changes under the same lock.
    completed: AtomicU64,
    queue: Mutex<Queue>,
    wake: Condvar,
    progress: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    tasks: VecDeque<Task>,
    /// The thread exists.
    worker: bool,
    /// The thread sleeps and was not woken yet.
    asleep: bool,
    /// The handle is gone: the thread ends when nothing is left to do.
    closing: bool,
    /// How many threads wait for progress.
    waiters: usize,
}

type Work = Box<dyn FnOnce(&Running<'_>) + Send>;

/// One entry of a queue.
pub(crate) enum Task {
    /// Work on data; dropped without running once the device has failed.
    Run(&'static str, Work),
    /// Nothing before that ticket is done.
    Wait(Ticket),
    /// The time when the stream came here.
    Stamp(Arc<OnceLock<Instant>>),
    /// The end of an allocation in stream order. It comes also when the device has failed: others may wait for the memory.
    Free(Arc<Block>),
}

impl Task {
    fn takes_an_entry(&self) -> bool {
        matches!(self, Self::Run(name, _) if *name != HOST_FUNCTION)
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(name, _) => write!(f, "Run({name})"),
            Self::Wait(ticket) => write!(f, "Wait({})", ticket.number),
            Self::Stamp(_) => write!(f, "Stamp"),
            Self::Free(block) => write!(f, "Free({:#x})", block.offset),
        }
    }
}

/// A place in the order of a stream: done when the first `number` tasks are.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    pub stream: Arc<Stream>,
    number: u64,
}

impl Ticket {
    /// Whether the stream has come this far. What the work before wrote is then visible to the caller.
    pub fn done(&self) -> bool {
        self.stream.completed.load(Ordering::Acquire) >= self.number
    }

    /// Sleeps until the stream has come this far.
    pub fn wait(&self) {
        self.wait_until(None);
    }

    /// Sleeps until the stream has come this far, but no longer than `time`. Whether it has.
    pub fn wait_for(&self, time: Duration) -> bool {
        self.wait_until(Some(Instant::now() + time))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> bool {
        if self.done() {
            return true;
        }
        let stream = &self.stream;
        let mut queue = lock(&stream.queue);
        queue.waiters += 1;
        while !self.done() {
            queue = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => stream.progress.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => stream.progress.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        queue.waiters -= 1;
        self.done()
    }
}

/// What work knows about where it runs.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    stream: &'a Stream,
    name: &'static str,
}

impl Running<'_> {
    /// Makes `error` the sticky error of the device: every later call on it returns that.
    pub fn fail(&self, error: cudaError) {
        self.stream.device.fail(error);
    }

    /// Whether waiting has lost its purpose, because the device has failed.
    pub fn cancelled(&self) -> bool {
        self.stream.device.check().is_err()
    }

    /// The name under which the work was enqueued.
    #[allow(dead_code, reason = "for reports of the NCCL half")]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// Lets `work` run on `stream` after all that was enqueued there and on `others` before; what is enqueued on any of them
/// later comes after it. The null handle is the legacy default stream of the current device. Where the device fails before
/// that, `work` is dropped without running.
pub(crate) fn enqueue(
    stream: cudaStream_t,
    others: &[cudaStream_t],
    name: &'static str,
    work: Work,
) -> Result<(), cudaError> {
    let stream = find(stream)?;
    let _shared = driver_lock::shared(stream.device);
    let mut joined: Vec<Arc<Stream>> = Vec::with_capacity(others.len());
    for &other in others {
        let other = find(other)?;
        if !Arc::ptr_eq(&other, &stream) && !joined.iter().any(|known| Arc::ptr_eq(known, &other)) {
            joined.push(other);
        }
    }
    stream.device.check()?;
    // Nothing below fails half-way.
    stream.awaken()?;
    joined.iter().try_for_each(Stream::awaken)?;
    for other in &joined {
        let here = other.mark()?;
        if !here.done() {
            stream.push(Task::Wait(here))?;
        }
    }
    let done = stream.push(Task::Run(name, work))?;
    joined.iter().try_for_each(|other| other.push(Task::Wait(done.clone())).map(drop))
}

/// The number of the device that `stream` belongs to.
pub(crate) fn stream_device(stream: cudaStream_t) -> Result<i32, cudaError> {
    Ok(find(stream)?.device.ordinal)
}

/// The stream behind a handle.
pub(crate) fn find(handle: cudaStream_t) -> Result<Arc<Stream>, cudaError> {
    if LEGACY.contains(&handle.addr()) {
        return Ok(device::current()?.legacy().clone());
    }
    if let Some(stream) = STREAMS.get(handle) {
        return Ok(stream);
    }
    if handle.addr() == PER_THREAD {
        report::violation("cudaStreamPerThread is not emulated");
        return Err(cudaError::cudaErrorNotSupported);
    }
    report::violation(format!("{handle:p} is no stream: it was destroyed, or never made"));
    Err(cudaError::cudaErrorInvalidResourceHandle)
}

impl Stream {
    /// A new stream of `device`.
    pub fn new(device: &'static Device, flags: u32, priority: i32) -> Arc<Self> {
        Self::make(device, flags, priority, false)
    }

    /// The stream behind the null handle.
    pub fn legacy(device: &'static Device) -> Arc<Self> {
        Self::make(device, 0, 0, true)
    }

    fn make(device: &'static Device, flags: u32, priority: i32, legacy: bool) -> Arc<Self> {
        let stream = Arc::new(Self {
            device,
            flags,
            priority,
            legacy,
            channel: device.next_channel(),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            queue: Mutex::default(),
            wake: Condvar::new(),
            progress: Condvar::new(),
        });
        device.adopt(&stream);
        stream
    }

    /// Whether it is the stream behind the null handle.
    pub fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// The last task that was enqueued here.
    pub fn last(self: &Arc<Self>) -> Ticket {
        Ticket { stream: self.clone(), number: self.submitted.load(Ordering::Acquire) }
    }

    /// Everything before this call, on this stream and on those whose order it keeps.
    pub fn mark(self: &Arc<Self>) -> Result<Ticket, cudaError> {
        match self.predecessors().pop() {
            None => Ok(self.last()),
            // The others are waited for in front of this task, as in front of any.
            Some(other) => self.push(Task::Wait(other)),
        }
    }

    /// Whether nothing is left to do, here and on the streams whose order this one keeps.
    pub fn is_idle(self: &Arc<Self>) -> bool {
        self.last().done() && self.predecessors().is_empty()
    }

    /// Appends a task. Where the launch queue is full, waits for room, however long that takes and whatever happens
    /// meanwhile: so does the driver.
    pub fn push(self: &Arc<Self>, task: Task) -> Result<Ticket, cudaError> {
        capture::check_stream(self)?;
        self.awaken()?;
        let before = self.predecessors();
        let added = before.len() as u64 + 1;
        if task.takes_an_entry() {
            self.channel.take(self.device.ordinal);
        }
        let mut queue = lock(&self.queue);
        queue.tasks.extend(before.into_iter().map(Task::Wait));
        queue.tasks.push_back(task);
        // Only this lock's holder writes, so this is no race.
        let number = self.submitted.load(Ordering::Relaxed) + added;
        self.submitted.store(number, Ordering::Release);
        let asleep = std::mem::take(&mut queue.asleep);
        drop(queue);
        if asleep {
            self.wake.notify_one();
        }
        Ok(Ticket { stream: self.clone(), number })
    }

    /// Starts the thread, if there is none yet.
    fn awaken(self: &Arc<Self>) -> Result<(), cudaError> {
        let mut queue = lock(&self.queue);
        if !queue.worker {
            self.start()?;
            queue.worker = true;
        }
        Ok(())
    }

    /// Ends the thread once the work that is queued is done.
    pub fn close(&self) {
        lock(&self.queue).closing = true;
        self.wake.notify_one();
    }

    /// What the legacy default stream and the blocking streams of its device must wait for. Each wait is for something that
    /// was enqueued earlier, so they cannot form a circle.
    fn predecessors(&self) -> Vec<Ticket> {
        if self.legacy {
            let blocking = |stream: &Arc<Stream>| !stream.legacy && stream.flags & cudaStreamNonBlocking == 0;
            let others = self.device.streams();
            others.iter().filter(|stream| blocking(stream)).map(Stream::last).filter(|ticket| !ticket.done()).collect()
        } else if self.flags & cudaStreamNonBlocking == 0 {
            self.device.legacy_if_used().map(Stream::last).filter(|ticket| !ticket.done()).into_iter().collect()
        } else {
            Vec::new()
        }
    }

    fn start(self: &Arc<Self>) -> Result<(), cudaError> {
        let stream = self.clone();
        let name = format!("gpucomm-dev{}", self.device.ordinal);
        std::thread::Builder::new().name(name).spawn(move || stream.work()).map(drop).map_err(|error| {
            report::line(format!("cannot start the thread of a stream: {error}"));
            cudaError::cudaErrorMemoryAllocation
        })
    }

    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                drop(queue);
                let entry = task.takes_an_entry();
                self.perform(task);
                if entry {
                    self.channel.give();
                }
                queue = lock(&self.queue);
                let done = self.completed.load(Ordering::Relaxed) + 1;
                self.completed.store(done, Ordering::Release);
                if queue.waiters > 0 {
                    self.progress.notify_all();
                }
            } else if queue.closing {
                queue.worker = false;
                return;
            } else {
                queue.asleep = true;
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.asleep = false;
            }
        }
    }

    fn perform(&self, task: Task) {
        match task {
            // A lost device waits for nothing; what it comes to is dropped.
            Task::Wait(ticket) => while self.device.check().is_ok() && !ticket.wait_for(SLICE) {},
            Task::Stamp(time) => drop(time.set(Instant::now())),
            Task::Free(block) => memory::release(&block, "cudaFreeAsync"),
            Task::Run(name, work) => {
                let running = Running { stream: self, name };
                self.device.begin_work(name);
                // Also around the drop of work that does not run: it may own anything.
                let done =
                    catch_unwind(AssertUnwindSafe(|| if running.cancelled() { drop(work) } else { work(&running) }));
                if let Err(payload) = done {
                    // What was thrown may itself panic when it is dropped.
                    std::mem::forget(payload);
                    report::violation(format!("{name} panicked on a stream of device {}", self.device.ordinal));
                    running.fail(cudaError::cudaErrorLaunchFailure);
                }
            }
        }
    }
}
