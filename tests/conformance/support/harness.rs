//! Ranks to test with, and a watchdog so that nothing hangs for ever.

use std::io::Write;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use gpucomm::nccl::{Config, InitOptions};
use gpucomm::{Backend, Clique, Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group};

use super::alone::{alone, is_alone};
use super::places::places;
use super::random::{is_thorough, rng};
use super::slower::slower;

/// Runs a test, and fails it when it takes longer than `seconds`.
///
/// On the emulator it has a process to itself. What tests do to devices, others would feel: NCCL waits for a device when it frees something,
/// for what another test has left hanging there too. On GPUs, where processes are dear, the tests of one take turns.
pub fn watched(seconds: f64, body: impl FnOnce() + Send + 'static) {
    run_watched(seconds, gpucomm::backend() != Backend::Nvidia, Box::new(body));
}

/// The same in a process to itself, on GPUs as well: it counts what all communicators of the process leave.
pub fn watched_alone(seconds: f64, body: impl FnOnce() + Send + 'static) {
    run_watched(seconds, true, Box::new(body));
}

/// Not generic: there is one for all tests to compile.
fn run_watched(seconds: f64, is_apart: bool, body: Box<dyn FnOnce() + Send>) {
    if !is_apart || is_alone() {
        return here(seconds, body);
    }
    let thread = std::thread::current();
    let end = alone(thread.name().expect("the name of the test")).finish(slower(seconds) + slower(30.0));
    let notes = end.text.lines().filter(|line| {
        line.starts_with("conformance: ") && ["skipped", "counted"].iter().any(|word| line.contains(word))
    });
    notes.for_each(|line| drop(writeln!(std::io::stdout(), "{line}")));
    end.assert_success();
    assert!(end.text.contains("1 passed"), "{}: not run\n{}", end.what, end.text);
}

/// Runs a test on a thread of its own, which is left behind when it hangs: the other tests go on.
fn here(seconds: f64, body: Box<dyn FnOnce() + Send>) {
    static ONCE: Once = Once::new();
    // A call without a deadline of its own must not outlast the watchdog.
    ONCE.call_once(|| gpucomm::set_default_timeout(slower(45.0)));
    let _turn = turn();
    let limit = slower(seconds);
    let (done, end) = channel();
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    let worker = std::thread::Builder::new().name(name).spawn(move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        let _ = done.send(());
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    let worker = worker.expect("a thread for the test");
    match end.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => panic!("the watchdog: not done within {limit:?}"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
    }
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Kernels of two communicators on the same devices may wait for each other for ever.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    (gpucomm::backend() == Backend::Nvidia).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Says on stdout that something cannot be tested here. Not `println!`, which is hidden while a test passes.
pub fn skip(what: &str) {
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    let _ = writeln!(std::io::stdout(), "conformance: {name}: skipped: {what}");
}

/// How many ranks there are devices for, at most four.
pub fn devices() -> usize {
    places().len().min(4)
}

/// Whether the devices reduce numbers of eight bits.
#[cfg(all(feature = "float8", nccl_ge_2_24))]
pub fn reduces_float8() -> bool {
    let can = |device: &gpucomm::Device| device.compute_capability().expect("the compute capability") >= (9, 0);
    let all = gpucomm::Device::all().expect("devices").iter().all(can);
    if !all {
        skip("f8e4m3 and f8e5m2: a device is older than compute capability 9.0");
    }
    all
}

/// Returns true if the backend is the emulator, which injects faults, and there are two devices: one
/// rank fails, and the other notices.
pub fn takes_faults() -> bool {
    if gpucomm::backend() != Backend::Emulator {
        skip("faults are injected by the emulator only");
        return false;
    }
    !rank_counts(&[2]).is_empty()
}

/// Those of the given numbers of ranks that this machine has devices for. Of more than two, two are
/// drawn from the seed for each place that asks, unless every case runs.
#[track_caller]
pub fn rank_counts(wanted: &[usize]) -> Vec<usize> {
    let devices = devices();
    for ranks in wanted.iter().filter(|ranks| **ranks > devices) {
        skip(&format!("{ranks} ranks: this machine has {devices} devices"));
    }
    let mut counts: Vec<_> = wanted.iter().copied().filter(|ranks| *ranks <= devices).collect();
    let mut draws = rng(&format!("{} {wanted:?}", Location::caller()));
    while counts.len() > 2 && !is_thorough() {
        counts.remove(draws.usize(..counts.len()));
    }
    counts
}

/// A clique over the first devices, and a stream for each rank.
#[derive(Debug)]
pub struct Rig {
    pub clique: Clique,
    streams: Vec<Stream>,
}

impl Rig {
    pub fn new(ranks: usize) -> Self {
        let rig = Self::unconnected(ranks);
        // Faults are counted from the first operation of a rank.
        if std::env::var_os("GPUCOMM_EMULATOR_FAULTS").is_none() {
            rig.connect();
        }
        rig
    }

    /// The same, whose ranks have done nothing yet.
    pub fn unconnected(ranks: usize) -> Self {
        let devices = &places()[..ranks];
        // SAFETY: who aborts such a clique leaves no collective on windows without a rank, and messages here are too short for NCCL to
        // register their memory.
        let config = unsafe { Config::new().with_force_windows() };
        let clique = Clique::init_all_with(devices, &InitOptions::new().with_config(config))
            .unwrap_or_else(|error| panic!("a clique of {ranks} ranks: {error}"));
        let streams = devices.iter().map(|device| Stream::new(*device).expect("a stream")).collect();
        Self { clique, streams }
    }

    /// Connects every rank with every other: the ranks meet before a first operation, in which NCCL connects them, and tests
    /// in which a peer never comes mean a later one.
    fn connect(&self) {
        self.run(|comm, stream| {
            let (mut x, mut y) =
                (DeviceBuffer::<u8>::zeroed(stream, 1)?, DeviceBuffer::<u8>::zeroed(stream, comm.size())?);
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
            let (mut v, mut w) = (DeviceBuffer::<f32>::zeroed(stream, 1)?, DeviceBuffer::<f32>::zeroed(stream, 1)?);
            comm.all_reduce(InPlace(&mut v), ReduceOp::Sum, stream)?;
            group(|g| {
                g.all_reduce(comm, InPlace(&mut v), ReduceOp::Sum, stream)?;
                g.all_reduce(comm, InPlace(&mut w), ReduceOp::Sum, stream)
            })?;
            let counts = vec![1; comm.size()];
            let z = DeviceBuffer::<u8>::zeroed(stream, comm.size())?;
            comm.all_to_all_v((&z, &mut y), &counts, &counts, stream)?;
            stream.synchronize()
        });
    }

    pub fn size(&self) -> usize {
        self.clique.size()
    }

    /// Runs `body` as every rank, with that rank's stream, and panics if a rank fails.
    pub fn run<R: Send>(&self, body: impl Fn(&Communicator, &Stream) -> Result<R> + Sync) -> Vec<R> {
        self.try_run_dyn(&body).unwrap_or_else(|error| panic!("a rank failed: {error}\n{error:?}"))
    }

    /// Runs `body` as every rank, with that rank's stream. Who is done stays until all are: those who wait for a rank that has
    /// left are told at once, and most tests mean one that does not come.
    pub fn try_run<R: Send>(&self, body: impl Fn(&Communicator, &Stream) -> Result<R> + Sync) -> Result<Vec<R>> {
        self.try_run_dyn(&body)
    }

    /// There is one for each `R` to compile, not one for each test.
    fn try_run_dyn<R: Send>(&self, body: &(dyn Fn(&Communicator, &Stream) -> Result<R> + Sync)) -> Result<Vec<R>> {
        let busy = AtomicUsize::new(self.size());
        self.clique.spmd(|comm| {
            let done = Done(&busy);
            let result = body(comm, &self.streams[comm.rank()])?;
            drop(done);
            while busy.load(Ordering::Acquire) > 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(result)
        })
    }

    /// The same, in which nobody stays.
    pub fn run_and_leave<R: Send>(&self, body: impl Fn(&Communicator, &Stream) -> Result<R> + Sync) -> Result<Vec<R>> {
        self.clique.spmd(|comm| body(comm, &self.streams[comm.rank()]))
    }

    /// Every rank but the first issues an operation, which waits for the first.
    pub fn hang(&self) -> Vec<(Stream, DeviceBuffer<i32>)> {
        let hung = self.clique.ranks().iter().skip(1).map(|comm| {
            let stream = Stream::new(comm.device()).unwrap();
            let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 5]).unwrap();
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
            (stream, x)
        });
        hung.collect()
    }

    /// Closes the communicators within the default deadline.
    pub fn close(self) {
        self.clique.close_timeout(gpucomm::default_timeout()).expect("close");
    }
}

/// A rank that is at it, as long as this lives.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Lengths for the matrix: nothing, one, odd, large. The emulator shares its cores with the reference; real GPUs take more.
pub fn lengths(large: usize) -> [usize; 4] {
    let large = if gpucomm::backend() == Backend::Nvidia { large.max(200_003) } else { large };
    [0, 1, 1021, large]
}
