//! Streams: work that runs in order, on a thread of its own.
//!
//! The thread of a stream starts with its first work and sleeps when there is none. Streams made without
//! `cudaStreamNonBlocking` and the null stream of their device keep the order of CUDA's legacy default stream: work for the
//! null stream first waits for all that was enqueued on those streams, and work for those streams waits for all that was
//! enqueued on the null stream.

use super::device::{self, Device};
use super::handle::Registry;
use super::line::{Line, Manner, Ticket};
use super::plan::{AnyWork, Owner};
use super::queue::Queue;
use super::work::{Run, Step, Work};
use crate::cuda::core::device::PerDevice;
use crate::cuda::core::line::Channel;
use crate::cuda::core::queue::Task;
use crate::cuda::core::{capture, frees};
use crate::memory::heap::Block;
use crate::races::Actor;
use crate::report;
use crate::settings::settings;
use crate::sys::{cudaError, cudaStream_t, cudaStreamNonBlocking};
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub(crate) static STREAMS: Registry<Stream> = Registry::new(0x51);

/// The stream behind the null handle of each device, once it is used.
static LEGACY_STREAMS: PerDevice<OnceLock<Arc<Stream>>> = PerDevice::new();

/// What the null handle and `cudaStreamLegacy` stand for.
const LEGACY: [usize; 2] = [0, 1];
/// `cudaStreamPerThread`.
const PER_THREAD: usize = 2;

/// The longest sleep of who waits for something that a failure may end.
const SLICE: Duration = Duration::from_millis(50);

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub device: &'static Device,
    pub flags: u32,
    pub priority: i32,
    /// How far it has come.
    pub line: Arc<Line>,
    channel: &'static Channel,
    queue: Queue,
}

/// Lets `run` be done on `stream` after all that was enqueued there and on `others` before; what is enqueued on any of them
/// later comes after it. The null handle is the legacy default stream of the current device. Where the device fails before
/// that, `run` is dropped.
pub(crate) fn enqueue(
    stream: cudaStream_t,
    others: &[cudaStream_t],
    name: &'static str,
    run: Box<dyn Run>,
) -> Result<(), cudaError> {
    let stream = find(stream)?;
    let _shared = device::share_driver(stream.device);
    let mut joined: Vec<Arc<Stream>> = Vec::with_capacity(others.len());
    for &other in others {
        let other = find(other)?;
        if !Arc::ptr_eq(&other, &stream) && !joined.iter().any(|known| Arc::ptr_eq(known, &other)) {
            joined.push(other);
        }
    }
    stream.device.check()?;
    std::iter::once(&stream).chain(&joined).try_for_each(|stream| capture::refuse(&stream.line))?;
    // Nothing below fails half-way.
    stream.awaken()?;
    joined.iter().try_for_each(Stream::awaken)?;
    for other in &joined {
        stream.follow(other.mark()?)?;
    }
    let done = stream.push_run(name, run)?;
    joined.iter().try_for_each(|other| other.follow(done.clone()))
}

/// Writes `work` of `owner` down for `streams`, if the first of them is being captured. Whether it is.
pub(crate) fn record(
    streams: &[cudaStream_t],
    owner: Owner,
    work: impl FnOnce() -> Arc<dyn AnyWork>,
) -> Result<bool, cudaError> {
    let streams: Vec<Arc<Stream>> = streams.iter().map(|&stream| find(stream)).collect::<Result<_, _>>()?;
    let lines: Vec<_> = streams.iter().map(|stream| &stream.line).collect();
    capture::record(&lines, Some(owner), work)
}

/// The number of the device that `stream` belongs to, and that of the capture that it is part of.
pub(crate) fn place(stream: cudaStream_t) -> Result<(i32, Option<u64>), cudaError> {
    let stream = find(stream)?;
    Ok((stream.device.ordinal, capture::number(&stream.line)))
}

/// Waits until a stream has nothing left to do, without the host having seen that.
#[cfg(test)]
pub(crate) fn come_to_the_end(handle: cudaStream_t) {
    let last = find(handle).unwrap().line.last();
    while !last.wait_for(SLICE) {}
}

/// Whether `handle` stands for the legacy default stream of whatever device is current.
pub(crate) fn is_legacy(handle: cudaStream_t) -> bool {
    LEGACY.contains(&handle.addr())
}

/// The default streams of a thread, one for each device where it was used.
#[derive(Default)]
struct OfThread(Vec<Arc<Stream>>);

impl Drop for OfThread {
    /// What was enqueued is still done.
    fn drop(&mut self) {
        self.0.iter().for_each(|stream| stream.close());
    }
}

thread_local! {
    static OF_THREAD: RefCell<OfThread> = RefCell::default();
}

/// The default stream of this thread on the current device.
fn of_this_thread() -> Result<Arc<Stream>, cudaError> {
    let device = device::current()?;
    let found = OF_THREAD.try_with(|streams| {
        let streams = &mut streams.borrow_mut().0;
        let known = streams.iter().find(|stream| stream.device.ordinal == device.ordinal).cloned();
        known.unwrap_or_else(|| {
            let made = Stream::new(device, 0, 0);
            streams.push(made.clone());
            made
        })
    });
    // A thread that ends has none any more.
    found.map_err(|_| cudaError::cudaErrorInvalidResourceHandle)
}

/// The stream behind a handle.
pub(crate) fn find(handle: cudaStream_t) -> Result<Arc<Stream>, cudaError> {
    if is_legacy(handle) {
        let device = device::current()?;
        return Ok(LEGACY_STREAMS.of(device).get_or_init(|| Stream::make(device, 0, 0, Manner::Legacy)).clone());
    }
    if let Some(stream) = STREAMS.get(handle) {
        return Ok(stream);
    }
    if handle.addr() == PER_THREAD {
        return of_this_thread();
    }
    report::violation(format!("{handle:p} is no stream: it was destroyed, or never made"));
    Err(cudaError::cudaErrorInvalidResourceHandle)
}

impl Stream {
    /// A new stream of `device`.
    pub fn new(device: &'static Device, flags: u32, priority: i32) -> Arc<Self> {
        let manner = if flags & cudaStreamNonBlocking == 0 { Manner::Blocking } else { Manner::NonBlocking };
        Self::make(device, flags, priority, manner)
    }

    fn make(device: &'static Device, flags: u32, priority: i32, manner: Manner) -> Arc<Self> {
        let stream = Arc::new(Self {
            device,
            flags,
            priority,
            line: Line::new(device.ordinal, manner),
            channel: device.next_channel(),
            queue: Queue::default(),
        });
        device.adopt(&stream.line);
        stream
    }

    /// Everything before this call, on this stream and on those whose order it keeps.
    pub fn mark(self: &Arc<Self>) -> Result<Ticket, cudaError> {
        self.join_predecessors();
        match self.predecessors().pop() {
            None => Ok(self.line.last()),
            // The others are waited for in front of this task, as in front of any.
            Some(other) => self.push(Task::Wait(other)),
        }
    }

    /// Whether nothing is left to do, here and on the streams whose order this one keeps. Where that is so, the host has seen it.
    pub fn is_idle(self: &Arc<Self>) -> bool {
        self.join_predecessors();
        let last = self.line.last();
        if !last.done() {
            self.help();
        }
        let idle = last.done() && self.predecessors().is_empty();
        if idle {
            last.see();
        }
        idle
    }

    /// Lets what is enqueued later come after `ticket`.
    pub fn follow(self: &Arc<Self>, ticket: Ticket) -> Result<(), cudaError> {
        if let (Some(track), Some(point)) = (&self.line.track, &ticket.point) {
            track.join(point);
        }
        if !ticket.done() && !ticket.is_of(&self.line) {
            self.push(Task::Wait(ticket))?;
        }
        Ok(())
    }

    /// Starts a piece of work, and appends that run of it; in a capture, writes the work down.
    pub fn submit<W: Work + Clone>(self: &Arc<Self>, work: &W) -> Result<(), cudaError> {
        let run = work.start()?;
        if self.captures(work)? {
            return Ok(());
        }
        self.push_run(work.name(), Box::new(run)).map(drop)
    }

    /// Writes a piece of work down, if the stream is being captured. Whether it is.
    pub fn captures<W: Work + Clone>(&self, work: &W) -> Result<bool, cudaError> {
        capture::record(&[&self.line], None, || Arc::new(work.clone()))
    }

    /// Appends a run.
    pub fn push_run(self: &Arc<Self>, name: &'static str, mut run: Box<dyn Run>) -> Result<Ticket, cudaError> {
        self.place(&mut *run);
        self.push(Task::Run(Step::new(self.device, name, run)))
    }

    /// Gives a run its place in the order of everything, and looks for others that use its memory and have none before it. To be
    /// called before it is appended.
    pub fn place(&self, run: &mut dyn Run) {
        let Some(track) = &self.line.track else { return };
        self.join_predecessors();
        let point = run.chain().map_or_else(|| track.step(), |chain| chain.step(track));
        run.tell(&mut |touching| touching.at(&point));
        run.place(&point);
    }

    /// The same for what takes or gives all of a block of memory.
    pub fn place_block(&self, name: &'static str, block: &Block) {
        let Some(track) = &self.line.track else { return };
        self.join_predecessors();
        block.whole(true, Actor::alone(name)).at(&track.step());
    }

    /// Appends a task. Where the launch queue is full, waits for room, however long that takes and whatever happens
    /// meanwhile: so does the driver.
    pub fn push(self: &Arc<Self>, task: Task) -> Result<Ticket, cudaError> {
        self.awaken()?;
        let before = self.predecessors();
        let entries = task.entries();
        if entries > 0 {
            self.channel.take(self.device.ordinal, entries);
        }
        if entries > 0 && settings().queue_order {
            return Ok(self.channel.in_turn(|turn| {
                self.queue.add(&self.line, before, Task::Turn(self.channel, turn));
                self.queue.add(&self.line, Vec::new(), task)
            }));
        }
        Ok(self.queue.add(&self.line, before, task))
    }

    /// Starts the thread, if there is none yet.
    fn awaken(self: &Arc<Self>) -> Result<(), cudaError> {
        self.queue.start(|| self.start())
    }

    /// Ends the thread once the work that is queued is done.
    pub fn close(&self) {
        self.queue.close();
    }

    /// What the legacy default stream and the blocking streams of its device must wait for. Each wait is for something that
    /// was enqueued earlier, so they cannot form a circle.
    fn predecessors(&self) -> Vec<Ticket> {
        let tickets = |lines: &[Arc<Line>]| lines.iter().filter_map(Line::unfinished).collect();
        match self.line.manner {
            Manner::NonBlocking => Vec::new(),
            Manner::Blocking => tickets(self.device.legacy_if_used().map_or(&[], std::slice::from_ref)),
            Manner::Legacy => {
                let mut lines = self.device.lines();
                lines.retain(|line| line.manner == Manner::Blocking);
                tickets(&lines)
            }
        }
    }

    /// What is enqueued now comes after all of these, also where they are done.
    fn join_predecessors(&self) {
        let Some(track) = &self.line.track else { return };
        let join = |line: &Arc<Line>| {
            if let Some(other) = &line.track {
                track.join(&other.point());
            }
        };
        match self.line.manner {
            Manner::NonBlocking => {}
            Manner::Blocking => self.device.legacy_if_used().into_iter().for_each(join),
            Manner::Legacy => {
                self.device.lines().iter().filter(|line| line.manner == Manner::Blocking).for_each(join);
            }
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
        self.queue.work(|task| {
            let entries = task.entries();
            self.perform(task);
            self.is_done(entries);
        });
    }

    /// A task is done that took so many entries.
    fn is_done(&self, entries: usize) {
        if entries > 0 {
            self.channel.give(entries);
        }
        self.line.advance();
    }

    /// Does what is light and comes first, as far as that needs no wait.
    fn help(&self) {
        self.queue.help(|task| {
            let entries = task.entries();
            let left = task.attempt();
            if left.is_none() {
                self.is_done(entries);
            }
            left
        });
    }

    fn perform(&self, task: Task) {
        if matches!(task, Task::Wait(_) | Task::Stamp(_)) {
            self.device.begin_wait();
        }
        match task {
            // A lost device waits for nothing; what it comes to is dropped.
            Task::Wait(ticket) => while self.device.check().is_ok() && !ticket.wait_for(SLICE) {},
            Task::Turn(channel, turn) => channel.begin(turn),
            Task::Stamp(time) => drop(time.set(Instant::now())),
            Task::Free(block) => frees::release(block, "cudaFreeAsync"),
            Task::Run(step) => step.perform(),
            Task::Graph(steps, lanes) => lanes.perform(steps),
        }
    }
}
